// SPDX-License-Identifier: BSL-1.0
#include <penstock/order/weighted.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock/threads/flush_to_zero.hpp>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "support/rejection.hpp"
#include "support/statistics.hpp"

namespace ps = penstock;

namespace {

using table = ps::detail::alias_table;

constexpr double full = 0x1p32;

/// Returns the share of the columns that each sample occupies, in units of 2^-32 of a column.
std::vector<std::uint64_t> held(const table& of) {
  const auto columns = of.columns();
  std::vector<std::uint64_t> sum(columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    sum[i] += columns[i].keep;
    sum[columns[i].alias] += (std::uint64_t{1} << 32) - columns[i].keep;
  }
  return sum;
}

template <class Real>
table table_of(const std::vector<Real>& weights) {
  return table{std::span<const Real>{weights}};
}

/// Returns the largest error of a sample's share, in units of 2^-32 of a column. Requires samples
/// of weight 0 to have no share.
template <class Real>
double worst_error(const std::vector<Real>& weights) {
  long double sum = 0;
  for (const Real weight : weights) sum += static_cast<long double>(weight);
  const auto shares = held(table_of(weights));
  REQUIRE(std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}) ==
          std::uint64_t{weights.size()} << 32);
  long double worst = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) REQUIRE(shares[i] == 0);
    const long double exact = static_cast<long double>(weights[i]) / sum *
                              static_cast<long double>(weights.size()) *
                              static_cast<long double>(full);
    worst = std::max(worst, std::abs(static_cast<long double>(shares[i]) - exact));
  }
  return static_cast<double>(worst);
}

indices draws_of(const ps::weighted& sampler, std::uint64_t n, std::uint64_t epoch) {
  indices out(static_cast<std::size_t>(sampler.size(n)));
  sampler.order(n, epoch).fill(0, out);
  return out;
}

std::vector<double> counts_of(const indices& draws, std::size_t n) {
  std::vector<double> counts(n);
  for (const std::uint64_t index : draws) ++counts[static_cast<std::size_t>(index)];
  return counts;
}

template <class Weights>
std::string problem_of(const Weights& weights, std::uint64_t n = 3) {
  return test::rejection_of([&] { static_cast<void>(ps::weighted{weights}.size(n)); }).text;
}

/// A range that reports more weights than memory could hold. Reading a weight fails the test.
struct too_many {
  const float* begin() const { return &one; }
  const float* end() const { return &one; }
  std::size_t size() const { return std::size_t{1} << 32; }
  float one = 1;
};

}  // namespace

TEMPLATE_TEST_CASE("an alias table represents each weight to two units of 2^-32",
                   "[order][promise:exact-4]", float, double) {
  ps::sample_generator gen{{.seed = 1}, 0};
  using weights = std::vector<TestType>;
  std::vector<weights> cases{
      {1},
      {3, 3},
      {1, 2, 3, 4},
      {0, 1, 0},
      {0, 0, TestType(0.1), -TestType{0}, TestType(0.3)},
      {1, TestType(1e-3), TestType(1e-6), TestType(1e-12)},
      {std::numeric_limits<TestType>::max(), 1, 0, std::numeric_limits<TestType>::max()},
      {std::numeric_limits<TestType>::denorm_min(), 0,
       3 * std::numeric_limits<TestType>::denorm_min(), std::numeric_limits<TestType>::min()}};
  for (const std::size_t n : {7u, 100u, 1000u, 4096u}) {
    weights even(n, TestType(0.7)), uniform, spread, few, rising(n), falling(n);
    for (std::size_t i = 0; i < n; ++i) {
      uniform.push_back(ps::uniform(gen, TestType{0}, TestType{1}));
      spread.push_back(std::ldexp(TestType{1}, ps::uniform(gen, -60, 60)));
      few.push_back(ps::bernoulli(gen, 0.1) ? TestType{5} : TestType{0});
      rising[i] = falling[n - 1 - i] = static_cast<TestType>(i);
    }
    few[n / 2] = 1;
    for (const auto& of : {even, uniform, spread, few, rising, falling}) cases.push_back(of);
  }
  for (const weights& of : cases) {
    CAPTURE(of.size(), of);
    REQUIRE(worst_error(of) < 2);
  }
}

TEST_CASE("the sum of small weights is kept next to a large one", "[order]") {
  // The probability of each small weight is less than one unit. All 2^16 small weights together
  // have a probability of up to 2^-9.
  const double small_one = GENERATE(1.5 * 0x1p-26, 1.5 * 0x1p-58, 1.5 * 0x1p-106, 1.5 * 0x1p-900);
  const std::size_t n = (std::size_t{1} << 16) + 1;
  std::vector<double> weights(n, small_one);
  weights[n / 3] = 1;
  const std::uint64_t large = held(table_of(weights))[n / 3];
  const double all = static_cast<double>(n - 1) * small_one;
  const double expected = all / (all + 1) * static_cast<double>(n) * full;
  CHECK(static_cast<double>((std::uint64_t{n} << 32) - large) == Approx(expected).margin(2));
}

TEST_CASE("a column returns its own sample below its threshold, and the alias above", "[order]") {
  const table of = table_of(std::vector<double>{0, 1, 3, 0, 2});
  for (std::uint32_t which = 0; which < 5; ++which) {
    const auto [alias, keep] = of.columns()[which];
    CHECK(of.at(which, keep) == alias);
    CHECK(of.at(which, 0xffffffffu) == alias);
    CHECK(of.at(which, 0) == (keep == 0 ? alias : which));
    if (keep != 0) CHECK(of.at(which, keep - 1) == which);
  }
  CHECK(of.at(0, 0) != 0);
  CHECK(of.at(3, 0) != 3);
}

TEST_CASE("the unit of the weights does not matter, nor float or double", "[order]") {
  std::vector<double> weights;
  ps::sample_generator gen{{.seed = 2}, 0};
  for (int k = 0; k < 500; ++k) weights.push_back(ps::uniform(gen, 0.0f, 1.0f));
  const auto shares = held(table_of(weights));
  for (const double unit : {0x1p-1000, 0x1p900, 4.0}) {
    std::vector<double> scaled = weights;
    for (double& weight : scaled) weight *= unit;
    CHECK(held(table_of(scaled)) == shares);
  }
  CHECK(held(table_of(std::vector<float>(weights.begin(), weights.end()))) == shares);
}

TEST_CASE("a table is the same if denormals are flushed to zero", "[order]") {
  std::vector<double> weights;
  for (int k = 1; k <= 40; ++k) weights.push_back(k * std::numeric_limits<double>::denorm_min());
  const auto shares = held(table_of(weights));
  const ps::scoped_flush_to_zero as_on_a_worker;
  CHECK(held(table_of(weights)) == shares);
}

TEST_CASE("samples are drawn in proportion to their weights",
          "[order][statistics][promise:exact-4]") {
  std::vector<double> even(50, 2.5), steps, steep, gaps;
  for (int k = 0; k < 50; ++k) {
    steps.push_back(k + 1);
    steep.push_back(std::exp(-0.15 * k));
    gaps.push_back(k % 3 == 0 ? 0 : k);
  }
  for (const auto& weights : {even, steps, steep, gaps}) {
    const ps::weighted sampler{weights, {.seed = 4, .draws = 400'000u / slowness}};
    CHECK(chance_of(counts_of(draws_of(sampler, 50, 0), 50), weights) > false_alarm);
  }
  // The test can detect a change of a tenth in one of fifty weights.
  std::vector<double> other = even;
  other[17] *= 1.1;
  const ps::weighted sampler{other, {.seed = 4, .draws = 4'000'000}};
  const auto counts = counts_of(draws_of(sampler, 50, 0), 50);
  CHECK(chance_of(counts, other) > false_alarm);
  CHECK(chance_of(counts, even) < false_alarm);
}

TEST_CASE("draws at neighboring places, in two epochs, and with two seeds are independent",
          "[order][statistics][promise:exact-4]") {
  const std::vector<double> weights{1, 2, 3, 4, 5, 6, 7, 8};
  const std::uint64_t count = 200'000u / slowness;
  const ps::weighted one{weights, {.seed = 5, .draws = count}};
  const ps::weighted two{weights, {.seed = 6, .draws = count}};
  const indices draws = draws_of(one, 8, 0);
  std::vector<double> pairs(64);
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = 0; b < 8; ++b) pairs[a * 8 + b] = weights[a] * weights[b];
  }
  const auto check = [&](const indices& others, std::size_t step, std::size_t shift) {
    std::vector<double> found(64);
    for (std::size_t k = 0; k + shift < draws.size(); k += step) {
      ++found[static_cast<std::size_t>(draws[k] * 8 + others[k + shift])];
    }
    CHECK(chance_of(found, pairs) > false_alarm);
  };
  check(draws, 2, 1);
  check(draws_of(one, 8, 1), 1, 0);
  check(draws_of(two, 8, 0), 1, 0);
  check(draws_of(two, 8, 1), 1, 0);
}

TEST_CASE("draws work from more than 2^24 weights", "[order][statistics][promise:exact-4]") {
  const std::size_t first = std::size_t{1} << 24;
  const std::size_t behind = 1000;
  std::vector<float> weights(first + behind);
  std::vector<double> expected;
  weights[5] = 100;
  expected.push_back(100);
  for (std::size_t i = 0; i < behind; ++i) {
    weights[first + i] = static_cast<float>(i % 10);
    expected.push_back(static_cast<double>(i % 10));
  }
  const ps::weighted sampler{weights, {.seed = 7, .draws = 400'000}};
  std::vector<double> counts(behind + 1);
  for (const std::uint64_t index : draws_of(sampler, weights.size(), 0)) {
    REQUIRE((index == 5 || index >= first));
    ++counts[index == 5 ? 0 : static_cast<std::size_t>(index - first + 1)];
  }
  CHECK(chance_of(counts, expected) > false_alarm);
}

TEST_CASE("a draw is a function of seed, epoch and place", "[order]") {
  const std::vector<double> weights(1000, 1.0);
  const ps::weighted sampler{weights, {.seed = 1}};
  const indices epoch = draws_of(sampler, 1000, 3);
  CHECK(epoch.size() == 1000);
  CHECK(epoch == draws_of(ps::weighted{weights, {.seed = 1}}, 1000, 3));
  CHECK(epoch != draws_of(sampler, 1000, 4));
  CHECK(epoch != draws_of(ps::weighted{weights, {.seed = 2}}, 1000, 3));
  const auto order = sampler.order(1000, 3);
  indices pieces(1000);
  for (std::size_t first = 0; first < 1000; first += 8) {
    order.fill(first, std::span{pieces}.subspan(first, 8));
  }
  CHECK(pieces == epoch);
  // A longer epoch begins with the same draws as a shorter epoch.
  const indices longer = draws_of(ps::weighted{weights, {.seed = 1, .draws = 2500}}, 1000, 3);
  REQUIRE(longer.size() == 2500);
  CHECK(std::equal(epoch.begin(), epoch.end(), longer.begin()));
}

TEST_CASE("draws never change: golden indices", "[order][promise:exact-3]") {
  std::vector<double> weights(100);
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = 0.1 * static_cast<double>(i * i);
  indices run(6);
  const ps::weighted sampler{weights, {.seed = 1, .draws = 1'000'000'000'000}};
  sampler.order(100, 0).fill(0, run);
  CHECK(run == indices{34, 81, 93, 66, 54, 94});
  sampler.order(100, 2).fill(500'000'000'000, run);
  CHECK(run == indices{97, 81, 59, 47, 47, 95});
}

TEST_CASE("a draw does not use the bits of a map of the same sample", "[order]") {
  // Equal weights fill every column completely, so that the draws expose the random bits.
  const std::vector<float> weights(1000, 1.0f);
  const indices draws = draws_of(ps::weighted{weights, {.seed = 8}}, 1000, 0);
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    std::size_t same = 0;
    for (std::size_t k = 0; k < draws.size(); ++k) {
      ps::sample_generator gen{{.seed = 8, .stage = stage}, k};
      same += draws[k] == ps::uniform(gen, std::uint64_t{0}, std::uint64_t{999}) ? 1u : 0u;
    }
    CHECK(same < 10);
  }
}

TEST_CASE("a loader keeps the table of a destroyed sampler", "[order]") {
  const numbered data{.count = 100};
  std::vector<float> weights(100);
  weights[40] = 1;
  weights[41] = 2;
  auto sampler = std::make_unique<ps::weighted>(weights, ps::weighted_options{.draws = 300});
  const indices expected = draws_of(*sampler, 100, 0);
  ps::loader plain{data, *sampler, {.batch_size = 10, .workers = 2}};
  ps::loader dealt{data,
                   ps::sharded{*sampler, {.rank = 1, .world = 2, .global_batch = 20}},
                   {.batch_size = 10, .workers = 2}};
  sampler.reset();
  weights.assign(100, 1.0f);
  indices seen;
  for (auto& batch : plain.epoch(0)) {
    for (const std::uint64_t label : labels_of(batch)) seen.push_back(label);
  }
  CHECK(seen == expected);
  std::uint64_t batches = 0;
  for (auto& batch : dealt.epoch(0)) {
    const auto from = expected.begin() + static_cast<std::ptrdiff_t>(20 * batch.number() + 10);
    CHECK(labels_of(batch) == indices(from, from + 10));
    ++batches;
  }
  CHECK(batches == 15);
}

TEST_CASE("invalid weights are rejected by index and value", "[order]") {
  using doubles = std::vector<double>;
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(problem_of(doubles{}) == "weights: expected at least one, found none");
  CHECK(problem_of(doubles{0, 0, -0.0}) == "weights: expected one above 0, found 3 zeros");
  CHECK(problem_of(doubles{1, 2, -0.5}) ==
        "weights: expected finite numbers >= 0, found -0.5 at index 2");
  CHECK(problem_of(doubles{1, -5e-324, 2}) ==
        "weights: expected finite numbers >= 0, found -5e-324 at index 1");
  CHECK(problem_of(std::array<double, 3>{infinity, 1, 1}) ==
        "weights: expected finite numbers >= 0, found inf at index 0");
  CHECK(problem_of(doubles{1, std::nan(""), infinity}) ==
        "weights: expected finite numbers >= 0, found nan at index 1");
  CHECK(problem_of(std::vector<float>{1, 1, -std::nanf("")}).find("at index 2") !=
        std::string::npos);
  CHECK(problem_of(doubles{1, 2, 3}, 4) ==
        "weights: expected one weight for each of the dataset's 4 samples, found 3");
  CHECK_THROWS_AS(ps::weighted{doubles(3, 1.0)}.size(2), ps::option_error);
  const ps::weighted three{doubles(3, 1.0)};
  CHECK_THROWS_AS(three.order(2, 0), ps::option_error);
  CHECK(problem_of(too_many{}) == "weights: expected at most 2^32 - 1, found 4294967296");
  CHECK(problem_of(doubles{1e-300, 0, 1e300}) == "none");
}

TEST_CASE("an order of a temporary sampler does not compile, float and double weights do",
          "[order]") {
  constexpr auto orders = []<class T>(std::type_identity<T>) {
    return requires(T sampler) { std::forward<T>(sampler).order(1, 0); };
  };
  STATIC_REQUIRE(orders(std::type_identity<const ps::weighted&>{}));
  STATIC_REQUIRE_FALSE(orders(std::type_identity<ps::weighted>{}));
  STATIC_REQUIRE(std::is_constructible_v<ps::weighted, std::span<const float>>);
  STATIC_REQUIRE(std::is_constructible_v<ps::weighted, const std::array<double, 3>&>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<ps::weighted, std::vector<int>>);
  STATIC_REQUIRE(std::is_trivially_copyable_v<ps::detail::weighted_order>);
  STATIC_REQUIRE(sizeof(ps::detail::weighted_order) <= 40);
}
