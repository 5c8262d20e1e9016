// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <penstock/penstock.hpp>

#include "flow/state_machine/chaotic.hpp"
#include "flow/state_machine/expected.hpp"
#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/mismatch.hpp"
#include "flow/state_machine/take_a_while.hpp"
#include "flow/state_machine/walk.hpp"

namespace stress {

namespace ps = penstock;

/// The exception that the body of a consumer's loop throws.
struct consumer_error {};

inline void machine::loop() {
  if (!has_source() || is_live()) return;
  live_.reset();
  must_.reset();
  const std::uint64_t first = below(3);
  const std::uint64_t last = first + below(3);
  if (owner_) {
    loop_over(*owner_, first, last, true);
  } else if (feed_) {
    loop_over(*feed_, first, last, true);
  } else {
    loop_over(*loader_, first, last, false);
  }
}

template <class Feed>
void machine::loop_over(Feed& feed, std::uint64_t first, std::uint64_t last, bool is_feed) {
  const std::uint64_t leave_at = one_in(2) ? below(5) : ~std::uint64_t{0};
  const bool throws = one_in(2);
  left_.clear();
  for (std::uint64_t epoch = first; epoch < last; ++epoch) {
    for (std::uint64_t i = 0; i < how_.who.batches(); ++i) left_.push_back({epoch, i});
  }
  is_of_none_ = left_.empty();
  record_next(is_feed, {first, 0});
  if (is_feed) loader_next_.reset();
  late_ = 0;
  std::uint64_t seen = 0;
  // In some runs, another thread requests a stop at a random time during the loop.
  std::optional<std::jthread> canceller;
  if (one_in(40)) {
    canceller.emplace([stop = stop_, turns = below(200)]() mutable {
      take_a_while(turns);
      stop.request_stop();
    });
    count("loop to be cancelled");
  }
  const auto body = [&](auto& batch) {
    const expected must = on_batch(is_feed, batch.info());
    check_in_loop(batch, must);
    if (one_in(8) && leases_.size() < max_leases) {
      leases_.push_back({std::move(batch), std::make_shared<const expected>(must),
                         is_feed ? feed_number_ : loader_number_});
    }
    if (seen++ < leave_at) return true;
    if (throws) throw consumer_error{};
    return false;
  };
  try {
    bool is_left = false;
    for (auto& batch : feed.epochs(first, last)) {
      is_left = !body(batch);
      if (is_left) break;
    }
    if (!is_left) on_end();
    if (is_left) count("break");
  } catch (const consumer_error&) {
    count("exception in the loop");
  } catch (const bad_sample& error) {
    record_bad(is_feed, error);
  } catch (const no_order&) {
    record_no_order(is_feed, false);
  } catch (const ps::dataset_changed&) {
    record_no_order(is_feed, true);
  } catch (const ps::leases_exhausted&) {
    record_exhausted(is_feed);
  } catch (const ps::cancelled&) {
    if (canceller) is_cancelled_ = true;
    record_cancelled(is_feed);
  }
  if (canceller) {
    canceller->join();
    is_cancelled_ = true;
  }
  await_stream();
}

inline void machine::check_in_loop(const device_lease& batch, const expected& must) {
  const auto labels = ps::get<"label">(batch).flat();
  batch.stream().launch([labels, wanted = must.labels] {
    require(std::equal(labels.begin(), labels.end(), wanted.begin(), wanted.end()),
            "other samples under the work of a stream");
  });
}

inline void machine::check_in_loop(const host_lease& batch, const expected& must) {
  look_at(batch, must);
}

}  // namespace stress
