// SPDX-License-Identifier: BSL-1.0
// Measures pinned memory of the CPU device: the cost of allocation and deallocation, with and
// without a pool, and of writing.
//
//   build/bench/bench/penstock_pinned_allocator_bench
//   ... --benchmark_filter=write             only the speed of the memory
//
// "Pinned" here means anonymous pages of the process. Each page is touched before the call returns;
// pages are huge starting at 2 MiB if the system provides them; mlock locks them into RAM as far as
// `ulimit -l` permits. The counter `locked` is 1 if mlock succeeded. For a CPU, this memory is
// ordinary memory. For a GPU, the driver allocates pinned memory, which is expensive; bench/cuda
// measures this cost.
//
// take: an iteration allocates `bytes`, writes once to each page and frees the memory. The floor
// does the same with bare system calls: map, populate, lock, unmap. Peers: std::allocator,
// new_delete_resource, std::aligned_alloc and oneTBB's cache_aligned_allocator. Below some
// threshold, these allocators cache freed memory, so a second allocation of the same size causes no
// page fault. A pool over pinned memory provides the same benefit.
//
// pool: an iteration allocates 16 blocks of `bytes` from a standard library resource, writes to
// each block and frees them. The resource uses pinned memory or, as the floor, new and delete.
//
// write: memcpy of `bytes` to pinned memory and, as the floor, to ordinary memory with the same
// alignment that was written before.

#include <benchmark/benchmark.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <vector>

#if defined(PENSTOCK_BENCH_HAS_TBB)
#include <oneapi/tbb/cache_aligned_allocator.h>
#endif

#include <penstock/device/cpu_device.hpp>
#include <penstock/memory/pinned_allocator.hpp>
#include <penstock/memory/pinned_resource.hpp>
#include <penstock/memory/support/slab.hpp>

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

// The best result with bare system calls.
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

struct by_aligned_alloc {
  static void* take(std::size_t bytes) {
    void* data = std::aligned_alloc(page, bytes);
    if (data == nullptr) throw std::bad_alloc{};
    return data;
  }
  static void release(void* data, std::size_t) { std::free(data); }
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

void take_resource(benchmark::State& state, std::pmr::memory_resource& from) {
  const std::size_t bytes = bytes_of(state);
  for (auto _ : state) {
    void* data = from.allocate(bytes, 64);
    touch(data, bytes);
    from.deallocate(data, bytes, 64);
  }
  state.SetItemsProcessed(state.iterations());
}

void take_pinned_resource(benchmark::State& state) {
  ps::pinned_resource<> pinned;
  take_resource(state, pinned);
  state.counters["locked"] = pinned.pageable_bytes() == 0 ? 1 : 0;
}

void take_new_delete(benchmark::State& state) {
  take_resource(state, *std::pmr::new_delete_resource());
}

template <ps::detail::memory_kind Kind>
void take_slab(benchmark::State& state) {
  const std::size_t bytes = bytes_of(state);
  bool locked = false;
  for (auto _ : state) {
    const ps::detail::slab<ps::cpu_device> made{{}, bytes, Kind};
    touch(made.data(), bytes);
    locked = made.pinned();
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["locked"] = locked ? 1 : 0;
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

// Blocks are carved from a buffer that is then reused as a whole, like the temporaries of a batch.
template <class Allocator>
void pool_monotonic(benchmark::State& state) {
  std::vector<std::byte, Allocator> buffer(blocks * (bytes_of(state) + 64));
  std::pmr::monotonic_buffer_resource carved{buffer.data(), buffer.size(),
                                             std::pmr::null_memory_resource()};
  const std::size_t bytes = bytes_of(state);
  for (auto _ : state) {
    for (std::size_t i = 0; i < blocks; ++i) {
      *static_cast<volatile char*>(carved.allocate(bytes, 64)) = 1;
    }
    carved.release();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(blocks));
}

// ---- writing

template <class Way>
void write(benchmark::State& state) {
  const std::size_t bytes = bytes_of(state);
  const std::vector<std::byte> from(bytes, std::byte{1});
  void* to = Way::take(bytes);
  std::memset(to, 0, bytes);
  for (auto _ : state) {
    std::memcpy(to, from.data(), bytes);
    benchmark::ClobberMemory();
  }
  Way::release(to, bytes);
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

#if !defined(PENSTOCK_BENCH_HAS_TBB)
void absent(benchmark::State& state) { state.SkipWithError("left out: oneTBB is not installed"); }
#endif

// ---- registration

using function = void (*)(benchmark::State&);

constexpr std::int64_t kibi = 1024;
constexpr std::int64_t mebi = 1024 * kibi;

void add(const std::string& name, function run, std::initializer_list<std::int64_t> sizes) {
  auto* made = benchmark::RegisterBenchmark(name.c_str(), run)
                   ->UseRealTime()
                   ->Unit(benchmark::kMicrosecond)
                   ->ArgName("bytes")
                   ->MinTime(0.03);
  for (const std::int64_t bytes : sizes) made->Arg(bytes);
}

void add_take(const std::string& how, function run) {
  add("take/" + how, run, {4 * kibi, 64 * kibi, mebi, 16 * mebi, 256 * mebi});
}
void add_pool(const std::string& how, function run) {
  add("pool/" + how, run, {4 * kibi, 64 * kibi, mebi});
}
void add_write(const std::string& how, function run) {
  add("write/" + how, run, {64 * kibi, 16 * mebi, 256 * mebi});
}

bench::goal at_most(const std::string& ours, const std::string& floor, std::int64_t bytes,
                    double bound = 0) {
  return {bench::named(ours, {{"bytes", bytes}}), bench::named(floor, {{"bytes", bytes}}),
          bench::goal::kind::time_at_most, bound};
}

}  // namespace

int main(int argc, char** argv) {
  using pinned = by_allocator<ps::pinned_allocator<std::byte>>;
  using ordinary = by_allocator<std::allocator<std::byte>>;
  add_take("floor_system_calls", take<bare_pages>);
  add_take("pinned_allocator", take<pinned>);
  add_take("pinned_resource", take_pinned_resource);
  add_take("slab_pinned", take_slab<ps::detail::memory_kind::pinned>);
  add_take("slab_pageable", take_slab<ps::detail::memory_kind::pageable>);
  add_take("std_allocator", take<ordinary>);
  add_take("new_delete_resource", take_new_delete);
  add_take("aligned_alloc", take<by_aligned_alloc>);
#if defined(PENSTOCK_BENCH_HAS_TBB)
  add_take("tbb_cache_aligned", take<by_allocator<tbb::cache_aligned_allocator<std::byte>>>);
#else
  add_take("tbb_cache_aligned", absent);
#endif
  add_pool("pinned", pool_pinned);
  add_pool("new_delete", pool_new_delete);
  add_pool("monotonic_pinned", pool_monotonic<ps::pinned_allocator<std::byte>>);
  add_pool("monotonic_std", pool_monotonic<std::allocator<std::byte>>);
  add_write("pinned", write<pinned>);
  add_write("floor_ordinary", write<by_aligned_alloc>);
  return bench::run(argc, argv, "pinned_allocator_bench",
                    {at_most("take/pinned_allocator", "take/floor_system_calls", 4 * kibi, 1.1),
                     at_most("take/pinned_allocator", "take/floor_system_calls", 64 * kibi, 1.1),
                     at_most("take/pinned_allocator", "take/floor_system_calls", mebi, 1.1),
                     at_most("take/pinned_allocator", "take/floor_system_calls", 16 * mebi, 1.1),
                     at_most("take/pinned_allocator", "take/floor_system_calls", 256 * mebi, 1.1),
                     at_most("take/pinned_resource", "take/pinned_allocator", 4 * kibi, 1.05),
                     at_most("take/slab_pinned", "take/floor_system_calls", 16 * mebi, 1.1),
                     at_most("take/pinned_allocator", "take/std_allocator", 64 * kibi),
                     at_most("take/pinned_allocator", "take/std_allocator", 256 * mebi),
                     at_most("take/pinned_allocator", "take/tbb_cache_aligned", 256 * mebi),
                     at_most("pool/pinned", "pool/new_delete", 4 * kibi, 1.05),
                     at_most("pool/pinned", "pool/new_delete", 64 * kibi, 1.05),
                     at_most("pool/pinned", "pool/new_delete", mebi, 1.05),
                     at_most("pool/monotonic_pinned", "pool/monotonic_std", 64 * kibi, 1.05),
                     at_most("write/pinned", "write/floor_ordinary", 64 * kibi, 1.05),
                     at_most("write/pinned", "write/floor_ordinary", 16 * mebi, 1.05),
                     at_most("write/pinned", "write/floor_ordinary", 256 * mebi, 1.05)});
}
