// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/order/random.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::log_buckets;

namespace {

ps::duration_stats stats_of(const std::vector<std::uint64_t>& ticks) {
  ps::detail::histogram filled;
  for (const std::uint64_t one : ticks) filled.add(one);
  ps::duration_stats all;
  filled.add_to(all);
  return all;
}

bool is_a_sixteenth_off_at_most(std::chrono::nanoseconds found, double exact) {
  return std::abs(static_cast<double>(found.count()) - exact) <= exact / 16 + 0.5;
}

}  // namespace

TEST_CASE("every value is in a bucket of at most an eighth of its size", "[observe]") {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 5000; ++i) numbers.push_back(i);
  for (unsigned power = 12; power < 44; ++power) {
    const std::uint64_t at = std::uint64_t{1} << power;
    for (const std::uint64_t number : {at - 1, at, at + 1, at + at / 3}) numbers.push_back(number);
  }
  std::size_t outside = 0;
  std::size_t wide = 0;
  for (const std::uint64_t number : numbers) {
    const std::size_t bucket = log_buckets::of(number);
    const std::uint64_t first = log_buckets::first(bucket);
    const std::uint64_t last = log_buckets::last(bucket);
    if (number < first || number > last) ++outside;
    if ((last - first) * 8 > number) ++wide;
  }
  CHECK(outside == 0);
  CHECK(wide == 0);
  for (const unsigned power : {44U, 50U, 63U}) {
    CHECK(log_buckets::of(std::uint64_t{1} << power) == log_buckets::count - 1);
  }
}

TEST_CASE("a quantile between two durations is the shorter duration", "[observe]") {
  const auto all = stats_of({2, 4, 6, 7});
  CHECK(all.quantile(0.25).count() == 2);
  CHECK(all.quantile(0.5).count() == 4);
  CHECK(all.quantile(0.75).count() == 6);
  CHECK(all.quantile(0.76).count() == 7);
}

TEST_CASE("ticks convert to the nearest nanosecond", "[observe]") {
  auto all = stats_of({2, 4});
  all.nanoseconds_per_tick = 0.4;
  CHECK(all.total().count() == 2);      // 6 ticks are 2.4 ns, rounded down
  CHECK(all.longest().count() == 2);    // 4 ticks are 1.6 ns, rounded up
  CHECK(all.quantile(0).count() == 1);  // 2 ticks are 0.8 ns, rounded up
}

TEST_CASE("quantiles differ from the sorted list by at most a sixteenth", "[observe]") {
  std::vector<std::uint64_t> ticks;
  ps::sample_generator random{{7, 0}, 0};
  for (int i = 0; i < 10'000; ++i) {
    // Durations are log-uniform between ten and ten million.
    const double power = ps::uniform(random, 1.0, 7.0);
    ticks.push_back(static_cast<std::uint64_t>(std::pow(10.0, power)));
  }
  const auto all = stats_of(ticks);
  std::sort(ticks.begin(), ticks.end());
  CHECK(all.count() == ticks.size());
  for (const double share : {0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999}) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * 10'000.0));
    const auto exact = static_cast<double>(ticks[rank == 0 ? 0 : rank - 1]);
    INFO(share);
    CHECK(is_a_sixteenth_off_at_most(all.quantile(share), exact));
  }
  CHECK(all.longest().count() == static_cast<std::int64_t>(ticks.back()));
  CHECK(all.quantile(1) <= all.longest());
  std::uint64_t sum = 0;
  for (const std::uint64_t one : ticks) sum += one;
  CHECK(all.total().count() == static_cast<std::int64_t>(sum));
}

TEST_CASE("quantiles of an empty set are 0", "[observe]") {
  const ps::duration_stats none;
  CHECK(none.count() == 0);
  CHECK(none.quantile(0.5).count() == 0);
  CHECK(none.longest().count() == 0);
  CHECK((none - none).longest().count() == 0);
}

TEST_CASE("times are reported in nanoseconds for any tick length", "[observe]") {
  auto all = stats_of({1000, 1000, 3000});
  all.nanoseconds_per_tick = 0.5;
  CHECK(all.longest() == std::chrono::nanoseconds{1500});
  CHECK(all.total() == std::chrono::nanoseconds{2500});
  CHECK(is_a_sixteenth_off_at_most(all.quantile(0.5), 500));
}

TEST_CASE(
    "a difference has the times between the snapshots, and its maximum is the bucket's "
    "limit",
    "[observe]") {
  const auto before = stats_of({100, 5000});
  const auto between = stats_of({100, 5000, 100, 200, 300}) - before;
  CHECK(between.count() == 3);
  CHECK(between.total_ticks == 600);
  CHECK(between.longest().count() >= 300);
  CHECK(between.longest().count() <= 300 + 300 / 8);
  const auto longer = stats_of({100, 5000, 9000}) - before;
  CHECK(longer.longest().count() == 9000);
}

TEST_CASE("a sum contains the times of both operands", "[observe]") {
  const auto both = stats_of({100, 200}) + stats_of({7000});
  CHECK(both.count() == 3);
  CHECK(both.total_ticks == 7300);
  CHECK(both.longest().count() == 7000);
}
