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

/// The maximum number of epochs, used as the end of an endless loop.
inline constexpr std::uint64_t endless = std::uint64_t{1} << 32;

/// The loop of `next()`, which is an endless range and an iterator. Only the consumer thread may
/// use this object.
template <class Flow>
class pull_loop {
 public:
  /// Ends the loop, if any. The next call to `next` starts at `from`.
  void reset(const batch_position& from) noexcept {
    loop_.reset();
    from_ = from;
  }

  /// Releases the current batch and returns the next batch of `flow`. Returns an empty batch after
  /// the last batch of a finite source. Throws the same errors as a range. After an exception,
  /// throws `std::logic_error` until `reset` is called. Allocates for the first batch after a
  /// `reset`.
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

  // Null until the first call of `next`. A shared pointer, so that a program that never calls
  // `next` does not compile a range.
  std::shared_ptr<loop> loop_;
  batch_position from_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
