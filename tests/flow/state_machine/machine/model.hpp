// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <penstock/penstock.hpp>

#include "flow/state_machine/expected.hpp"
#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/walk.hpp"

namespace stress {

namespace ps = penstock;

inline std::size_t machine::leases_of(std::uint64_t number) const {
  return static_cast<std::size_t>(std::count_if(
      leases_.begin(), leases_.end(), [&](const held_lease& one) { return one.of == number; }));
}

inline std::size_t machine::max_held_of(std::uint64_t number) const {
  return leases_of(number) +
         static_cast<std::size_t>(std::count_if(
             away_.begin(), away_.end(), [&](const away_lease& one) { return one.of == number; })) +
         static_cast<std::size_t>(std::count(on_stream_.begin(), on_stream_.end(), number));
}

inline void machine::await_stream() {
  stream_.synchronize();
  on_stream_.clear();
}

inline ps::batch_position machine::normal(const ps::batch_position& at) const {
  if (at.batch != how_.who.batches()) return at;
  return {at.epoch + 1, 0};
}

inline void machine::plan(const walk& one) {
  late_ = 0;
  left_.clear();
  for (auto at = normal(one.from()); at.epoch < one.last_epoch(); at = normal(at)) {
    left_.push_back(at);
    ++at.batch;
  }
  is_of_none_ = left_.empty();
  record_next(one.is_feed(), one.from());
  if (one.is_feed()) loader_next_.reset();  // the feed is ahead of its consumer
}

inline void machine::record_next(bool is_feed, const ps::batch_position& next) {
  (is_feed ? feed_next_ : loader_next_) = next;
}

inline bool machine::has_no_order(const ps::batch_position& at) const {
  return is_resized() || at.epoch == *bad_epoch_;
}

inline bool machine::is_resized() const { return *how_.data.other_size != 0; }

inline bool machine::is_bad(const ps::batch_position& at) const {
  if (has_no_order(at)) return true;
  return how_.data.bad_in != 0 && expect(how_, at).bad.has_value();
}

inline bool machine::may_have_failed() const {
  if (is_cancelled_) return true;
  return is_live() && live_->is_feed() &&
         std::any_of(left_.begin(), left_.end(), [&](auto& at) { return is_bad(at); });
}

inline bool machine::is_exhausted(bool is_feed) const {
  return leases_of(loader_number_) == slots_ || (is_feed && leases_of(feed_number_) == how_.depth);
}

inline bool machine::may_be_exhausted(bool is_feed) const {
  return max_held_of(loader_number_) >= slots_ ||
         (is_feed && max_held_of(feed_number_) >= how_.depth);
}

inline std::optional<ps::failure> machine::failure_of(bool is_feed) const {
  if (!is_feed) return loader_->last_failure();
  return feed_ ? feed_->last_failure() : owner_->last_failure();
}

}  // namespace stress
