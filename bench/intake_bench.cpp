// SPDX-License-Identifier: BSL-1.0
// Measures the cost of pushing frames of 64 bytes through an intake, on the CPU device, whose
// copies run on the calling thread.
//
//   build/bench/bench/penstock_intake_bench
//
// push: an iteration pushes 20,000 frames from `producers` threads. The calling thread receives the
// frames and copies each to the device. Items per second are frames per second. hand_written is the
// usual hand-written ring: a mutex, deques of free and of filled buffers, two condition variables,
// and two events per buffer. Both have eight slots.

#include <benchmark/benchmark.h>

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/intake/intake.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t words = 8;
constexpr std::size_t bytes = words * sizeof(std::uint64_t);
constexpr std::size_t slots = 8;
constexpr std::uint64_t frames_each_turn = 20'000;

using frame = ps::record<ps::field<"words", std::uint64_t, words>>;

/// Device memory for one frame per slot.
using device_frames = std::array<std::array<std::uint64_t, words>, slots>;

/// A typical hand-written ring with the functions of `pushed`: `push(word)` commits a frame of equal
/// words. `take(use)` receives a frame, calls `use` with its word, and copies the frame to the
/// device.
class hand_written {
 public:
  hand_written() {
    for (std::size_t i = 0; i < slots; ++i) free_.push_back(i);
  }

  void push(std::uint64_t word) {
    std::unique_lock lock{mutex_};
    room_.wait(lock, [&] { return !free_.empty(); });
    const std::size_t at = free_.front();
    free_.pop_front();
    lock.unlock();
    buffer& to = buffers_[at];
    device_.synchronize(to.copied);
    to.data.fill(word);
    lock.lock();
    filled_.push_back(at);
    lock.unlock();
    changed_.notify_one();
  }

  template <class Use>
  void take(Use use) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return !filled_.empty(); });
    const std::size_t at = filled_.front();
    filled_.pop_front();
    lock.unlock();
    buffer& from = buffers_[at];
    use(from.data[0]);
    device_.wait(stream_, from.computed);
    device_.copy_async(to_[at].data(), from.data.data(), bytes, stream_);
    device_.record(from.copied, stream_);
    benchmark::DoNotOptimize(to_[at]);
    device_.record(from.computed, stream_);
    lock.lock();
    free_.push_back(at);
    lock.unlock();
    room_.notify_one();
  }

 private:
  struct alignas(64) buffer {
    std::array<std::uint64_t, words> data;
    ps::cpu_event copied;    // end of the copy out of `data`
    ps::cpu_event computed;  // end of the step that uses the copy
  };

  ps::cpu_device device_;
  ps::cpu_stream_ref stream_ = device_.inline_stream();
  std::array<buffer, slots> buffers_{};
  device_frames to_{};
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable changed_;
  std::deque<std::size_t> free_;
  std::deque<std::size_t> filled_;
};

/// An intake whose consumer copies the frames.
class pushed {
 public:
  void push(std::uint64_t word) {
    auto slot = in_.acquire();
    for (auto& one : ps::get<"words">(slot).flat()) one = word;
    slot.commit();
  }

  template <class Use>
  void take(Use use) {
    auto batch = in_.next();
    use(ps::get<"words">(batch)(0, 0));
    auto& to = to_[batch.slot()];
    in_.device().copy_async(to.data(), batch.data(), bytes, stream_);
    benchmark::DoNotOptimize(to);
    batch.release_after(stream_);
  }

 private:
  ps::intake<frame> in_{ps::cpu_device{}, {.slot_count = slots}};
  ps::cpu_stream_ref stream_ = in_.device().inline_stream();
  device_frames to_{};
};

template <class Ring>
void push(benchmark::State& state) {
  Ring ring;
  const auto producers = static_cast<std::uint64_t>(state.range(0));
  for (auto _ : state) {
    std::vector<std::thread> threads;
    for (std::uint64_t first = 0; first < producers; ++first) {
      threads.emplace_back([&ring, first, producers] {
        for (auto i = first; i < frames_each_turn; i += producers) ring.push(i);
      });
    }
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < frames_each_turn; ++i) {
      ring.take([&sum](std::uint64_t word) { sum += word; });
    }
    for (std::thread& thread : threads) thread.join();
    if (sum != frames_each_turn * (frames_each_turn - 1) / 2) state.SkipWithError("frames differ");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(frames_each_turn));
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [name, run] : {std::pair{"push/intake", &push<pushed>},
                                  std::pair{"push/hand_written", &push<hand_written>}}) {
    benchmark::RegisterBenchmark(name, run)
        ->ArgName("producers")
        ->Arg(1)
        ->Arg(4)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  using enum bench::goal::kind;
  return bench::run(
      argc, argv, "intake_bench",
      {{"push/intake/producers:1", "push/hand_written/producers:1", speed_at_least, 1.0},
       {"push/intake/producers:4", "push/hand_written/producers:4", speed_at_least, 2.0}});
}
