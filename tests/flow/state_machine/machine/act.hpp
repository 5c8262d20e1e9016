// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string>

#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/mismatch.hpp"
#include "flow/state_machine/moody.hpp"

namespace stress {

inline void machine::run(std::uint64_t steps) {
  for (const std::uint64_t end = step_ + steps; step_ < end; ++step_) {
    try {
      if (step_ == 0) make_world();
      act();
    } catch (const std::exception& error) {
      throw mismatch("seed " + std::to_string(seed_) + ", step " + std::to_string(step_) + ", " +
                     std::string{doing_} + ": " + error.what() + "\n  " + describe());
    }
  }
}

inline void machine::act() {
  if (is_cancelled_ && one_in(10)) make_world();
  if (is_resized() && one_in(3)) resize();
  static constexpr std::array<operation, 25> all{{
      {"begin", 10, &machine::begin},
      {"advance", 45, &machine::advance},
      {"begin again", 3, &machine::begin_again},
      {"leave", 5, &machine::leave},
      {"loop", 20, &machine::loop},
      {"keep", 10, &machine::keep},
      {"drop", 10, &machine::drop},
      {"drop elsewhere", 2, &machine::drop_elsewhere},
      {"drop meanwhile", 8, &machine::drop_meanwhile},
      {"drop on a stream", 4, &machine::drop_on_stream},
      {"hold the order", 4, &machine::hold_order},
      {"change the order", 3, &machine::change_order},
      {"change the size", 2, &machine::resize},
      {"move leases", 5, &machine::move_leases},
      {"look at leases", 4, &machine::look_at_leases},
      {"move loader or feed", 4, &machine::move_loader},
      {"move range", 4, &machine::move_range},
      {"destroy feed", 2, &machine::destroy_feed},
      {"destroy loader", 1, &machine::destroy_loader},
      {"make feed", 4, &machine::remake_feed},
      {"new world", 2, &machine::make_world},
      {"cancel", 1, &machine::cancel},
      {"state", 8, &machine::check_state},
      {"begin an idle range", 5, &machine::begin_idle},
      {"destroy an idle range", 4, &machine::destroy_idle},
  }};
  static const int sum = [] {
    int weights = 0;
    for (const operation& one : all) weights += one.weight;
    return weights;
  }();
  auto at = static_cast<int>(below(static_cast<std::uint64_t>(sum)));
  const operation* one = all.data();
  for (; at >= one->weight; ++one) at -= one->weight;
  doing_ = one->name;
  (this->*one->act)();
}

inline std::string machine::describe() const {
  const auto number = [](auto value) { return std::to_string(value); };
  const auto& o = how_.options;
  return "samples " + number(how_.who.samples) + ", batch_size " + number(o.batch_size) +
         ", workers " + number(o.workers.value()) + ", prefetch " + number(o.prefetch.value()) +
         ", chunk " + number(o.tuning.chunk) + (o.in_order ? "" : ", out of order") + ", last " +
         number(static_cast<int>(o.last_batch)) + ", then " +
         number(static_cast<int>(o.faults.on_error.action.value())) + ", retries " +
         number(o.faults.on_error.retries) + ", bad_in " + number(how_.data.bad_in) +
         ", flaky_in " + number(how_.data.flaky_in) + ", depth " + number(how_.depth) +
         (feed_    ? ", a feed"
          : owner_ ? ", an owning feed"
                   : ", no feed") +
         ", kept " + number(leases_.size()) + ", away " + number(away_.size()) + ", on a stream " +
         number(on_stream_.size()) + (is_resized() ? ", resized" : "") +
         (*bad_epoch_ == moody::never ? "" : ", no epoch " + number(bad_epoch_->load())) +
         ", left " + number(left_.size());
}

}  // namespace stress
