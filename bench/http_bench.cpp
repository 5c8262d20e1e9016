// SPDX-License-Identifier: BSL-1.0
// Measures the achieved fraction of a link's bandwidth if the first byte of each response has a
// latency of 30 ms.
//
//   build/bench/bench/penstock_http_bench
//
// link/<rate>           the floor: the bytes of the blobs divided by the link's rate, in MB/s
// read_many/<rate>      two threads read the blobs with `http_store::read_many`, 256 ranges per
//                       call
// blobs/<rate>/<n>      an epoch of a loader with two workers over `stored_blobs` over
//                       `http_store`, with 64 MiB of `lookahead_bytes` and n `.threads`, each with
//                       16
//                       blobs in flight
// second/<tier>         eight epochs over a `cached_store` over `http_store`, after a first epoch
//                       has stored all blocks in memory, or on the disk and thus in the page cache
// local                 its floor: as many epochs over a `local_store` with the same bytes in the
//                       page cache
// cold/disk, cold/local two such epochs each, with the files evicted from the page cache first
//
// Each blob is 112 KiB. The blobs are read in shuffled order from an object of 256 MiB, which takes
// two seconds to transfer at the link's rate. The server runs in this process, with a thread per
// connection. It waits 30 ms, and then until the link has capacity for the response. Unlike a
// remote server, it uses the cores of this machine.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/store/cache/cached_store.hpp>
#include <penstock_ext/store/http/http_store.hpp>
#include <penstock_ext/store/local_store.hpp>

#include "ext/remote/range_server.hpp"
#include "support/blob_samples.hpp"
#include "support/program.hpp"
#include "support/temp_dir.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t blob_bytes = std::size_t{112} << 10;
constexpr std::size_t object_bytes = std::size_t{256} << 20;
constexpr milliseconds latency{30};

/// A simulated link with a rate in bytes per second that transmits one response at a time.
class far_link {
 public:
  explicit far_link(double bytes_per_second) : rate_(bytes_per_second) {}

  /// Waits until the link has transmitted `bytes` bytes.
  void carry(std::size_t bytes) {
    clock_type::time_point end;
    {
      const std::lock_guard lock{mutex_};
      const std::chrono::duration<double> takes{static_cast<double>(bytes) / rate_};
      free_ = std::max(free_, clock_type::now()) +
              std::chrono::duration_cast<clock_type::duration>(takes);
      end = free_;
    }
    std::this_thread::sleep_until(end);
  }

 private:
  double rate_;
  std::mutex mutex_;
  clock_type::time_point free_{};
};

/// A server of a single object behind a simulated link.
class far_server {
 public:
  explicit far_server(double bytes_per_second)
      : link_(bytes_per_second), server_([this](const test::http_request& request) {
          std::this_thread::sleep_for(latency);
          const auto [begin, end] = request.range(content().size());
          if (request.method != "HEAD") link_.carry(end - begin);
          return test::ranged(request, content());
        }) {}

  [[nodiscard]] std::string url() const { return server_.url(); }
  /// Returns the contents of the object.
  [[nodiscard]] static const std::string& content() {
    static const std::string bytes = test::some_bytes(object_bytes);
    return bytes;
  }

 private:
  far_link link_;
  test::range_server server_;
};

std::vector<ps::stored_blob> blobs_for(double bytes_per_second) {
  const auto count = static_cast<std::size_t>(2 * bytes_per_second / blob_bytes);
  std::vector<ps::stored_blob> list;
  std::mt19937_64 random{1};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t place = random() % (object_bytes / blob_bytes);
    list.push_back({"data", place * blob_bytes, blob_bytes});
  }
  return list;
}

void floor_of_link(benchmark::State& state, double rate) {
  const auto count = blobs_for(rate).size();
  for (auto _ : state) {
    state.SetIterationTime(static_cast<double>(count * blob_bytes) / rate);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}

template <class Work>
void timed(benchmark::State& state, std::size_t count, const Work& work) {
  for (auto _ : state) {
    const auto start = clock_type::now();
    work();
    state.SetIterationTime(std::chrono::duration<double>(clock_type::now() - start).count());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}

void read_many(benchmark::State& state, double rate) {
  constexpr std::size_t at_once = 256;
  const far_server server{rate};
  const ps::http_store store{server.url()};
  const auto list = blobs_for(rate);
  const auto half = [&](std::size_t first) {
    std::vector<std::byte> memory(at_once * blob_bytes);
    for (std::size_t i = first; i < list.size(); i += 2 * at_once) {
      std::vector<ps::byte_range> ranges;
      for (std::size_t k = i; k < std::min(list.size(), i + at_once); ++k) {
        ranges.push_back({list[k].object, list[k].offset,
                          std::span{memory}.subspan((k - i) * blob_bytes, blob_bytes)});
      }
      store.read_many(ranges);
    }
  };
  timed(state, list.size(), [&] {
    std::thread other{half, at_once};
    half(0);
    other.join();
  });
}

constexpr std::size_t later_epochs =
    8;  // repeated, because a single epoch takes only 40 ms and may be disturbed by other work
constexpr std::size_t cold_epochs = 2;

// Removes the files in `folder` from the page cache, except data not yet written to disk.
void drop_from_memory(const std::string& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder}) {
    if (!entry.is_regular_file()) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

// Selects the timed epochs: the first epoch, or all later epochs. If `cold` is set, it is the
// folder of the blobs' files, which are evicted from the page cache before each epoch.
struct epochs {
  bool are_later = false;
  std::string cold = {};
};

template <class Store>
void read_epochs(benchmark::State& state, const ps::stored_blobs<Store&>& blobs,
                 const epochs& which) {
  const bench::blob_samples<const ps::stored_blobs<Store&>&, blob_bytes> data{blobs};
  ps::loader loader{data,
                    ps::shuffled{.seed = 1},
                    {.batch_size = 16, .workers = 2, .lookahead_bytes = std::uint64_t{64} << 20}};
  std::uint64_t epoch = 0;
  const auto run = [&] {
    for (auto& batch : loader.epoch(epoch)) benchmark::DoNotOptimize(batch.size());
    ++epoch;
  };
  if (!which.are_later) return timed(state, blobs.size(), run);
  run();
  ::sync();  // ensures that the system does not write while epochs are read
  if (which.cold.empty()) {
    return timed(state, later_epochs * blobs.size(), [&] {
      for (std::size_t i = 0; i < later_epochs; ++i) run();
    });
  }
  for (auto _ : state) {
    double seconds = 0;
    for (std::size_t i = 0; i < cold_epochs; ++i) {
      drop_from_memory(which.cold);
      const auto start = clock_type::now();
      run();
      seconds += std::chrono::duration<double>(clock_type::now() - start).count();
    }
    state.SetIterationTime(seconds);
  }
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(cold_epochs * blobs.size()));
}

void read_blobs(benchmark::State& state, double rate, std::size_t threads) {
  const far_server server{rate};
  const ps::http_store store{server.url()};
  const ps::stored_blobs<const ps::http_store&> blobs{
      store, blobs_for(rate), {.read_ahead = std::uint64_t{64} << 20, .threads = threads}};
  read_epochs(state, blobs, {});
}

constexpr double no_link = 1e12;  // bytes per second, so fast that nothing waits

enum class tier { memory, disk, cold_disk };

void read_second(benchmark::State& state, tier from) {
  const test::temp_dir folder;
  const far_server server{no_link};
  const ps::http_store store{server.url()};
  ps::cached_store_options keeps{.memory_bytes = 2 * object_bytes};
  if (from != tier::memory) {
    keeps = {.block_bytes = blob_bytes, .memory_bytes = 0, .folder = folder.path("cache")};
  }
  const ps::cached_store<const ps::http_store&> cache{store, keeps};
  const ps::stored_blobs<decltype((cache))> blobs{cache, blobs_for(1e8)};
  read_epochs(state, blobs, {true, from == tier::cold_disk ? keeps.folder : ""});
}

void read_local(benchmark::State& state, bool is_cold) {
  const test::temp_dir folder;
  std::ofstream{folder.path("data"), std::ios::binary} << far_server::content();
  const ps::local_store store{folder.path("")};
  const ps::stored_blobs<const ps::local_store&> blobs{store, blobs_for(1e8)};
  read_epochs(state, blobs, {true, is_cold ? folder.path("") : ""});
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<bench::goal> goals;
  const auto add = [&](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(name.c_str(), run)
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  };
  for (const int megabytes : {25, 50, 100, 200}) {
    const double rate = 1e6 * megabytes;
    const std::string at = '/' + std::to_string(megabytes);
    add("link" + at, [rate](benchmark::State& state) { floor_of_link(state, rate); });
    add("read_many" + at, [rate](benchmark::State& state) { read_many(state, rate); });
    goals.push_back({"read_many" + at, "link" + at, bench::goal::kind::speed_at_least, 0.95});
    for (const std::size_t threads : {std::size_t{2}, ps::stored_blobs_options{}.threads}) {
      const std::string name = "blobs" + at + '/' + std::to_string(threads);
      add(name, [rate, threads](benchmark::State& state) { read_blobs(state, rate, threads); });
      goals.push_back({name, "link" + at, bench::goal::kind::speed_at_least, 0.95});
    }
  }
  const auto later = [&](const std::string& name, tier from, const std::string& floor) {
    add(name, [from](benchmark::State& state) { read_second(state, from); });
    goals.push_back({name, floor, bench::goal::kind::speed_at_least, 0.95});
  };
  add("local", [](benchmark::State& state) { read_local(state, false); });
  later("second/memory", tier::memory, "local");
  later("second/disk", tier::disk, "local");
  add("cold/local", [](benchmark::State& state) { read_local(state, true); });
  later("cold/disk", tier::cold_disk, "cold/local");
  std::vector<char*> words{argv, argv + argc};
  std::string few{"--benchmark_repetitions=3"};  // each repetition takes two seconds
  words.insert(words.begin() + 1, few.data());
  return bench::run(static_cast<int>(words.size()), words.data(), "http_bench", goals);
}
