// SPDX-License-Identifier: BSL-1.0
// Measures the cost that the transfer adds to a copy on the CPU device, for batches from 64 bytes
// to 64 MiB and three device slots. Nothing is read or computed, so only copying and delivering
// remain.
//
//   build/bench/bench/penstock_transfer_bench [--json FILE]
//
// The floors, which use as many slabs as the flow, of the same size:
//   memcpy          a plain loop on the consumer's thread
//   copying_thread  a thread that copies ahead of the consumer, written by hand
// Measured:
//   feed            a transfer of a source whose batches are always ready
//   loader_feed     a transfer of a loader, with one worker, of a dataset that does nothing
//
// The consumer is the calling thread and waits for the copy of each batch. `bytes` is the size of a
// batch, which is a single sample. Up to 64 KiB, the CPU device copies on the calling thread, so
// the feed must be compared with `memcpy`. Above 64 KiB, it must be compared with `copying_thread`.

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>

#include "support/program.hpp"
#include "support/ready_source.hpp"

namespace {

namespace ps = penstock;

using bytes_record = ps::record<ps::field<"bytes", std::uint8_t, ps::dyn>>;
using host_slab = ps::detail::slab<ps::cpu_device>;
using ready_bytes = bench::ready_source<bytes_record, ps::cpu_device>;

constexpr std::size_t source_slots = 3;  // the number of slots of a loader with large batches
constexpr std::size_t depth = 3;

/// Returns the memory from which all copies of a size are made. Allocates memory once for each
/// size.
const std::byte* source_slab(std::size_t bytes) {
  static std::map<std::size_t, host_slab> made;
  const auto [found, is_new] = made.try_emplace(bytes, ps::cpu_device{}, bytes * source_slots,
                                                ps::detail::memory_kind::pinned);
  if (is_new) std::memset(found->second.data(), 7, bytes * source_slots);
  return found->second.data();
}

/// A dataset whose reads leave the memory of the batch unchanged.
struct nothing_to_read {
  using record_type = bytes_record;
  std::size_t bytes;

  [[nodiscard]] std::uint64_t size() const noexcept { return std::uint64_t{1} << 40; }
  [[nodiscard]] ps::record_extents<record_type> extents() const { return {{bytes}}; }
  void read_chunk(std::span<const std::uint64_t>, ps::batch_view<record_type>) const noexcept {}
};

/// Times one call of `next_batch()` per iteration. The first batch is delivered before the clock
/// starts, and the flow is never drained, so the same number of copies is in flight at the start
/// and at the end.
template <class NextBatch>
void measure(benchmark::State& state, NextBatch next_batch) {
  next_batch();
  for (auto _ : state) next_batch();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void plain_memcpy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const host_slab to{ps::cpu_device{}, bytes * depth, ps::detail::memory_kind::device};
  const std::byte* from = source_slab(bytes);
  std::uint64_t i = 0;
  measure(state, [&] {
    std::memcpy(to.data() + i % depth * bytes, from + i % source_slots * bytes, bytes);
    benchmark::ClobberMemory();
    ++i;
  });
}

void copying_thread(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const host_slab to{ps::cpu_device{}, bytes * depth, ps::detail::memory_kind::device};
  const std::byte* from = source_slab(bytes);
  ps::detail::waitable_counter copied;
  ps::detail::waitable_counter released;  // both threads wait in the same way as the library
  std::atomic<bool> stop{false};
  std::thread copier{[&] {
    for (std::uint32_t i = 0;; ++i) {
      released.wait([&](std::uint32_t now) { return i - now < depth || stop.load(); });
      if (stop.load()) return;
      std::memcpy(to.data() + i % depth * bytes, from + i % source_slots * bytes, bytes);
      copied.advance();
    }
  }};
  std::uint32_t taken = 0;
  measure(state, [&] {
    if (taken != 0) released.advance();
    copied.wait([&](std::uint32_t now) { return now != taken; });
    ++taken;
  });
  stop = true;
  released.advance();
  copier.join();
}

template <class Feed>
void measure_feed(benchmark::State& state, Feed feed) {
  auto range = feed.epoch(0);
  auto it = range.begin();
  measure(state, [&] { ++it; });
}

void feed(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const ps::cpu_device device;
  ready_bytes source{device, {{{bytes}}, 1}, source_slab(bytes),
                     bytes,  source_slots,   std::numeric_limits<std::uint64_t>::max()};
  measure_feed(state, ps::transfer{source, device.inline_stream(), {.depth = depth}});
}

void loader_feed(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  ps::loader loader{nothing_to_read{bytes}, ps::sequential{}, {.batch_size = 1, .workers = 1}};
  measure_feed(state, ps::transfer{loader, loader.device().inline_stream(), {.depth = depth}});
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<bench::goal> goals;
  for (const std::int64_t bytes : {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}) {
    const auto add = [bytes](const char* name, void (*run)(benchmark::State&)) {
      benchmark::RegisterBenchmark(name, run)
          ->ArgName("bytes")
          ->Arg(bytes)
          ->UseRealTime()
          ->MinTime(0.05)
          ->Unit(benchmark::kMicrosecond);
    };
    add("memcpy", plain_memcpy);
    add("copying_thread", copying_thread);
    add("feed", feed);
    add("loader_feed", loader_feed);
    const auto name = [bytes](const char* of) { return bench::named(of, {{"bytes", bytes}}); };
    const char* const floor = bytes <= 64 << 10 ? "memcpy" : "copying_thread";
    for (const char* of : {"feed", "loader_feed"}) {
      goals.push_back({name(of), name(floor), bench::goal::kind::time_at_most, 0});
    }
  }
  return bench::run(argc, argv, "transfer_bench", goals, 5);
}
