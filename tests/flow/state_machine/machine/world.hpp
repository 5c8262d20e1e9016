// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <utility>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>

#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/mismatch.hpp"
#include "flow/state_machine/moody.hpp"
#include "flow/state_machine/setup.hpp"
#include "flow/state_machine/walk.hpp"

namespace stress {

namespace ps = penstock;

inline void machine::make_world() {
  drop_world();
  count("world");
  setup& how = how_;
  stop_ = std::stop_source{};
  is_cancelled_ = false;
  // In some runs, keeps the identity of a saved state, so that the state is resumed with other
  // workers and depths.
  if (!saved_ || one_in(2)) {
    how.who.samples = one_in(6) ? 1 + below(3) : 1 + below(60);
    how.who.batch_size = 1 + below(one_in(4) ? how.who.samples : 9);
    how.who.seed = below(3);
    how.who.order_seed = below(3);
    how.who.last =
        one_of<ps::last_batch>({ps::last_batch::keep, ps::last_batch::drop, ps::last_batch::pad});
    if (how.who.batches() == 0) how.who.last = ps::last_batch::keep;
  } else {
    how.who = saved_->who;
  }
  how.options = {.batch_size = how.who.batch_size,
                 .workers = below(5),
                 .prefetch = below(6),
                 .seed = how.who.seed,
                 .last_batch = how.who.last,
                 .in_order = !one_in(4),
                 .pinned = !one_in(3),
                 .stop = stop_.get_token(),
                 .faults = {.on_error = {.initial_backoff = std::chrono::milliseconds{0},
                                         .max_failures = ~std::uint64_t{0},
                                         .max_failure_rate = 1}},
                 .tuning = {.chunk = one_of<std::size_t>({0, 0, 1, 2, 5})}};
  if (one_in(4)) {
    how.options.workers = ps::automatic;
    how.options.tuning.max_workers = 1 + below(4);
  }
  if (one_in(6)) how.options.prefetch = ps::automatic;
  how.data = {.count = how.who.samples, .key = below(1000)};
  if (!one_in(3)) {
    auto& policy = how.options.faults.on_error;
    policy.retries = below(3);
    policy.action =
        one_of({ps::error_action::rethrow, ps::error_action::replace, ps::error_action::skip});
    how.data.bad_in = policy.action == ps::error_action::rethrow
                          ? one_of<std::uint64_t>({0, 60, 200})
                          : one_of<std::uint64_t>({0, 2, 10});
    // The outcome of a temporary failure is predictable only if failed reads are retried and each
    // sample occurs once per batch. Reads of substitutes are not retried.
    const bool has_twice =
        how.who.last == ps::last_batch::pad && how.who.batch_size > how.who.samples;
    if (policy.action != ps::error_action::replace && !has_twice) {
      how.data.flaky_in = one_of<std::uint64_t>({0, 3, 20});
      how.data.flaky_fails = policy.retries;
    }
  }
  how.data.other_size = std::make_shared<std::atomic<std::uint64_t>>(0);
  moody order{ps::shuffled{.seed = how.who.order_seed}};
  bad_epoch_ = order.bad_epoch;
  gate_ = order.before;
  if (one_in(4)) *bad_epoch_ = 2 + below(3);
  loader_.emplace(how.data, order, device_, how.options);
  loader_number_ = ++numbers_;
  loader_next_ = ps::batch_position{};
  slots_ = loader_->footprint().slot_count;
  if (one_in(3)) make_feed();
}

inline void machine::make_feed() {
  require(!is_live(), "model: a feed is made between ranges");
  how_.depth = 1 + below(4);
  const ps::cpu_stream_ref stream =
      one_in(3) ? device_.inline_stream() : ps::cpu_stream_ref{stream_};
  const ps::transfer_options options{.depth = how_.depth};
  if (one_in(2)) {
    end_walks();  // walks refer to members of the loader
    owner_.emplace(std::move(*loader_), stream, options);
    loader_.reset();
    count("owning feed");
  } else {
    feed_.emplace(*loader_, stream, options);
    count("feed");
  }
  feed_number_ = ++numbers_;
  feed_next_ = ps::batch_position{};
}

inline void machine::drop_feed() {
  if (!has_feed()) return;
  if (owner_) loader_number_ = 0;
  feed_.reset();
  owner_.reset();
  feed_number_ = 0;
}

inline void machine::drop_world() {
  if (opener_.joinable()) opener_.join();
  if (gate_) counts_["order that hung"] += gate_->waits.exchange(0);
  drop_feed();
  loader_.reset();
  loader_number_ = 0;
  end_walks(one_in(2));
}

inline void machine::end_walks(bool all) {
  if (all) {
    live_.reset();
    idle_.clear();
    return;
  }
  const auto is_source = [](const auto& one) {
    return dynamic_cast<source_walk*>(one.get()) != nullptr;
  };
  if (live_ && is_source(live_)) live_.reset();
  idle_.erase(std::remove_if(idle_.begin(), idle_.end(), is_source), idle_.end());
}

inline void machine::move_loader() {
  if (owner_) {
    owner_type elsewhere{std::move(*owner_)};
    owner_.emplace(std::move(elsewhere));
    count("moved feed");
  } else if (loader_ && !feed_) {
    loader_type elsewhere{std::move(*loader_)};
    if (one_in(2)) {
      loader_.emplace(std::move(elsewhere));
    } else {
      *loader_ = std::move(elsewhere);
    }
    count("moved loader");
  }
}

inline void machine::destroy_feed() {
  if (!has_feed()) return;
  count(is_live() ? "feed destroyed under a range" : "feed destroyed");
  if (is_live() && live_->is_feed()) must_.reset();
  drop_feed();
}

inline void machine::destroy_loader() {
  if (!loader_) return;
  destroy_feed();
  count(is_live() ? "loader destroyed under a range" : "loader destroyed");
  if (is_live()) must_.reset();
  end_walks(false);
  loader_.reset();
  loader_number_ = 0;
}

inline void machine::remake_feed() {
  if (!loader_ || is_live()) return;
  drop_feed();
  make_feed();
}

inline void machine::clear() {
  drop_world();
  leases_.clear();
  while (!away_.empty()) end_away();
  await_stream();
  saved_.reset();
}

}  // namespace stress
