// SPDX-License-Identifier: BSL-1.0
// Measures the cost of reading ranges of a file that is much larger than the ranges.
//
//   build/bench/bench/penstock_store_bench
//
// <cache>/<engine>/<bytes>  64 random ranges of a file of 1 GiB with one `read_many`; items are
//                           ranges, bytes are theirs. `cold`: the ranges are removed from the page
//                           cache before each call, which is not timed; `direct`: bypasses the page
//                           cache; `warm`: a file of 64 MiB in the page cache. `uring` is a single
//                           thread, `threads` are sixteen, `pread` reads in sequence
// belady, lru               an epoch of 20,000 blocks through a cache that holds a quarter of them;
//                           items are blocks, `below` is the share of cache misses
// far/hints, far/ahead      an epoch of 512 shuffled blobs of 4 KiB, in batches of 16 with two
//                           workers, from a store in memory whose calls take 5 ms each. `hints`:
//                           workers prefetch the run that they read; `ahead`: the loader's
//                           `lookahead_bytes` also announces later samples; items are blobs
//
// The file is in the folder for temporary files (TMPDIR). If that folder is in memory, no read is
// cold.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/store/cache/cached_store.hpp>
#include <penstock_ext/store/local_store.hpp>

#include "support/blob_samples.hpp"
#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t ranges_at_once = 64;
constexpr std::size_t far_bytes = 4096;  // size of a blob in bytes

// A folder with two files. The destructor removes it.
class large_file {
 public:
  large_file() {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
    folder_ = ::mkdtemp(name.data()) == nullptr ? throw std::runtime_error("mkdtemp") : name;
    write("large", std::size_t{1} << 30);
    write("small", std::size_t{64} << 20);
  }
  large_file(const large_file&) = delete;
  large_file& operator=(const large_file&) = delete;
  ~large_file() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] const std::string& folder() const { return folder_; }
  void cool() const {
    const int file = ::open((folder_ + "/large").c_str(), O_RDONLY | O_CLOEXEC);
    if (::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) std::abort();
    ::close(file);
  }

 private:
  void write(const std::string& name, std::size_t bytes) const {
    const int file = ::open((folder_ + '/' + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    std::vector<std::uint64_t> piece(std::size_t{1} << 20);
    std::mt19937_64 random{1};
    for (std::uint64_t& word : piece) word = random();
    for (std::size_t at = 0; at < bytes; at += piece.size() * 8) {
      const std::size_t count = std::min(bytes - at, piece.size() * 8);
      if (::write(file, piece.data(), count) < 0) throw std::runtime_error(folder_);
    }
    ::fsync(file);
    ::close(file);
  }

  std::string folder_;
};

enum class kind { cold, direct, warm };

void read_ranges(benchmark::State& state, const large_file& file, kind how, ps::read_engine engine,
                 std::size_t bytes) {
  const ps::local_store store{
      file.folder(), {.engine = engine, .direct = how == kind::direct, .depth = 64, .threads = 15}};
  const std::string object = how == kind::warm ? "small" : "large";
  const std::uint64_t size = store.size_of(object);
  std::vector<std::byte> memory(ranges_at_once * bytes);
  std::mt19937_64 random{7};
  std::vector<ps::byte_range> ranges(ranges_at_once);
  for (auto _ : state) {
    state.PauseTiming();
    if (how == kind::cold) file.cool();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::uint64_t at = random() % (size - bytes);
      ranges[i] = {object, at, std::span{memory}.subspan(i * bytes, bytes)};
    }
    state.ResumeTiming();
    store.read_many(ranges);
  }
  const auto count = state.iterations() * static_cast<std::int64_t>(ranges_at_once);
  state.SetItemsProcessed(count);
  state.SetBytesProcessed(count * static_cast<std::int64_t>(bytes));
}

// A store whose objects take no time to read.
struct zeros {
  [[nodiscard]] std::uint64_t size_of(std::string_view) const { return std::uint64_t{1} << 40; }
  void read(const ps::byte_range& range) const {
    std::memset(range.out.data(), 0, range.out.size());
  }
};

void read_cached(benchmark::State& state, bool is_reported) {
  constexpr std::uint64_t blocks = 20'000;
  constexpr std::uint64_t block = 256;
  std::vector<std::byte> memory(block);
  std::uint64_t used = 0;
  std::uint64_t below = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const ps::cached_store cache{zeros{},
                                 {.block_bytes = block, .memory_bytes = blocks / 4 * block}};
    std::vector<std::uint64_t> order;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::uint64_t> one(blocks);
      ps::shuffled{.seed = 1}.order(blocks, epoch).fill(0, one);
      order.insert(order.end(), one.begin(), one.end());
    }
    std::vector<ps::upcoming_range> coming;
    for (const std::uint64_t index : order) coming.push_back({"x", index * block, block});
    state.ResumeTiming();
    if (is_reported) cache.will_use(coming);
    for (const std::uint64_t index : order) cache.read({"x", index * block, memory});
    used += order.size();
    below += cache.stats().from_store;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(used));
  state.counters["below"] = static_cast<double>(below) / static_cast<double>(used);
}

// A store in which every call takes a round trip.
struct far_away {
  [[nodiscard]] std::uint64_t size_of(std::string_view) const { return std::uint64_t{1} << 40; }
  void read(const ps::byte_range& range) const { read_many({&range, 1}); }
  void read_many(std::span<const ps::byte_range> ranges) const {
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
    for (const ps::byte_range& range : ranges) std::memset(range.out.data(), 0, range.out.size());
  }
};

[[nodiscard]] ps::stored_blobs<far_away> far_blobs(std::uint64_t count) {
  std::vector<ps::stored_blob> list;
  for (std::uint64_t i = 0; i < count; ++i) list.push_back({"x", i * far_bytes, far_bytes});
  return ps::stored_blobs<far_away>{far_away{}, std::move(list)};
}

void read_far(benchmark::State& state, std::uint64_t read_ahead) {
  const bench::blob_samples<ps::stored_blobs<far_away>, far_bytes> data{far_blobs(512)};
  ps::loader loader{data,
                    ps::shuffled{.seed = 1},
                    {.batch_size = 16, .workers = 2, .lookahead_bytes = read_ahead}};
  std::uint64_t samples = 0;
  std::uint64_t epoch = 0;
  for (auto _ : state) {
    for (auto& batch : loader.epoch(epoch)) samples += batch.size();
    ++epoch;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(samples));
}

}  // namespace

int main(int argc, char** argv) {
  const large_file file;
  const auto add = [&](const std::string& name, kind how) {
    for (const std::size_t bytes : {std::size_t{4096}, std::size_t{112} << 10}) {
      const std::string size = std::to_string(bytes >> 10U) + "KiB";
      using engine = ps::read_engine;
      for (const auto& [word, by] :
           {std::pair{"uring", engine::best}, std::pair{"threads", engine::threads},
            std::pair{"pread", engine::pread}}) {
        benchmark::RegisterBenchmark((name + '/' + word + '/' + size).c_str(),
                                     [&file, how, engine = by, bytes](benchmark::State& state) {
                                       read_ranges(state, file, how, engine, bytes);
                                     })
            ->UseRealTime();
      }
    }
  };
  add("direct", kind::direct);
  add("cold", kind::cold);
  add("warm", kind::warm);
  benchmark::RegisterBenchmark("belady", read_cached, true);
  benchmark::RegisterBenchmark("lru", read_cached, false);
  benchmark::RegisterBenchmark("far/hints", read_far, 0)->UseRealTime();
  benchmark::RegisterBenchmark("far/ahead", read_far, std::uint64_t{1} << 20)->UseRealTime();
  using goal = bench::goal;
  const auto at_least = [](const std::string& cache, const std::string& size) {
    return goal{cache + "/uring/" + size, cache + "/threads/" + size, goal::kind::speed_at_least,
                0.9};
  };
  return bench::run(argc, argv, "store_bench",
                    {at_least("direct", "4KiB"),
                     at_least("direct", "112KiB"),
                     at_least("cold", "4KiB"),
                     at_least("cold", "112KiB"),
                     {"far/ahead", "far/hints", goal::kind::speed_at_least, 2}});
}
