// SPDX-License-Identifier: BSL-1.0
// Several GPUs in one process. Each GPU has its own thread, stream, loader and transfer, and its
// own share of the dataset. The program needs the CUDA runtime but not nvcc, because the "step"
// only copies the labels back.
#include <penstock/cuda.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

namespace ps = penstock;

struct squares {  // sample i is i * i
  using record_type = ps::record<ps::field<"value", std::uint64_t>>;
  std::uint64_t size() const { return 10'000; }
  void read(std::uint64_t i, ps::sample<record_type> out) const { ps::get<"value">(out) = i * i; }
};

// Runs one epoch of share `rank` of `world` on device `rank`. Returns the sum of all values.
std::uint64_t chunk_per_worker(int rank, int world) {
  const ps::cuda_device device{rank};
  device.make_current();  // calls cudaSetDevice, as required before this thread launches kernels
  const auto stream = device.make_stream();

  const squares all;
  const auto share = [&](int r) {
    return all.size() * static_cast<unsigned>(r) / static_cast<unsigned>(world);
  };
  ps::loader loader{all | ps::subset(share(rank), share(rank + 1)),
                    ps::shuffled{.seed = 1},
                    device,
                    {.batch_size = 64, .workers = 2}};
  ps::transfer feed{loader, stream};

  std::vector<std::uint64_t, ps::pinned_allocator<std::uint64_t, ps::cuda_device>> back(
      share(rank + 1) - share(rank), 0,
      ps::pinned_allocator<std::uint64_t, ps::cuda_device>{device});
  std::size_t seen = 0;
  for (auto& batch : feed.epoch(0)) {
    const auto values = ps::get<"value">(batch);
    device.copy_async(back.data() + seen, values.data(), values.size() * sizeof(std::uint64_t),
                      stream);
    seen += values.size();
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  std::uint64_t sum = 0;
  for (const std::uint64_t value : back) sum += value;
  return sum;
}

int main() try {
  const int world = ps::cuda_device::count();
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(world));
  std::vector<std::exception_ptr> errors(sums.size());
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank, i = static_cast<std::size_t>(rank)] {
        try {
          sums[i] = chunk_per_worker(rank, world);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t one : sums) sum += one;
  std::printf("%d devices, sum of all values %llu\n", world, static_cast<unsigned long long>(sum));
  return sum == 333'283'335'000 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "multi_device: %s\n", error.what());
  return 1;
}
