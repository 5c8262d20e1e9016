// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <thread>

#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/moody.hpp"
#include "flow/state_machine/take_a_while.hpp"

namespace stress {

inline void machine::change_order() {
  if (is_live()) return;  // the live range may already have computed its orders
  *bad_epoch_ = one_in(2) ? moody::never : 2 + below(3);
}

inline void machine::hold_order() {
  if (!has_source() || gate_->is_shut) return;
  if (opener_.joinable()) opener_.join();
  gate_->is_shut = true;
  opener_ = std::jthread{[gate = gate_, turns = below(200)] {
    take_a_while(turns);
    gate->is_shut = false;
    gate->is_shut.notify_all();
  }};
}

inline void machine::resize() {
  if (is_live()) return;
  *how_.data.other_size = is_resized() ? 0 : how_.who.samples + 1;
}

inline void machine::cancel() {
  if (is_cancelled_) return make_world();
  if (!has_source()) return;
  count("stop requested");
  stop_.request_stop();
  is_cancelled_ = true;
  late_ = is_live() && live_->is_feed() ? how_.depth : 0;
}

}  // namespace stress
