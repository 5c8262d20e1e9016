// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>

#include <penstock/penstock.hpp>

#include "flow/state_machine/chaotic.hpp"
#include "flow/state_machine/expected.hpp"
#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/mismatch.hpp"

namespace stress {

namespace ps = penstock;

inline expected machine::on_batch(bool is_feed, const ps::batch_info& info) {
  require(!left_.empty(), "a batch after the last");
  require(!is_exhausted(is_feed), "a batch though all slots are held");
  if (is_cancelled_) {
    require(late_ != 0, "a batch that was not on its way when the stop was requested");
    --late_;
  }
  const ps::batch_position at{info.epoch, info.batch};
  const auto found =
      how_.options.in_order ? left_.begin() : std::find(left_.begin(), left_.end(), at);
  require(found != left_.end() && *found == at, "a batch out of its turn");
  left_.erase(found);
  expected must = expect(how_, at);
  require(!must.bad && !has_no_order(at), "a batch that can't be read");
  record_next(is_feed, {at.epoch, at.batch + 1});
  count("batch");
  return must;
}

inline void machine::on_end() {
  require(left_.empty(), "the end before the last batch");
  count("end");
}

inline void machine::record_exhausted(bool is_feed) {
  require(may_be_exhausted(is_feed), "leases_exhausted though a slot is free");
  require(!left_.empty(), "leases_exhausted at the end");
  require(is_feed || !how_.options.in_order || max_held_of(loader_number_) >= slots_ ||
              !is_bad(left_.front()),
          "leases_exhausted before the batch's own error");
  require(!failure_of(is_feed), "leases_exhausted is no batch's");
  count("leases_exhausted");
}

inline void machine::record_cancelled(bool is_feed) {
  require(is_cancelled_, "cancelled without a request");
  // A range without batches that begins after the stop request may end with or without an
  // exception.
  require(!left_.empty() || is_of_none_, "cancelled after the last batch");
  require(!failure_of(is_feed), "cancelled is no batch's");
  count("cancelled");
}

inline void machine::record_bad(bool is_feed, const bad_sample& error) {
  const auto where = failure_of(is_feed);
  require(where.has_value() && where->stage == "read" && where->exact, "a failure without a place");
  const ps::batch_position at{where->epoch, where->batch};
  const auto found = how_.options.in_order && !left_.empty()
                         ? left_.begin()
                         : std::find(left_.begin(), left_.end(), at);
  require(found != left_.end() && *found == at, "the failure of another batch");
  const expected must = expect(how_, at);
  require(!has_no_order(at), "a sample that was read without an order");
  require(must.bad && *must.bad == where->position && must.bad_sample == where->sample &&
              must.bad_sample == error.index,
          "the failure of another sample");
  count("bad sample");
}

inline void machine::record_no_order(bool is_feed, bool is_resize) {
  const auto where = failure_of(is_feed);
  require(where.has_value() && where->stage == "order", "no order, and no place");
  const ps::batch_position at{where->epoch, where->batch};
  const auto found = how_.options.in_order && !left_.empty()
                         ? left_.begin()
                         : std::find(left_.begin(), left_.end(), at);
  require(found != left_.end() && *found == at, "the missing order of another batch");
  require(is_resize == is_resized() && has_no_order(at), "a missing order that is there");
  count(is_resize ? "size changed" : "no order");
}

}  // namespace stress
