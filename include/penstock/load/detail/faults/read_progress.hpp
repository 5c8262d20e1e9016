// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include <penstock/core/error.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What one thread reads at the moment. Written by that thread, observed by a `read_watch`.
class alignas(cache_line) read_progress {
 public:
  /// A read that is under way, and the number that tells it from the one before.
  struct observed_read {
    std::uint64_t turn;
    failure where;
  };

  /// `is_exact` where each sample is read by a call of its own.
  void prepare(bool is_exact) noexcept { is_exact_ = is_exact; }

  /// Reading thread: the reads from now on belong to this batch.
  void enter_batch(std::uint64_t epoch, std::uint64_t batch) noexcept {
    const std::lock_guard lock{mutex_};
    epoch_ = epoch;
    batch_ = batch;
  }

  /// Reading thread: starts to read `samples`, the first of them at `position` of the batch, and is
  /// at the one whose place `place` holds. `samples` and `place` must stay where they are until
  /// `end`.
  void begin(std::uint64_t position, std::span<const std::uint64_t> samples,
             const std::atomic<std::size_t>& place) noexcept {
    const std::lock_guard lock{mutex_};
    ++turn_;
    is_busy_ = true;
    position_ = position;
    samples_ = samples;
    place_ = &place;
  }
  /// Reading thread: starts to ask for something else that this batch needs: "order", that of its
  /// epoch, or "lengths", those of its samples.
  void begin_stage(std::string_view stage, std::uint64_t epoch, std::uint64_t batch) noexcept {
    const std::lock_guard lock{mutex_};
    ++turn_;
    is_busy_ = true;
    stage_ = stage;
    epoch_ = epoch;
    batch_ = batch;
    position_ = 0;
    place_ = nullptr;
  }
  /// Reading thread: what began has returned or thrown.
  void end() noexcept {
    const std::lock_guard lock{mutex_};
    is_busy_ = false;
    is_given_up_ = false;
  }

  /// What is read, or asked for, now; `std::nullopt` between two reads.
  [[nodiscard]] std::optional<observed_read> observe() const {
    const std::lock_guard lock{mutex_};
    if (!is_busy_) return std::nullopt;
    if (place_ == nullptr) return observed_read{turn_, {stage_, epoch_, batch_}};
    // Until the read has started this is the place in the chunk before, which may have been longer.
    const std::size_t noted = place_->load(std::memory_order_relaxed);
    const std::size_t at = noted < samples_.size() ? noted : 0;
    return observed_read{turn_,
                         {"read", epoch_, batch_, position_ + at, samples_[at],
                          is_exact_ || at != 0 || samples_.size() == 1}};
  }

  /// Nothing waits any more for the read of `turn`; false when it has just returned.
  bool give_up(std::uint64_t turn) noexcept {
    const std::lock_guard lock{mutex_};
    return is_given_up_ = is_busy_ && turn_ == turn;
  }
  /// Whether a read that was given up still hangs.
  [[nodiscard]] bool is_given_up() const noexcept {
    const std::lock_guard lock{mutex_};
    return is_given_up_;
  }

 private:
  mutable std::mutex
      mutex_;  // taken three times a chunk by the reader, four times a limit by the watch
  std::uint64_t turn_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t batch_ = 0;
  std::uint64_t position_ = 0;
  bool is_busy_ = false;                    // between a begin and its end
  std::span<const std::uint64_t> samples_;  // as the reader holds them, while there is a read
  const std::atomic<std::size_t>* place_ = nullptr;  // null while there is another stage:
  std::string_view stage_;
  bool is_exact_ = false;
  bool is_given_up_ = false;
};

/// A read, or a stage before the reads of a batch, that is shown in `progress` for as long as this
/// object lives; null: nothing is shown.
class read_scope {
 public:
  /// See `read_progress::begin`.
  read_scope(read_progress* progress, std::uint64_t position,
             std::span<const std::uint64_t> samples, const std::atomic<std::size_t>& place) noexcept
      : progress_(progress) {
    if (progress_ != nullptr) progress_->begin(position, samples, place);
  }
  /// See `read_progress::begin_stage`.
  read_scope(read_progress* progress, std::string_view stage, std::uint64_t epoch,
             std::uint64_t batch) noexcept
      : progress_(progress) {
    if (progress_ != nullptr) progress_->begin_stage(stage, epoch, batch);
  }
  read_scope(read_scope&&) = delete;
  ~read_scope() {
    if (progress_ != nullptr) progress_->end();
  }

 private:
  read_progress* progress_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
