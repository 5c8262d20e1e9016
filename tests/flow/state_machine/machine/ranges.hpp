// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <penstock/penstock.hpp>

#include "flow/state_machine/chaotic.hpp"
#include "flow/state_machine/expected.hpp"
#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/mismatch.hpp"
#include "flow/state_machine/walk.hpp"

namespace stress {

namespace ps = penstock;

template <class Step>
void machine::settle(walk& one, Step step) {
  try {
    if (step()) {
      must_ = std::make_shared<const expected>(on_batch(one.is_feed(), one.info()));
      look(one);
      return;
    }
    on_end();
  } catch (const bad_sample& error) {
    record_bad(one.is_feed(), error);
  } catch (const no_order&) {
    record_no_order(one.is_feed(), false);
  } catch (const ps::dataset_changed&) {
    record_no_order(one.is_feed(), true);
  } catch (const ps::leases_exhausted&) {
    record_exhausted(one.is_feed());
  } catch (const ps::cancelled&) {
    record_cancelled(one.is_feed());
  }
  must_.reset();
  idle_.push_back(std::move(live_));
}

inline void machine::look(walk& one) {
  if (one.is_feed()) await_stream();
  one.look(*must_);
}

inline std::unique_ptr<walk> machine::make_walk() {
  const std::uint64_t far = (std::uint64_t{1} << 32) - 4;
  ps::batch_position from{one_in(8) ? far : below(3), 0};
  std::uint64_t last = from.epoch + below(4);
  const bool is_resumed = saved_ && saved_->who == how_.who && how_.options.in_order && one_in(2);
  if (is_resumed) {
    from = saved_->at;
    last = from.epoch + 1 + below(2);
    if (last > far + 4) last = far + 4;
  } else if (one_in(2)) {
    from.batch = below(how_.who.batches() + 1);
  }
  const auto of = [&](auto& face, std::uint64_t number, bool is_feed) -> std::unique_ptr<walk> {
    using range = typename std::remove_reference_t<decltype(face)>::range_type;
    const auto made = [&](range&& it) {
      return std::make_unique<range_walk<range>>(std::move(it), number, from, last, is_feed);
    };
    if (is_resumed) {
      count("resume");
      return made(face.resume(saved_->state, last));
    }
    if (from.batch != 0) return made(face.batches(from, ps::until_epoch{last}));
    return last == from.epoch + 1 ? made(face.epoch(from.epoch))
                                  : made(face.epochs(from.epoch, last));
  };
  if (owner_) return of(*owner_, feed_number_, true);
  if (feed_ && !one_in(4)) return of(*feed_, feed_number_, true);
  if (one_in(3)) return std::make_unique<source_walk>(loader_, loader_number_, from, last);
  return of(*loader_, loader_number_, false);
}

inline void machine::begin() {
  if (!has_source()) return make_world();
  auto one = make_walk();
  if (one_in(6)) {  // a later operation begins this range
    idle_.push_back(std::move(one));
    return;
  }
  start(std::move(one));
}

inline void machine::start(std::unique_ptr<walk> one) {
  if (is_gone(*one)) {
    reject<std::logic_error>(std::move(one), "a range of what is gone has begun");
    return;
  }
  if (is_live()) {
    if (!one->is_feed() && may_have_failed()) return idle_.push_back(std::move(one));
    count("second range");
    reject<std::logic_error>(std::move(one), "a second range has begun");
    return;
  }
  if (live_) idle_.push_back(std::move(live_));
  const ps::batch_position from = normal(one->from());
  if (from.epoch > one->last_epoch() || (from.epoch == one->last_epoch() && from.batch != 0) ||
      one->last_epoch() > std::uint64_t{1} << 32) {
    count("no such range");
    reject<ps::option_error>(std::move(one), "a range of no batches has begun");
    return;
  }
  live_ = std::move(one);
  plan(*live_);
  walk& it = *live_;
  settle(it, [&] { return it.begin(); });
}

template <class Error>
void machine::reject(std::unique_ptr<walk> one, const char* what) {
  try {
    (void)one->begin();
  } catch (const Error&) {
    count("rejected");
    idle_.push_back(std::move(one));
    return;
  }
  throw mismatch(what);
}

inline void machine::advance() {
  if (!live_) return begin();
  walk& one = *live_;
  if (is_gone(one)) {
    try {
      require(!one.advance(), "a batch of what is gone");
      count("end of what is gone");
    } catch (const ps::cancelled&) {
      count("cancelled: what is gone");
    }
    idle_.push_back(std::move(live_));
    return;
  }
  settle(one, [&] { return one.advance(); });
}

inline void machine::begin_again() {
  if (!is_live()) return;
  count("begun again");
  plan(*live_);
  walk& one = *live_;
  settle(one, [&] { return one.begin(); });
}

inline void machine::leave() {
  if (live_) count(must_ ? "left" : "left without a batch");
  must_.reset();
  live_.reset();
}

inline void machine::move_range() {
  if (live_) live_->relocate();
}

inline void machine::begin_idle() {
  if (idle_.empty()) return;
  auto one = take_idle();
  const bool is_source = dynamic_cast<source_walk*>(one.get()) != nullptr;
  if (is_source && is_gone(*one)) return;  // the walk's loader is gone, so the call cannot throw
  start(std::move(one));
}

inline void machine::destroy_idle() {
  if (!idle_.empty()) (void)take_idle();
}

inline std::unique_ptr<walk> machine::take_idle() {
  std::swap(idle_[below(idle_.size())], idle_.back());
  auto one = std::move(idle_.back());
  idle_.pop_back();
  return one;
}

}  // namespace stress
