// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <iterator>

#include <penstock/penstock.hpp>

#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/mismatch.hpp"
#include "flow/state_machine/setup.hpp"

namespace stress {

namespace ps = penstock;

inline void machine::check_state() {
  if (!has_source()) return;
  if (!how_.options.in_order) {
    const auto ask = [&] { return owner_ ? owner_->state() : loader_->state(); };
    try {
      (void)ask();
    } catch (const ps::option_error&) {
      return count("no state out of order");
    }
    throw mismatch("a state of batches out of order");
  }
  if (loader_ && loader_next_) require_at(loader_->state(), *loader_next_);
  if (has_feed()) require_at(feed_ ? feed_->state() : owner_->state(), *feed_next_);
  if (!saved_) return;
  identity other = saved_->who;
  // Different seeds may give the same order.
  if (how_.who.samples < 16) other.order_seed = how_.who.order_seed;
  if (other != how_.who) {
    try {
      (void)(owner_ ? owner_->resume(saved_->state, 9).begin() == std::default_sentinel
                    : loader_->resume(saved_->state, 9).begin() == std::default_sentinel);
    } catch (const ps::state_mismatch&) {
      return count("state rejected");
    }
    throw mismatch("a state of other batches was taken");
  }
}

inline void machine::require_at(const ps::loader_state& state, const ps::batch_position& at) {
  require(state.epoch == at.epoch && state.batch == at.batch, "a state of another place");
  count("state");
  if (one_in(3)) {
    saved_ = {how_.who, at, ps::from_text<ps::loader_state>(to_text(state))};
  }
}

}  // namespace stress
