// SPDX-License-Identifier: BSL-1.0
// Measures a standard pool over pinned memory of the CPU device, over the same pool on new and
// delete. An iteration allocates 16 blocks of `bytes`, writes to each block, and frees them.
//
//   build/bench/bench/penstock_pinned_allocator_bench
//
// On a CPU, pinned memory is anonymous pages that are touched before the call returns, and locked
// as far as `ulimit -l` permits. bench/cuda measures pinned memory of a GPU's driver.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include <penstock/device/cpu_device.hpp>
#include <penstock/memory/pinned_resource.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t blocks = 16;

void take_blocks(benchmark::State& state, std::pmr::memory_resource& from) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  void* taken[blocks];
  for (auto _ : state) {
    for (void*& block : taken) {
      block = from.allocate(bytes, 64);
      *static_cast<volatile char*>(block) = 1;
    }
    for (void* block : taken) from.deallocate(block, bytes, 64);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(blocks));
}

void pool_over(benchmark::State& state, std::pmr::memory_resource& below) {
  std::pmr::unsynchronized_pool_resource pool{
      {.max_blocks_per_chunk = blocks, .largest_required_pool_block = std::size_t{2} << 20},
      &below};
  take_blocks(state, pool);
}

void pool_pinned(benchmark::State& state) {
  ps::pinned_resource<> pinned;
  pool_over(state, pinned);
}

void pool_new_delete(benchmark::State& state) {
  pool_over(state, *std::pmr::new_delete_resource());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<bench::goal> goals;
  const auto add = [](const char* of, std::int64_t bytes, void (*run)(benchmark::State&)) {
    benchmark::RegisterBenchmark(of, run)
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond)
        ->ArgName("bytes")
        ->Arg(bytes)
        ->MinTime(0.03);
    return bench::named(of, {{"bytes", bytes}});
  };
  for (const std::int64_t bytes : {4 << 10, 64 << 10, 1 << 20}) {
    const auto floor = add("pool/new_delete", bytes, pool_new_delete);
    goals.push_back(
        {add("pool/pinned", bytes, pool_pinned), floor, bench::goal::kind::time_at_most, 1.05});
  }
  return bench::run(argc, argv, "pinned_allocator_bench", goals);
}
