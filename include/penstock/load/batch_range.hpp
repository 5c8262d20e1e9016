// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

[[noreturn, gnu::cold]] inline void throw_range_is_live(std::string_view what) {
  throw std::logic_error(str_cat(
      {"penstock::", what, ": a range over this ", what,
       " is still live: leave its loop, or destroy the range, before starting another one"}));
}
[[noreturn, gnu::cold]] inline void throw_range_outlives(std::string_view what) {
  throw std::logic_error(
      str_cat({"penstock::", what, ": the ", what,
               " of this range was destroyed: keep it alive as long as its ranges"}));
}

/// Returns the exception for a loop whose loader or transfer (`what`) was destroyed.
[[nodiscard, gnu::cold]] inline cancelled cancelled_by_end_of(std::string_view what) {
  return cancelled(str_cat({"cancelled: the ", what,
                            " was destroyed, or assigned to, while a loop over its batches was ",
                            "running: keep it unchanged until the loop has ended"}));
}

/// Tracks the active range over a loader or a transfer. At most one range is active. Each range has
/// a serial number. Only the consumer thread may use this object, except for `is_live` and `close`.
class active_range {
 public:
  /// Creates the tracker. `what` names the owner of the ranges in messages, "loader" or "transfer",
  /// and must be a literal.
  explicit active_range(std::string_view what) noexcept : what_(what) {}

  /// Throws `std::logic_error` while a range is active, and after `close`.
  void require_none() const {
    if (is_live()) throw_range_is_live(what_);
    if (is_closed_.load(std::memory_order_acquire)) throw_range_outlives(what_);
  }
  /// Starts a range and returns its serial number, which is never 0.
  std::uint64_t start() noexcept {
    is_live_.store(true, std::memory_order_relaxed);
    return ++serial_;
  }
  /// Returns true if a range is active.
  [[nodiscard]] bool is_live() const noexcept { return is_live_.load(std::memory_order_relaxed); }
  /// Returns true if `serial` identifies the last range that was started, active or not.
  [[nodiscard]] bool is_current(std::uint64_t serial) const noexcept {
    return serial != 0 && serial == serial_;
  }
  /// Returns true if any range was ever started, active or not.
  [[nodiscard]] bool was_started() const noexcept { return serial_ != 0; }
  /// Ends the active range. Returns false if no range is active.
  bool end() noexcept {
    const bool was_live = is_live();
    is_live_.store(false, std::memory_order_relaxed);
    return was_live;
  }
  /// Rejects all further ranges.
  void close() noexcept { is_closed_.store(true, std::memory_order_release); }

 private:
  std::string_view what_;
  std::uint64_t serial_ = 0;
  std::atomic<bool> is_live_{false};  // relaxed, because the consumer thread stores it
  std::atomic<bool> is_closed_{false};
};

}  // namespace detail

/// The end of a range, specified as the first epoch that is not read, as in `batches(from,
/// until_epoch{3})`.
struct until_epoch {
  /// Ends before `epoch`.
  explicit constexpr until_epoch(std::uint64_t epoch) noexcept : value(epoch) {}
  std::uint64_t value;  ///< first epoch that is not read
};

/// The length of a replay in batches, as in `replay(from, batch_count{200})`.
struct batch_count {
  /// Specifies `batches` batches.
  explicit constexpr batch_count(std::uint64_t batches) noexcept : value(batches) {}
  std::uint64_t value;  ///< number of batches
};

/// An input range over the batches of one or more epochs, returned by `loader.epochs()` and
/// `transfer.epochs()`. `*it` is an lvalue reference to the lease of the current batch. `++it`
/// releases the lease unless it was moved out, and acquires the next batch.
///
/// `begin()` starts the reads. A second `begin()` restarts the reads at the first batch. The
/// destructor ends the reads. A second live range over the same loader or transfer throws
/// `std::logic_error`. If the loader or the transfer is destroyed during the range, or `stop` of
/// the loader is called, the next `++` throws `cancelled`, so that the loop does not appear to be
/// finished. An iterator must not outlive its range.
template <class Flow>
class batch_range {
 public:
  using batch_type = typename Flow::batch_type;

  /// An input iterator over the range's leases. Copies of an iterator advance together.
  class iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = batch_type;
    using difference_type = std::ptrdiff_t;

    iterator() = default;
    [[nodiscard]] batch_type& operator*() const noexcept {
      if (flow_ == nullptr) at_end();
      return flow_->current();
    }
    [[nodiscard]] batch_type* operator->() const noexcept { return &**this; }
    /// Advances to the next batch. After the last batch, and after an exception, the iterator
    /// remains at the end.
    iterator& operator++() {
      if (flow_ == nullptr) return *this;
      [[maybe_unused]] const auto inside = gate_.enter();
      Flow* const flow = std::exchange(flow_, nullptr);
      if (flow->advance()) flow_ = flow;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& it, std::default_sentinel_t) noexcept {
      return it.flow_ == nullptr;
    }

   private:
    friend class batch_range;
    iterator(Flow* flow, const detail::call_gate& gate) noexcept : flow_(flow), gate_(gate) {}
    [[noreturn]] static void at_end() noexcept {
      detail::wrong_use(
          "an iterator over batches was used at its end, after the last batch or after ++ threw");
    }
    Flow* flow_ = nullptr;
    [[no_unique_address]] detail::call_gate gate_;
  };

  /// Creates a range over the batches of `flow`, which starts at `from` and ends before epoch
  /// `last_epoch`.
  batch_range(std::shared_ptr<Flow> flow, const batch_position& from,
              std::uint64_t last_epoch) noexcept(!detail::checked)
      : flow_(std::move(flow)), from_(from), last_epoch_(last_epoch) {}
  batch_range(batch_range&&) noexcept = default;
  batch_range& operator=(batch_range&&) = delete;
  ~batch_range() {
    if (flow_ != nullptr) flow_->finish(serial_);
  }

  /// Starts the reads at the first batch. Throws `std::logic_error` while another range is live.
  /// Errors from the first batch propagate.
  [[nodiscard]] iterator begin() {
    [[maybe_unused]] const auto inside = gate_.enter();
    flow_->finish(serial_);
    serial_ = flow_->start(from_, last_epoch_);
    return iterator{flow_->advance() ? flow_.get() : nullptr, gate_};
  }
  /// Returns the end of the range, for comparison with an iterator.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  std::shared_ptr<Flow> flow_;
  batch_position from_;
  std::uint64_t last_epoch_;
  std::uint64_t serial_ = 0;  // identifies this range after `begin`, or 0
  [[no_unique_address]] detail::call_gate gate_{std::in_place};
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
