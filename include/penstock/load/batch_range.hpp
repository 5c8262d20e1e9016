// SPDX-License-Identifier: BSL-1.0
#pragma once

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
  throw std::logic_error(
      joined({"penstock::", what, ": a range over this ", what,
              " is still live: leave its loop, or destroy the range, before another one begins"}));
}
[[noreturn, gnu::cold]] inline void throw_range_outlives(std::string_view what) {
  throw std::logic_error(joined({"penstock::", what, ": the ", what,
                                 " of this range is gone: keep it as long as its ranges"}));
}

/// Tracks the active range over a loader or a transfer: at most one, identified by its serial
/// number. For the consumer's thread only.
class active_range {
 public:
  /// `what` names the owner of the ranges in messages: "loader" or "transfer". Must be a literal.
  explicit active_range(std::string_view what) noexcept : what_(what) {}

  /// Throws `std::logic_error` while a range is active, and after `close`.
  void require_none() const {
    if (is_live_) throw_range_is_live(what_);
    if (is_closed_) throw_range_outlives(what_);
  }
  /// Starts a range and returns its serial number, which is never 0.
  std::uint64_t start() noexcept {
    is_live_ = true;
    return ++serial_;
  }
  /// Whether a range is active.
  [[nodiscard]] bool is_live() const noexcept { return is_live_; }
  /// Whether `serial` is the range that was started last, active or not.
  [[nodiscard]] bool is_current(std::uint64_t serial) const noexcept {
    return serial != 0 && serial == serial_;
  }
  /// Ends the active range; false if there is none.
  bool end() noexcept {
    const bool was_live = is_live_;
    is_live_ = false;
    return was_live;
  }
  /// Allows no further ranges. An active range must be ended before.
  void close() noexcept { is_closed_ = true; }

 private:
  std::string_view what_;
  std::uint64_t serial_ = 0;
  bool is_live_ = false;
  bool is_closed_ = false;
};

}  // namespace detail

/// The batches of some epochs, as an input range: what `loader.epochs()` and `transfer.epochs()`
/// return. `*it` is an lvalue reference to the lease of the current batch; `++it` releases it
/// unless it was moved out, and takes the next one.
///
/// `begin()` starts the reading; a second `begin()` starts it again from the first batch. The
/// destructor ends it. Two live ranges over one loader or transfer are a `std::logic_error`. A
/// range that outlives its loader or transfer is over. An iterator must not outlive its range.
template <class Flow>
class batch_range {
 public:
  using batch_type = typename Flow::batch_type;

  /// An input iterator over the range's leases; copies of it move together.
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
    /// At the end when there is no further batch, and when it throws; stays there.
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
          "an iterator over batches was used at its end: after the last batch, or after ++ has "
          "thrown");
    }
    Flow* flow_ = nullptr;
    [[no_unique_address]] detail::call_gate gate_;
  };

  /// The batches of `flow` from `from` up to, but not including, epoch `last_epoch`.
  batch_range(std::shared_ptr<Flow> flow, const batch_position& from,
              std::uint64_t last_epoch) noexcept(!detail::checked)
      : flow_(std::move(flow)), from_(from), last_epoch_(last_epoch) {}
  batch_range(batch_range&&) noexcept = default;
  batch_range& operator=(batch_range&&) = delete;
  ~batch_range() {
    if (flow_ != nullptr) flow_->finish(serial_);
  }

  /// Starts reading, at the first batch. Throws `std::logic_error` while another range is live, and
  /// what reading the first batch throws.
  [[nodiscard]] iterator begin() {
    [[maybe_unused]] const auto inside = gate_.enter();
    flow_->finish(serial_);
    serial_ = flow_->start(from_, last_epoch_);
    return iterator{flow_->advance() ? flow_.get() : nullptr, gate_};
  }
  /// The end, which the iterator compares with.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  std::shared_ptr<Flow> flow_;
  batch_position from_;
  std::uint64_t last_epoch_;
  std::uint64_t serial_ = 0;  // names this range's start; 0: none
  [[no_unique_address]] detail::call_gate gate_{std::in_place};
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
