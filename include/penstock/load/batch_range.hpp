// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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
