// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What the ranges of `transfer::replay` run on: keeps the leases of a range's first batches, and
/// gives them out in turn. For the consumer's thread.
template <class Feed>
class replay {
 public:
  using batch_type = typename Feed::batch_type;

  explicit replay(std::shared_ptr<Feed> flow) : flow_(std::move(flow)) {
    kept_.reserve(flow_->depth());
  }
  replay(replay&&) = delete;
  ~replay() { end(); }

  /// Brings batches to the device, as many as there are slots, ends the reading, and waits for the
  /// copies. Returns the serial number of the range over the transfer that is live meanwhile.
  std::uint64_t start(const batch_position& from, std::uint64_t batches) {
    // Each epoch has a batch; a loader knows of 2^32 epochs, and says so of one that lies beyond.
    constexpr std::uint64_t end = std::uint64_t{1} << 32;
    const batch_position next = flow_->next_position();
    serial_ = flow_->start(
        from, (std::max)(from.epoch + 1, (std::min)(from.epoch + flow_->depth() + 1, end)));
    flow_->note_next(next);  // what is replayed is no part of a training
    left_ = batches;
    given_ = 0;
    try {
      while (kept_.empty() || flow_->has_room()) {
        auto batch = flow_->next();
        if (!batch) break;
        kept_.push_back(std::move(batch));
      }
      flow_->rest();
      flow_->synchronize();
    } catch (...) {
      abandon();
      throw;
    }
    begin_ = clock::now();
    return serial_;
  }

  /// Goes on to the next batch; false after the last, once the stream's work is done.
  bool advance() {
    if (!flow_->is_live(serial_)) {
      kept_.clear();
      return false;
    }
    if (flow_->is_stopped()) {
      abandon();
      throw cancelled("cancelled: a stop of the source was requested during a replay");
    }
    if (left_ == 0 || kept_.empty()) {
      try {
        flow_->synchronize();
      } catch (...) {
        abandon();
        throw;
      }
      end();
      return false;
    }
    --left_;
    place_ = static_cast<std::size_t>(given_++ % kept_.size());
    if (batch_type& again = kept_[place_]) {
      if constexpr (checked) again = batch_type{std::move(again)};  // for whichever thread uses it
      return true;
    }
    abandon();
    throw leases_exhausted(
        "transfer: a lease was moved out of a replay, which hands it out again: loop over epochs "
        "to keep batches");
  }

  /// The lease that the consumer looks at.
  [[nodiscard]] batch_type& current() noexcept { return kept_.empty() ? none_ : kept_[place_]; }

  /// Ends the range `range`, unless another one was started since.
  void finish(std::uint64_t range) noexcept {
    if (range != 0 && range == serial_) end();
  }

 private:
  using clock = std::chrono::steady_clock;

  /// Ends the range, and counts what it gave.
  void end() noexcept {
    if (!flow_->is_live(serial_)) return kept_.clear();
    try {
      flow_->synchronize();  // for the time; a loop that was left has work under way
      if (given_ != 0) flow_->note_replay(given_, clock::now() - begin_);
    } catch (...) {  // NOLINT: the device tells it again, where an exception may leave
    }
    abandon();
  }
  /// Ends the range.
  void abandon() noexcept {
    kept_.clear();
    flow_->finish(serial_);
  }

  std::shared_ptr<Feed> flow_;
  std::vector<batch_type> kept_;
  batch_type none_;  // after the end
  std::size_t place_ = 0;
  std::uint64_t serial_ = 0;
  std::uint64_t left_ = 0;
  std::uint64_t given_ = 0;
  clock::time_point begin_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
