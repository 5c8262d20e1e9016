// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/trace_stage.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/threads/support/shared_value.hpp>

#if PENSTOCK_NVTX
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <optional>
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

#if PENSTOCK_NVTX

/// The NVTX domain `penstock` with registered stage names. The first range creates the domain. The
/// domain is never destroyed, because threads may still use it while static objects are destroyed.
/// If no profiler is attached, a call only tests a pointer.
class nvtx_domain {
 public:
  /// Begins a range of the calling thread. For a wait, `batch` is null, because the batch is not
  /// known yet.
  static void push(trace_stage stage, const batch_info* batch) noexcept {
    const nvtxEventAttributes_t attributes = attributes_of(stage, batch);
    ::nvtxDomainRangePushEx(the().domain_, &attributes);
  }
  static void pop() noexcept { ::nvtxDomainRangePop(the().domain_); }

  /// Begins a range that need not nest with the thread's other ranges. Returns the range
  /// identifier.
  static std::uint64_t start(trace_stage stage, const batch_info* batch) noexcept {
    const nvtxEventAttributes_t attributes = attributes_of(stage, batch);
    return ::nvtxDomainRangeStartEx(the().domain_, &attributes);
  }
  static void end(std::uint64_t range) noexcept { ::nvtxDomainRangeEnd(the().domain_, range); }

 private:
  nvtx_domain() noexcept : domain_(::nvtxDomainCreateA("penstock")) {
    for (std::size_t i = 0; i < registered_.size(); ++i) {
      registered_[i] =
          ::nvtxDomainRegisterStringA(domain_, name_of(static_cast<trace_stage>(i)).data());
    }
  }

  static const nvtx_domain& the() noexcept {
    static const nvtx_domain one;
    return one;
  }

  static nvtxEventAttributes_t attributes_of(trace_stage stage, const batch_info* batch) noexcept {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = the().registered_[static_cast<std::size_t>(stage)];
    if (batch != nullptr) {
      attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
      attributes.payload.ullValue = batch->batch;
    }
    return attributes;
  }

  nvtxDomainHandle_t domain_;
  std::array<nvtxStringHandle_t, static_cast<std::size_t>(trace_stage::consume) + 1> registered_{};
};

#endif

/// The state of a stopwatch.
struct stopwatch_state {
  std::uint64_t count = 0;     ///< number of starts
  std::uint64_t ticks = 0;     ///< total time of completed runs
  std::uint64_t is_going = 0;  ///< 1 while running
  std::uint64_t since = 0;     ///< time of the latest start
};

/// Counts and times one activity of a thread, such as waiting for a slot. A single thread starts
/// and stops the stopwatch, and any thread can read it. A reading includes an activity in progress.
class stopwatch {
 public:
  /// A reading of a stopwatch.
  struct reading {
    std::uint64_t count = 0;  ///< number of starts
    std::uint64_t ticks = 0;  ///< total time, up to the time of the reading
  };

  /// Starts the stopwatch at `now`. Has no effect while running. Only the timing thread calls this.
  void start(std::uint64_t now) noexcept {
    if (state_.is_going != 0) return;
    ++state_.count;
    state_.is_going = 1;
    state_.since = now;
    shown_.store(state_);
  }
  /// Stops the stopwatch at `now`. Has no effect while stopped. Only the timing thread calls this.
  void stop(std::uint64_t now) noexcept {
    if (state_.is_going == 0) return;
    state_.is_going = 0;
    state_.ticks += ticks_between(state_.since, now);
    shown_.store(state_);
  }

  /// Returns the reading at `now`. Any thread may call this.
  [[nodiscard]] reading read(std::uint64_t now) const noexcept {
    return reading_of(shown_.load(), now);
  }
  /// Reads without blocking. Returns false if the timing thread is writing.
  [[nodiscard]] bool try_read(std::uint64_t now, reading& shows) const noexcept {
    stopwatch_state state;
    if (!shown_.try_load(state)) return false;
    shows = reading_of(state, now);
    return true;
  }

 private:
  [[nodiscard]] static reading reading_of(const stopwatch_state& state,
                                          std::uint64_t now) noexcept {
    const std::uint64_t going = state.is_going != 0 ? ticks_between(state.since, now) : 0;
    return {state.count, state.ticks + going};
  }

  stopwatch_state state_;  // accessed only by the timing thread
  shared_value<stopwatch_state> shown_;
};

/// Displays a stage in NVTX profilers, as a range of the calling thread from `begin` to `end`. The
/// ranges of a thread must nest.
struct stage_range {
#if PENSTOCK_NVTX
  static void begin(trace_stage stage, const batch_info* batch) noexcept {
    nvtx_domain::push(stage, batch);
  }
  static void end() noexcept { nvtx_domain::pop(); }
#else
  static void begin(trace_stage, const batch_info*) noexcept {}
  static void end() noexcept {}
#endif
};

/// Measures a wait from construction to destruction with all enabled instruments: a stopwatch, a
/// trace, and a profiler range. The batch is not known yet, and `trace_sink::work_on` reports it
/// later.
class wait_probe {
 public:
  /// Begins a wait. If `watch` is null, nothing is measured. If `trace` is null, the wait is not
  /// traced.
  wait_probe(trace_stage stage, stopwatch* watch, const tick_clock& clock,
             trace_sink* trace) noexcept
      : watch_(watch), clock_(&clock), trace_(trace), stage_(stage) {
    if (watch_ == nullptr) return;
    stage_range::begin(stage_, nullptr);
    began_ = clock_->now();
    watch_->start(began_);
  }
  wait_probe(wait_probe&&) = delete;
  ~wait_probe() {
    if (watch_ == nullptr) return;
    const std::uint64_t now = clock_->now();
    watch_->stop(now);
    stage_range::end();
    if (trace_ != nullptr) [[unlikely]]
      trace_->record_wait(stage_, began_, now);
  }

 private:
  stopwatch* watch_;
  const tick_clock* clock_;
  trace_sink* trace_;
  trace_stage stage_;
  std::uint64_t began_ = 0;
};

/// Measures work on a batch from construction to destruction with a trace and a profiler range.
class work_probe {
 public:
  /// Begins work on `samples` samples of `batch`, which must outlive the probe. If `trace` is null,
  /// the work is not traced.
  work_probe(trace_stage stage, trace_sink* trace, const batch_info& batch,
             std::size_t samples) noexcept
      : trace_(trace) {
    stage_range::begin(stage, &batch);
    if (trace_ == nullptr) [[likely]]
      return;
    stage_ = stage;
    batch_ = &batch;
    samples_ = samples;
    began_ = trace_->work_on(batch);
  }
  work_probe(work_probe&&) = delete;
  ~work_probe() {
    stage_range::end();
    if (trace_ == nullptr) [[likely]]
      return;
    trace_->add(stage_, began_, *batch_, samples_);
  }

 private:
  trace_sink* trace_;
  trace_stage stage_{};
  const batch_info* batch_ = nullptr;
  std::uint64_t samples_ = 0;
  std::uint64_t began_ = 0;
};

/// Measures the steps of a loop. Each step lasts from `begin` to `end` or to the next `begin`. The
/// profiler range of a step need not nest with the ranges of the loop body.
class step_probe {
 public:
  step_probe() = default;
  step_probe(step_probe&&) = delete;
  ~step_probe() { end_range(); }

  /// Begins a step when the consumer receives `batch`. If `trace` is null, the step is not traced.
  void begin(trace_sink* trace, const batch_info& batch) noexcept {
    end();
#if PENSTOCK_NVTX
    range_ = nvtx_domain::start(trace_stage::step, &batch);
#endif
    if (trace == nullptr) [[likely]]
      return;
    trace_ = trace;
    batch_ = batch;
    began_ = trace->work_on(batch);
  }
  void end() noexcept {
    end_range();
    if (trace_ != nullptr) [[unlikely]]
      std::exchange(trace_, nullptr)->add(trace_stage::step, began_, batch_, batch_.size);
  }

 private:
#if PENSTOCK_NVTX
  void end_range() noexcept {
    if (range_) nvtx_domain::end(*std::exchange(range_, std::nullopt));
  }
  std::optional<std::uint64_t> range_;  // the open range
#else
  void end_range() noexcept {}
#endif

  trace_sink* trace_ = nullptr;
  batch_info batch_;
  std::uint64_t began_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
