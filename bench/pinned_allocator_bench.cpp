// SPDX-License-Identifier: BSL-1.0
// Measures pinned memory of the CPU device: the cost of allocation and deallocation, with and
// without a pool, and of writing.
//
//   build/bench/bench/penstock_pinned_allocator_bench
//
// "Pinned" here means anonymous pages of the process. Each page is touched before the call returns;
// pages are huge starting at 2 MiB if the system provides them; mlock locks them into RAM as far as
// `ulimit -l` permits. The counter `locked` is 1 if mlock succeeded. For a CPU, this memory is
// ordinary memory. For a GPU, the driver allocates pinned memory, which is expensive; bench/cuda
// measures this cost.
//
// take: an iteration allocates `bytes`, writes once to each page and frees the memory. The floor
// does the same with bare system calls: map, populate, lock, unmap. Peer: std::allocator, which
// caches freed memory below some threshold, so that a second allocation of the same size causes no
// page fault. A pool over pinned memory provides the same benefit.
//
// pool: an iteration allocates 16 blocks of `bytes` from a standard library resource, writes to
// each block and frees them. The resource uses pinned memory or, as the floor, new and delete.
//
// write: memcpy of `bytes` to pinned memory and, as the floor, to ordinary memory. Both have been
// written to before, so their pages are resident.

#include <benchmark/benchmark.h>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <vector>

#include <penstock/device/cpu_device.hpp>
#include <penstock/memory/pinned_allocator.hpp>
#include <penstock/memory/pinned_resource.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;

// Writes to each page once, so that all pages are resident.
void touch(void* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += page) static_cast<volatile char*>(data)[at] = 1;
}

std::size_t bytes_of(const benchmark::State& state) {
  return static_cast<std::size_t>(state.range(0));
}

// ---- allocation and deallocation

// The fastest combination of bare system calls.
struct bare_pages {
  static void* take(std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc{};
    if (bytes >= huge_page) ::madvise(data, bytes, MADV_HUGEPAGE);
#if defined(MADV_POPULATE_WRITE)
    if (::madvise(data, bytes, MADV_POPULATE_WRITE) != 0)
#endif
      touch(data, bytes);
    locked = ::mlock(data, bytes) == 0;
    return data;
  }
  static void release(void* data, std::size_t bytes) { ::munmap(data, bytes); }
  static inline bool locked = false;
};

template <class Allocator>
struct by_allocator {
  static void* take(std::size_t bytes) { return Allocator{}.allocate(bytes); }
  static void release(void* data, std::size_t bytes) {
    Allocator{}.deallocate(static_cast<std::byte*>(data), bytes);
  }
};

template <class Way>
void take(benchmark::State& state) {
  const std::size_t bytes = bytes_of(state);
  for (auto _ : state) {
    void* data = Way::take(bytes);
    touch(data, bytes);
    Way::release(data, bytes);
  }
  state.SetItemsProcessed(state.iterations());
  if constexpr (requires { Way::locked; }) state.counters["locked"] = Way::locked ? 1 : 0;
}

// ---- pools

constexpr std::size_t blocks = 16;

void take_blocks(benchmark::State& state, std::pmr::memory_resource& from) {
  const std::size_t bytes = bytes_of(state);
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

// ---- writing

template <class Allocator>
void write(benchmark::State& state) {
  const std::size_t bytes = bytes_of(state);
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte, Allocator> to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

}  // namespace

int main(int argc, char** argv) {
  using enum bench::goal::kind;
  using pinned = ps::pinned_allocator<std::byte>;
  using ordinary = std::allocator<std::byte>;
  constexpr std::int64_t kibi = 1024;
  constexpr std::int64_t mebi = 1024 * kibi;
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
  for (const std::int64_t bytes : {4 * kibi, 64 * kibi, mebi, 16 * mebi, 256 * mebi}) {
    const auto name = add("take/pinned_allocator", bytes, take<by_allocator<pinned>>);
    const auto floor = add("take/floor_system_calls", bytes, take<bare_pages>);
    goals.push_back({name, floor, time_at_most, 1.1});
    goals.push_back(
        {name, add("take/std_allocator", bytes, take<by_allocator<ordinary>>), time_at_most});
  }
  for (const std::int64_t bytes : {4 * kibi, 64 * kibi, mebi}) {
    const auto floor = add("pool/new_delete", bytes, pool_new_delete);
    goals.push_back({add("pool/pinned", bytes, pool_pinned), floor, time_at_most, 1.05});
  }
  for (const std::int64_t bytes : {64 * kibi, 16 * mebi, 256 * mebi}) {
    const auto floor = add("write/floor_ordinary", bytes, write<ordinary>);
    goals.push_back({add("write/pinned", bytes, write<pinned>), floor, time_at_most, 1.05});
  }
  return bench::run(argc, argv, "pinned_allocator_bench", goals);
}
