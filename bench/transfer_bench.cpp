// SPDX-License-Identifier: BSL-1.0
// Measures the cost that the transfer adds to a copy on the CPU device, for batches from 64 bytes
// to 64 MiB and 1 to 4 device slots. Nothing is read or computed, so only copying and delivering
// remain.
//
//   build/bench/bench/penstock_transfer_bench [--json FILE]
//
// Floors, with as many slabs of the same size as the flow has:
//   memcpy          a plain loop on the consumer's thread
//   copying_thread  a thread that copies ahead of the consumer, written by hand
// Measured:
//   feed            a transfer of a source whose batches are always ready
//   loader          only a loader, with one worker, of a dataset that does nothing
//   loader_feed     a transfer of that loader
//
// The consumer is the calling thread and waits for the copy of each batch. `bytes` is the size of a
// batch, which is a single sample. Up to 64 KiB, the CPU device copies on the calling thread, so
// the feed must be compared with `memcpy`. Above 64 KiB, it must be compared with `copying_thread`.
// The counter `consumer_ns` is the processor time of the consumer thread per batch; at 64 bytes,
// this is the cost of the calls.

#include <benchmark/benchmark.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock/transfer/batch_source.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

using bytes_record = ps::record<ps::field<"bytes", std::uint8_t, ps::dyn>>;
using host_slab = ps::detail::slab<ps::cpu_device>;

constexpr std::array<std::int64_t, 6> sizes{64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
constexpr std::size_t source_slots = 3;  // as many slots as a loader of large batches has

/// Returns the source of all copies, which is created once for each size.
const std::byte* source_slab(std::size_t bytes, std::uint64_t which) {
  static std::map<std::size_t, host_slab> made;
  const auto [found, is_new] = made.try_emplace(bytes, ps::cpu_device{}, bytes * source_slots,
                                                ps::detail::memory_kind::pinned);
  if (is_new) std::memset(found->second.data(), 7, bytes * source_slots);
  return found->second.data() + which % source_slots * bytes;
}

/// An endless source whose batches are always ready.
class ready_source {
 public:
  using record_type = bytes_record;
  using device_type = ps::cpu_device;

  class batch_type {
   public:
    using record_type = ready_source::record_type;
    using device_type = ready_source::device_type;

    batch_type() = default;
    batch_type(const std::byte* data, std::uint64_t index, ps::cpu_event& drained) noexcept
        : data_(data), info_{0, index, 1, 1}, drained_(&drained) {}
    batch_type(batch_type&& other) noexcept { *this = std::move(other); }
    batch_type& operator=(batch_type&& other) noexcept {
      data_ = std::exchange(other.data_, nullptr);
      info_ = other.info_;
      drained_ = other.drained_;
      return *this;
    }

    explicit operator bool() const noexcept { return data_ != nullptr; }
    [[nodiscard]] const std::byte* data() const noexcept { return data_; }
    [[nodiscard]] const ps::batch_info& info() const noexcept { return info_; }
    /// Records the release like a loader, but never refills the memory.
    void release_after(ps::cpu_stream_ref stream) {
      ps::cpu_device{}.record(*drained_, stream);
      data_ = nullptr;
    }

   private:
    const std::byte* data_ = nullptr;
    ps::batch_info info_;
    ps::cpu_event* drained_ = nullptr;
  };

  explicit ready_source(std::size_t bytes) : bytes_(bytes), layout_({{bytes}}, 1) {}

  [[nodiscard]] ps::cpu_device device() const noexcept { return {}; }
  [[nodiscard]] const ps::batch_layout<record_type>& layout() const noexcept { return layout_; }
  void start(const ps::batch_position&, std::uint64_t) noexcept { next_ = 0; }
  [[nodiscard]] batch_type next() {
    const std::uint64_t index = next_++;
    return {source_slab_of(index), index, drained_[index % source_slots]};
  }
  [[nodiscard]] batch_type try_next() { return next(); }
  void stop() noexcept {}

 private:
  [[nodiscard]] const std::byte* source_slab_of(std::uint64_t index) const noexcept {
    return slabs_ + index % source_slots * bytes_;
  }

  std::size_t bytes_;
  ps::batch_layout<record_type> layout_;
  const std::byte* slabs_ = source_slab(bytes_, 0);
  std::uint64_t next_ = 0;
  std::array<ps::cpu_event, source_slots> drained_;
};
static_assert(ps::batch_source<ready_source>);

/// A dataset that does not write to the memory.
struct nothing_to_read {
  using record_type = bytes_record;
  std::size_t bytes;

  [[nodiscard]] std::uint64_t size() const noexcept { return std::uint64_t{1} << 40; }
  [[nodiscard]] ps::record_extents<record_type> extents() const { return {{bytes}}; }
  void read_chunk(std::span<const std::uint64_t>, ps::batch_view<record_type>) const noexcept {}
};

double thread_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// Times one call of `next_batch()` per iteration. The first batch is delivered before the clock
/// starts, and the flow is never drained, so the same number of copies is in flight at the start
/// and at the end.
template <class NextBatch>
void measure(benchmark::State& state, std::size_t bytes, NextBatch next_batch) {
  next_batch();
  const double begin = thread_nanoseconds();
  for (auto _ : state) next_batch();
  const double spent = thread_nanoseconds() - begin;
  state.counters["consumer_ns"] = spent / static_cast<double>(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void plain_memcpy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  const host_slab to{ps::cpu_device{}, bytes * depth, ps::detail::memory_kind::device};
  const std::byte* from = source_slab(bytes, 0);
  std::uint64_t i = 0;
  measure(state, bytes, [&] {
    std::memcpy(to.data() + i % depth * bytes, from + i % source_slots * bytes, bytes);
    benchmark::ClobberMemory();
    ++i;
  });
}

void copying_thread(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  const host_slab to{ps::cpu_device{}, bytes * depth, ps::detail::memory_kind::device};
  const std::byte* from = source_slab(bytes, 0);
  ps::detail::waitable_counter copied;
  ps::detail::waitable_counter released;  // both sides wait in the same way as the library
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
  measure(state, bytes, [&] {
    if (taken != 0) released.advance();
    copied.wait([&](std::uint32_t now) { return now != taken; });
    ++taken;
  });
  stop = true;
  released.advance();
  copier.join();
}

void feed(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  ps::transfer feed{ready_source{bytes}, ps::cpu_device{}.inline_stream(), {.depth = depth}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  measure(state, bytes, [&] { ++it; });
}

auto loader_of(std::size_t bytes) {
  return ps::loader{nothing_to_read{bytes}, ps::sequential{}, {.batch_size = 1, .workers = 1}};
}

void loader_alone(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  auto loader = loader_of(bytes);
  auto range = loader.epoch(0);
  auto it = range.begin();
  measure(state, bytes, [&] { ++it; });
}

void loader_feed(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto depth = static_cast<std::size_t>(state.range(1));
  auto loader = loader_of(bytes);
  ps::transfer feed{loader, loader.device().inline_stream(), {.depth = depth}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  measure(state, bytes, [&] { ++it; });
}

using bench::named;
using enum bench::goal::kind;

bench::goal over(const std::string& what, const std::string& floor, std::size_t size,
                 std::int64_t depth = 3) {
  const std::int64_t bytes = sizes[size];
  return {named(what, {{"bytes", bytes}, {"depth", depth}}),
          named(floor, {{"bytes", bytes}, {"depth", depth}}), time_at_most, 0};
}

template <std::size_t... I>
int run_with_goals(int argc, char** argv, std::index_sequence<I...>) {
  return bench::run(argc, argv, "transfer_bench",
                    {over("feed", "memcpy", I)..., over("feed", "copying_thread", I)...,
                     over("loader_feed", "copying_thread", I)...});
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, void (*run)(benchmark::State&),
                      const std::vector<std::int64_t>& depths) {
    auto* made =
        benchmark::RegisterBenchmark(name, run)->UseRealTime()->Unit(benchmark::kMicrosecond);
    if (depths.empty()) {
      made->ArgName("bytes");
      for (const auto bytes : sizes) made->Arg(bytes);
    } else {
      made->ArgNames({"bytes", "depth"})->ArgsProduct({{sizes.begin(), sizes.end()}, depths});
    }
  };
  add("memcpy", plain_memcpy, {1, 2, 3, 4});
  add("copying_thread", copying_thread, {1, 2, 3, 4});
  add("feed", feed, {1, 2, 3, 4});
  add("loader", loader_alone, {});
  add("loader_feed", loader_feed, {3});

  // Sets defaults before the caller's options, because there are 84 rows.
  std::vector<char*> words{argv, argv + argc};
  std::string few{"--benchmark_repetitions=5"};
  std::string brief{"--benchmark_min_time=0.05"};
  words.insert(words.begin() + 1, {few.data(), brief.data()});
  return run_with_goals(static_cast<int>(words.size()), words.data(),
                        std::make_index_sequence<sizes.size()>{});
}
