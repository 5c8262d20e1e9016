// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/support/cache_line.hpp>
#include <penstock/observe/detail/trace_ring.hpp>
#include <penstock/observe/support/clocks.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

enum class trace_stage : std::uint8_t;

namespace detail {

/// An event as it stands in a ring: a cache line, with the turn of its place.
struct traced_event {
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  std::uint64_t number = none;  ///< in its ring
  std::uint64_t begin = 0;      ///< in ticks
  std::uint64_t end = 0;        ///< in ticks
  std::uint64_t epoch = 0;      ///< of the batch; of a setting: its workers
  std::uint64_t batch = none;   ///< within its epoch; `none`: of no batch
  std::uint64_t samples = 0;    ///< of the batch, or of the run that was read; of a setting: its
                                ///< prefetch; of a depth: its slots; 0 for waits
  std::uint64_t stage = 0;      ///< a `trace_stage`
};

/// What one thread writes into a trace, or those that hold a slot's leases one after the other.
/// Waits are kept until it is known for which batch they were.
class alignas(cache_line) trace_writer {
 public:
  /// A track of the name `name`, of batches that `flow` tells from those of other loaders. The
  /// clock must outlive it.
  trace_writer(std::string name, std::uint64_t flow, std::size_t capacity, const tick_clock& clock)
      : name_(std::move(name)), flow_(flow), clock_(&clock), ring_(capacity) {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t flow() const noexcept { return flow_; }
  [[nodiscard]] const trace_ring<traced_event>& ring() const noexcept { return ring_; }

  /// @name One thread at a time
  /// @{
  [[nodiscard]] std::uint64_t now() const noexcept { return clock_->now(); }
  /// A stage of a batch is over.
  void add(trace_stage stage, std::uint64_t begin, std::uint64_t end, const batch_info& batch,
           std::uint64_t samples) noexcept {
    ring_.add({0, begin, end, batch.epoch, batch.batch, samples, number_of(stage)});
  }
  /// A loader has run with this setting.
  void add_setting(trace_stage stage, std::uint64_t begin, std::uint64_t end, std::uint64_t workers,
                   std::uint64_t prefetch) noexcept {
    ring_.add({0, begin, end, workers, traced_event::none, prefetch, number_of(stage)});
  }
  /// A transfer has run with so many device slots.
  void add_depth(trace_stage stage, std::uint64_t begin, std::uint64_t end,
                 std::uint64_t device_slots) noexcept {
    ring_.add({0, begin, end, 0, traced_event::none, device_slots, number_of(stage)});
  }
  /// A wait is over, for the batch that `work_on` names next. Several of one stage in a row are one
  /// wait, which was looked up from.
  void note_wait(trace_stage stage, std::uint64_t begin, std::uint64_t end) noexcept {
    if (count_ != 0 && waits_[count_ - 1].stage == number_of(stage)) {
      waits_[count_ - 1].end = end;
      return;
    }
    if (count_ == waits_.size()) leave();
    waits_[count_++] = {0, begin, end, 0, traced_event::none, 0, number_of(stage)};
  }
  /// What comes now is of this batch, and so were the waits before it.
  void work_on(const batch_info& batch) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      waits_[i].epoch = batch.epoch;
      waits_[i].batch = batch.batch;
    }
    leave();
  }
  /// No batch comes: the waits before it were for none.
  void leave() noexcept {
    for (std::size_t i = 0; i < count_; ++i) ring_.add(waits_[i]);
    count_ = 0;
  }
  /// @}

 private:
  [[nodiscard]] static std::uint64_t number_of(trace_stage stage) noexcept {
    return static_cast<std::uint64_t>(stage);
  }

  std::string name_;
  std::uint64_t flow_;
  const tick_clock* clock_;
  std::array<traced_event, 8> waits_{};
  std::size_t count_ = 0;
  trace_ring<traced_event> ring_;
};

/// A stage of a batch on the thread of `writer`, for as long as this lives; null: nothing. `batch`
/// must outlive it.
class trace_scope {
 public:
  trace_scope(trace_writer* writer, trace_stage stage, const batch_info& batch,
              std::size_t samples) noexcept
      : writer_(writer) {
    if (writer_ == nullptr) [[likely]]
      return;
    stage_ = stage;
    batch_ = &batch;
    samples_ = samples;
    writer_->work_on(batch);
    begin_ = writer_->now();
  }
  trace_scope(trace_scope&&) = delete;
  ~trace_scope() {
    if (writer_ == nullptr) [[likely]]
      return;
    writer_->add(stage_, begin_, writer_->now(), *batch_, samples_);
  }

 private:
  trace_writer* writer_;
  trace_stage stage_{};
  const batch_info* batch_ = nullptr;
  std::uint64_t samples_ = 0;
  std::uint64_t begin_ = 0;
};

/// The step of a loop: from `begin` to `end`, or to the next `begin`.
class traced_step {
 public:
  traced_step() = default;
  traced_step(traced_step&&) = delete;

  /// The consumer gets a batch; null: nothing.
  void begin(trace_writer* writer, trace_stage stage, const batch_info& batch) noexcept {
    end();
    if (writer == nullptr) [[likely]]
      return;
    writer->work_on(batch);
    writer_ = writer;
    stage_ = stage;
    batch_ = batch;
    begin_ = writer->now();
  }
  void end() noexcept {
    if (writer_ == nullptr) [[likely]]
      return;
    trace_writer* const writer = std::exchange(writer_, nullptr);
    writer->add(stage_, begin_, writer->now(), batch_, batch_.size);
  }

 private:
  trace_writer* writer_ = nullptr;
  trace_stage stage_{};
  batch_info batch_;
  std::uint64_t begin_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
