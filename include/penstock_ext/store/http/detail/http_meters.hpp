// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/threads/support/tally.hpp>
#include <penstock_ext/store/http/detail/exchange.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What the reactor counts, and any thread reads.
class http_meters {
 public:
  /// The reactor: so many ranges came, and so many were merged into the request of another one.
  void ask(std::size_t ranges, std::size_t merged) noexcept {
    ranges_.add(ranges);
    merged_.add(merged);
  }

  /// The reactor: an attempt starts, after which so many are under way.
  void begin(bool is_retry, std::size_t in_flight) noexcept {
    requests_.add(1);
    if (is_retry) retries_.add(1);
    in_flight_.set(in_flight);
    if (in_flight > most_in_flight_.value()) most_in_flight_.set(in_flight);
  }

  /// The reactor: a part of an object has come, of which nothing but the size tells the version.
  void take_unversioned() noexcept { unversioned_.add(1); }

  /// The reactor: an attempt ends, by itself or not, after which so many are under way.
  void end(const http_exchange& one, std::size_t in_flight) noexcept {
    in_flight_.set(in_flight);
    long connections = 0;
    ::curl_off_t microseconds = 0;
    ::curl_easy_getinfo(one.easy.get(), CURLINFO_NUM_CONNECTS, &connections);
    ::curl_easy_getinfo(one.easy.get(), CURLINFO_STARTTRANSFER_TIME_T, &microseconds);
    connections_.add(static_cast<std::uint64_t>(connections));
    bytes_.add(one.received);
    if (microseconds > 0) first_byte_.add(static_cast<std::uint64_t>(microseconds));
  }

  /// All of it so far. From any thread.
  [[nodiscard]] http_stats snapshot() const {
    http_stats stats{.ranges = ranges_.value(),
                     .requests = requests_.value(),
                     .retries = retries_.value(),
                     .merged = merged_.value(),
                     .unversioned = unversioned_.value(),
                     .bytes = bytes_.value(),
                     .connections = connections_.value(),
                     .in_flight = in_flight_.value(),
                     .most_in_flight = most_in_flight_.value(),
                     .first_byte = {}};
    first_byte_.add_to(stats.first_byte);
    stats.first_byte.nanoseconds_per_tick = 1000;
    return stats;
  }

 private:
  tally ranges_;
  tally requests_;
  tally retries_;
  tally merged_;
  tally unversioned_;
  tally bytes_;
  tally connections_;
  tally in_flight_;
  tally most_in_flight_;
  histogram first_byte_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
