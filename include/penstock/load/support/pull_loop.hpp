// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/version.hpp>
#include <penstock/load/batch_range.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The first epoch that an endless loop does not read: the largest number of epochs.
inline constexpr std::uint64_t endless = std::uint64_t{1} << 32;

/// The loop behind `next()` of a transfer: an endless range and an iterator in it. Only the
/// consumer's thread uses it.
template <class Flow>
class pull_loop {
 public:
  /// Ends the loop, if there is one. The next call to `next` starts at `from`.
  void reset(const batch_position& from) noexcept {
    loop_.reset();
    from_ = from;
  }

  /// Releases the current batch and returns the next batch of `flow`. Returns an empty batch after
  /// the last batch of a source that ends. Throws what a range throws. After an exception, throws
  /// `std::logic_error` until `reset` is called. Allocates for the first batch after a `reset`.
  typename Flow::batch_type& next(const std::shared_ptr<Flow>& flow) {
    if (loop_ == nullptr) loop_ = std::make_shared<loop>(flow, from_);
    loop_->advance();
    return flow->current();
  }

 private:
  class loop {
   public:
    loop(const std::shared_ptr<Flow>& flow, const batch_position& from)
        : range_(flow, from, endless) {}
    void advance() {
      if (state_ == failed) {
        throw std::logic_error(
            "penstock::transfer: next() was called after it threw: call resume(state()) to retry "
            "the same batch, or reset(position)");
      }
      if (std::exchange(state_, failed) == running) {
        ++at_;
      } else {
        at_ = range_.begin();
      }
      state_ = running;
    }

   private:
    batch_range<Flow> range_;
    typename batch_range<Flow>::iterator at_;
    enum { ready, running, failed } state_ = ready;
  };

  // Null until `next`. Shared, so that a program that never calls `next` does not compile a range.
  std::shared_ptr<loop> loop_;
  batch_position from_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
