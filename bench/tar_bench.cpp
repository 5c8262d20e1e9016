// SPDX-License-Identifier: BSL-1.0
// Measures the cost of tar shards on a single core, from the page cache.
//
//   build/bench/bench/penstock_tar_bench
//
// list/headers  opens an archive of 20,000 samples with two files, an image and a label, and reads
//               all headers; items are files. `small` has images of 1 KiB, `large` of 64 KiB
// list/index    the same archive with its index file
// read/*        at least a million bytes of blobs and their labels, in sequence (`sequential`) and
//               in the order of `shuffled`; items are samples

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/order/sampler.hpp>
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t samples = 20'000;

// Returns a tar header in POSIX format.
std::string header(const std::string& name, std::size_t size) {
  std::string block(512, '\0');
  name.copy(block.data(), 100);
  std::snprintf(block.data() + 124, 12, "%011zo", size);
  block[156] = '0';
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  std::memset(block.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(block.data() + 148, 8, "%06o", sum);
  return block;
}

// An archive whose images are holes in the file. The destructor removes the archive.
class archive {
 public:
  explicit archive(std::size_t image) {
    std::string name = (std::filesystem::temp_directory_path() / "penstock-XXXXXX").string();
    folder_ = ::mkdtemp(name.data()) == nullptr ? throw std::runtime_error("mkdtemp") : name;
    const int file = ::open(path().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    off_t at = 0;
    for (std::size_t i = 0; i < samples; ++i) {
      char key[32];
      std::snprintf(key, sizeof key, "n%04zu/%07zu", i % 1000, i);
      const std::string first = header(key + std::string{".jpg"}, image);
      std::string second = header(key + std::string{".cls"}, 3) + std::to_string(100 + i % 900);
      second.resize(1024);
      const auto end = at + 512 + static_cast<off_t>((image + 511) / 512 * 512);
      if (::pwrite(file, first.data(), first.size(), at) < 0 ||
          ::pwrite(file, second.data(), second.size(), end) < 0) {
        throw std::runtime_error(path());
      }
      at = end + 1024;
    }
    if (::ftruncate(file, at + 1024) != 0) throw std::runtime_error(path());
    ::close(file);
  }
  archive(const archive&) = delete;
  archive& operator=(const archive&) = delete;
  ~archive() { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return folder_ + "/shard.tar"; }

 private:
  std::string folder_;
};

void list(benchmark::State& state, const archive& shard, ps::shard_index index) {
  for (auto _ : state) {
    const ps::tar_shards shards{shard.path(), {.index = index}};
    if (shards.size() != samples || !shards.index_problems().empty()) std::abort();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(2 * samples));
}

void read_samples(benchmark::State& state, const archive& shard, bool is_shuffled) {
  const ps::tar_shards shards{shard.path()};
  const auto order = ps::shuffled{.seed = 1}.order(samples, 0);
  std::vector<std::uint64_t> indices(samples);
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  if (is_shuffled) order.fill(0, indices);
  ps::blob_buffer buffer;
  std::size_t next = 0;
  for (auto _ : state) {
    const std::uint64_t index = indices[next];
    next = next + 1 == samples ? 0 : next + 1;
    benchmark::DoNotOptimize(shards.bytes(index, buffer).data());
    benchmark::DoNotOptimize(shards.label(index));
  }
  state.SetItemsProcessed(state.iterations());
}

}  // namespace

int main(int argc, char** argv) {
  const archive small_ones{1024};
  const archive large_ones{65536};
  benchmark::RegisterBenchmark("list/headers/small", list, std::cref(small_ones),
                               ps::shard_index::ignore);
  benchmark::RegisterBenchmark("list/headers/large", list, std::cref(large_ones),
                               ps::shard_index::ignore);
  benchmark::RegisterBenchmark("list/index", list, std::cref(large_ones), ps::shard_index::keep);
  benchmark::RegisterBenchmark("read/sequential", read_samples, std::cref(large_ones), false);
  benchmark::RegisterBenchmark("read/shuffled", read_samples, std::cref(large_ones), true);
  return bench::run(argc, argv, "tar_bench", {{"read/shuffled", "read/sequential"}});
}
