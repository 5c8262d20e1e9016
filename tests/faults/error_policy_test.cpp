// SPDX-License-Identifier: BSL-1.0
#include <penstock/faults/error_policy.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

/// Returns the option that the error names, or "none" if no error is thrown.
std::string rejected(const ps::error_policy& policy) {
  return test::rejection_of([&] { ps::detail::require_valid(policy); }).option;
}

std::vector<std::uint64_t> drawn(const ps::random_key& key, std::uint64_t sample,
                                 std::uint64_t size, int count) {
  ps::detail::substitutes others{key, sample, size};
  std::vector<std::uint64_t> all;
  for (int i = 0; i < count; ++i) all.push_back(others.next());
  return all;
}

}  // namespace

TEST_CASE("a default policy propagates every exception at once", "[faults]") {
  CHECK(rejected({}) == "none");
  CHECK(ps::detail::is_plain({}));
  CHECK_FALSE(ps::detail::is_plain({.retries = 1}));
  CHECK_FALSE(ps::detail::is_plain({.action = ps::error_action::skip}));
  CHECK_FALSE(ps::detail::is_plain({.action = ps::error_action::replace}));
}

TEST_CASE("a contradictory policy is rejected by the name of its option",
          "[faults][promise:honest-7]") {
  CHECK(rejected({.retries = 100}) == "none");
  CHECK(rejected({.retries = 101}) == "faults.on_error.retries");
  CHECK(rejected({.retries = static_cast<std::size_t>(-1)}) == "faults.on_error.retries");
  CHECK(rejected({.initial_backoff = 0ms}) == "none");
  CHECK(rejected({.initial_backoff = -1ms}) == "faults.on_error.initial_backoff");
  CHECK(rejected({.initial_backoff = 24h}) == "none");
  CHECK(rejected({.initial_backoff = 24h + 1ms}) == "faults.on_error.initial_backoff");
  CHECK(rejected({.action = static_cast<ps::error_action>(3)}) == "faults.on_error.action");
  CHECK(rejected({.max_failure_rate = 0}) == "none");
  CHECK(rejected({.max_failure_rate = 1}) == "none");
  CHECK(rejected({.max_failure_rate = -0.01}) == "faults.on_error.max_failure_rate");
  CHECK(rejected({.max_failure_rate = 1.01}) == "faults.on_error.max_failure_rate");
  CHECK(rejected({.max_failure_rate = std::nan("")}) == "faults.on_error.max_failure_rate");
  CHECK_THROWS_MATCHES(
      ps::detail::require_valid(ps::error_policy{.initial_backoff = -5ms}), ps::option_error,
      Catch::Matchers::Message(
          "faults.on_error.initial_backoff: must lie between 0 ms and a day, but is -5 ms"));
}

TEST_CASE("the backoff of a retry doubles up to ten seconds", "[faults]") {
  const ps::error_policy policy{.retries = 100, .initial_backoff = 3s};
  CHECK(ps::detail::wait_before(policy, 1) == 3s);
  CHECK(ps::detail::wait_before(policy, 2) == 6s);
  CHECK(ps::detail::wait_before(policy, 3) == 10s);
  CHECK(ps::detail::wait_before(policy, 100) == 10s);
  const ps::error_policy patient{.retries = 100,
                                 .initial_backoff = 24h};  // longer than `max_backoff`
  CHECK(ps::detail::wait_before(patient, 1) == 24h);
  CHECK(ps::detail::wait_before(patient, 100) == 24h);
  const ps::error_policy at_once{.retries = 100, .initial_backoff = 0ms};
  CHECK(ps::detail::wait_before(at_once, 100) == 0ms);
}

TEST_CASE("substitute draws depend on seed, epoch and index, and never give the sample itself",
          "[faults]") {
  const auto first = drawn({.seed = 1, .epoch = 2}, 7, 1'000'000, 8);
  CHECK(first == drawn({.seed = 1, .epoch = 2}, 7, 1'000'000, 8));
  CHECK(first == drawn({.seed = 1, .epoch = 2, .stage = 5}, 7, 1'000'000, 8));
  CHECK(first != drawn({.seed = 2, .epoch = 2}, 7, 1'000'000, 8));
  CHECK(first != drawn({.seed = 1, .epoch = 3}, 7, 1'000'000, 8));
  CHECK(first != drawn({.seed = 1, .epoch = 2}, 8, 1'000'000, 8));
  for (std::uint64_t size = 2; size < 6; ++size) {
    for (std::uint64_t sample = 0; sample < size; ++sample) {
      const auto all = drawn({.seed = 3}, sample, size, 200);
      std::set<std::uint64_t> expected;
      for (std::uint64_t other = 0; other < size; ++other) {
        if (other != sample) expected.insert(other);
      }
      CHECK(std::set<std::uint64_t>(all.begin(), all.end()) == expected);
    }
  }
}
