// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/observe/trace_recorder.hpp>
#include <penstock/penstock.hpp>

#include "backend.hpp"
#include "network.hpp"

namespace example {

namespace ps = penstock;

struct loop_options {
  std::size_t epochs = 5;
  std::size_t batch = 64;
  std::size_t workers = 1;
  std::uint64_t seed = 1;
};

/// The network that the loops train one after another, and the loss of each step.
template <class Backend>
class training {
 public:
  using device_type = typename Backend::device_type;

  training(const Backend& backend, const loop_options& how, std::size_t samples)
      : device(backend.device()),
        stream(backend.stream()),
        network_(backend, how.batch, how.seed),
        graphs_(device),
        losses_(device, how.epochs * ((samples + how.batch - 1) / how.batch)) {}

  /// Enqueues a step on a batch of a feed. On a GPU, the step is captured once for each combination
  /// of slot and batch size, and replayed with a single launch.
  template <class Batch>
  void step(const Batch& batch) {
    graphs_.launch(batch, stream, [&](auto) { compute(batch); });
    ++steps_;
  }
  /// Enqueues a step on a batch in the only buffer of a loop. On a GPU, the step is captured once
  /// for each batch size.
  template <class Record>
  void step(const ps::const_batch_view<Record>& batch) {
    graphs_.launch(0, batch.size(), stream, [&](auto) { compute(batch); });
    ++steps_;
  }
  /// Restores the initial parameters. Waits for the stream. The next loop may use other buffers.
  void restart() {
    network_.restart();
    graphs_.clear();
    steps_ = 0;
  }

  [[nodiscard]] network<Backend>& net() { return network_; }
  /// Returns the losses of all steps, read from the device at once. Waits for the stream.
  [[nodiscard]] std::vector<float> losses() const {
    std::vector<float> copy(steps_);
    losses_.download(copy, stream);
    return copy;
  }

  const device_type device;
  const typename device_type::stream_ref stream;

 private:
  template <class Batch>
  void compute(const Batch& batch) const {
    network_.step(ps::get<"image">(batch).data(), ps::get<"label">(batch).data(), batch.size(),
                  losses_.data());
  }

  network<Backend> network_;
  typename Backend::step_graphs graphs_;
  device_array<float, device_type> losses_;
  std::size_t steps_ = 0;
};

/// Measures the stages of a serial loop.
class stage_clock {
 public:
  using clock = std::chrono::steady_clock;

  /// Starts the measurement and reserves memory for `stages` stages.
  void begin(std::size_t stages) {
    events_.clear();
    events_.reserve(stages);
    last_ = clock::now();
  }
  /// Attributes the time since the previous call to `stage` of the given batch.
  void end(ps::trace_stage stage, std::uint64_t epoch, std::uint64_t batch) {
    const auto now = clock::now();
    events_.push_back({.stage = stage,
                       .begin = last_.time_since_epoch(),
                       .end = now.time_since_epoch(),
                       .batch = ps::batch_position{epoch, batch}});
    last_ = now;
  }

  /// Returns the stage's median time per batch, in microseconds. A busy machine affects the median
  /// less than the mean.
  [[nodiscard]] double median(ps::trace_stage stage) const {
    std::vector<std::chrono::nanoseconds> times;
    for (const auto& event : events_) {
      if (event.stage == stage) times.push_back(event.end - event.begin);
    }
    if (times.empty()) return 0;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return std::chrono::duration<double, std::micro>(*middle).count();
  }
  [[nodiscard]] const std::vector<ps::trace_event>& events() const { return events_; }

 private:
  clock::time_point last_;
  std::vector<ps::trace_event> events_;
};

}  // namespace example
