// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/samplers/by_tokens.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/order/sharded.hpp>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using lengths_of_samples = std::vector<std::uint32_t>;

/// Returns long-tailed lengths from 0 to `longest`, most of them short.
lengths_of_samples long_tailed(std::size_t n, std::uint32_t longest) {
  lengths_of_samples lengths(n);
  std::uint64_t state = 12345;
  for (auto& length : lengths) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double uniform = static_cast<double>(state >> 11) * 0x1p-53;
    length = std::min(longest, static_cast<std::uint32_t>(60 * uniform / (1.01 - uniform)));
  }
  return lengths;
}

/// Returns the batches of an epoch, split according to the sampler's batch sizes.
template <ps::sampler Sampler>
std::vector<indices> batches_of(const Sampler& sampler, std::uint64_t n, std::uint64_t epoch) {
  const auto order = sampler.order(n, epoch);
  std::vector<indices> all(sampler.size(n) / sampler.batch_size());
  for (std::size_t b = 0; b < all.size(); ++b) {
    all[b].resize(order.batch_size(b));
    order.fill(b * sampler.batch_size(), all[b]);
  }
  return all;
}

/// Returns the number of occurrences of each sample.
std::vector<std::size_t> counts_of(const std::vector<indices>& batches, std::size_t n) {
  std::vector<std::size_t> counts(n);
  for (const auto& batch : batches) {
    for (const std::uint64_t index : batch) ++counts.at(static_cast<std::size_t>(index));
  }
  return counts;
}

std::uint64_t cost_of(const indices& batch, const lengths_of_samples& lengths, bool padded) {
  std::uint64_t sum = 0;
  std::uint64_t longest = 0;
  for (const std::uint64_t index : batch) {
    sum += lengths[index];
    longest = std::max<std::uint64_t>(longest, lengths[index]);
  }
  return padded ? longest * batch.size() : sum;
}

/// Returns the sum of the slowest batch costs divided by the sum of the mean batch costs, over all
/// steps of `step` batches.
double imbalance(const std::vector<indices>& batches, const lengths_of_samples& lengths,
                 bool padded, std::size_t step) {
  double slowest = 0;
  double mean = 0;
  for (std::size_t begin = 0; begin < batches.size(); begin += step) {
    std::uint64_t max = 0;
    for (std::size_t i = begin; i < begin + step; ++i) {
      const std::uint64_t cost = cost_of(batches[i], lengths, padded);
      max = std::max(max, cost);
      mean += static_cast<double>(cost) / static_cast<double>(step);
    }
    slowest += static_cast<double>(max);
  }
  return slowest / mean;
}

std::string problem_of(const lengths_of_samples& lengths, const ps::by_tokens_options& options) {
  try {
    static_cast<void>(ps::by_tokens{lengths, options});
  } catch (const ps::option_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("batches by tokens have each sample once and keep the budget",
          "[samplers][large][promise:exact-22]") {
  const bool padded = GENERATE(false, true);
  for (const std::size_t n : {200U, 1000U, 4096U, 5003U, 20011U}) {
    const auto lengths = long_tailed(n, 1500);
    for (const std::uint64_t step : {1U, 4U, 6U}) {
      for (const std::uint64_t window : {1000U, 7000U}) {
        for (const std::uint64_t cap : {0U, 9U}) {
          const ps::by_tokens order{lengths,
                                    {.seed = n,
                                     .max_tokens = 2000,
                                     .window = window,
                                     .batches_per_step = step,
                                     .max_samples = cap,
                                     .padded = padded}};
          CAPTURE(n, step, window, cap, padded);
          REQUIRE(order.batches() % step == 0);
          if (cap != 0) REQUIRE(order.batch_size() <= cap);
          for (const std::uint64_t epoch : {0U, 1U}) {
            const auto batches = batches_of(order, n, epoch);
            REQUIRE(batches.size() == order.batches());
            REQUIRE(counts_of(batches, n) == std::vector<std::size_t>(n, 1));
            REQUIRE(std::all_of(batches.begin(), batches.end(), [&](const indices& batch) {
              return !batch.empty() && cost_of(batch, lengths, padded) <= 2000;
            }));
          }
        }
      }
    }
  }
}

TEST_CASE("samples of more than half the budget are alone in their batch",
          "[samplers][promise:exact-22]") {
  const bool padded = GENERATE(false, true);
  const lengths_of_samples lengths(100, 600);
  for (const std::uint64_t window : {1000U, 30U}) {
    const ps::by_tokens order{lengths,
                              {.seed = 1, .max_tokens = 1000, .window = window, .padded = padded}};
    CHECK(order.batches() == 100);
    CHECK(order.batch_size() == 1);
    CHECK(counts_of(batches_of(order, 100, 0), 100) == std::vector<std::size_t>(100, 1));
  }
}

TEST_CASE("if samples are few, a short one is repeated", "[samplers][promise:exact-22]") {
  const bool padded = GENERATE(false, true);
  for (const std::size_t n : {1U, 3U, 7U, 8U, 9U, 17U}) {
    lengths_of_samples lengths(n, 600);
    lengths.back() = 5;
    const ps::by_tokens order{
        lengths,
        {.seed = 1, .max_tokens = 1000, .window = 8, .batches_per_step = 8, .padded = padded}};
    const auto batches = batches_of(order, n, 3);
    const auto counts = counts_of(batches, n);
    CAPTURE(n, padded);
    CHECK(*std::min_element(counts.begin(), counts.end()) >= 1);
    CHECK(order.batches() == 8 * ((n + 7) / 8));
    const std::size_t windows = (n + 7) / 8;
    const std::size_t repeated = std::accumulate(counts.begin(), counts.end(), std::size_t{0}) - n;
    CHECK(repeated == 8 * windows - n);
    for (const auto& batch : batches) CHECK(cost_of(batch, lengths, padded) <= 1000);
  }
}

TEST_CASE("a sample is repeated only in a window with fewer samples than batches",
          "[samplers][promise:exact-22]") {
  const auto repeated = [](const lengths_of_samples& lengths,
                           const ps::by_tokens_options& options) {
    const auto counts =
        counts_of(batches_of(ps::by_tokens{lengths, options}, lengths.size(), 0), lengths.size());
    CHECK(*std::min_element(counts.begin(), counts.end()) == 1);
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0}) - lengths.size();
  };
  const bool padded = GENERATE(false, true);
  CAPTURE(padded);
  const auto of_ones = [&](std::size_t n, std::uint64_t window, std::uint64_t step) {
    return repeated(
        lengths_of_samples(n, 1),
        {.max_tokens = 2, .window = window, .batches_per_step = step, .padded = padded});
  };
  CHECK(of_ones(5, 3, 1) == 0);  // a window of two samples in two batches
  CHECK(of_ones(9, 5, 4) == 0);  // a window of four samples in four batches
  // The windows have 26, 25, 25 and 25 samples. Each sample fills a batch and each window needs 26
  // batches, so three samples are repeated.
  CHECK(repeated(lengths_of_samples(101, 600),
                 {.max_tokens = 1000, .window = 30, .padded = padded}) == 3);
}

TEST_CASE("a repeated sample is one of the shortest", "[samplers][promise:exact-22]") {
  const bool padded = GENERATE(false, true);
  const lengths_of_samples lengths{1000, 10, 10, 10};
  const ps::by_tokens order{
      lengths, {.max_tokens = 1000, .window = 8, .batches_per_step = 8, .padded = padded}};
  for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
    const auto counts = counts_of(batches_of(order, 4, epoch), 4);
    CHECK(counts[0] == 1);
    CHECK(std::accumulate(counts.begin(), counts.end(), std::size_t{0}) == 8);
  }
}

TEST_CASE("steps of batches by tokens are balanced, and fill the budget",
          "[samplers][promise:exact-22]") {
  const auto lengths = long_tailed(60000, 1500);
  for (const bool padded : {false, true}) {
    for (const std::uint64_t step : {2U, 8U, 32U}) {
      const ps::by_tokens order{lengths,
                                {.seed = 1,
                                 .max_tokens = 8192,
                                 .window = 30000,
                                 .batches_per_step = step,
                                 .padded = padded}};
      const auto batches = batches_of(order, lengths.size(), 0);
      CAPTURE(padded, step, order.batches());
      CHECK(imbalance(batches, lengths, padded, step) < 1.02);
      CHECK(order.fill() > (padded ? 0.88 : 0.95));
    }
  }
}

TEST_CASE("an order by tokens is the same for any access pattern", "[samplers][promise:exact-22]") {
  const auto lengths = long_tailed(5003, 1500);
  const ps::by_tokens order{lengths,
                            {.seed = 7, .max_tokens = 4000, .window = 900, .batches_per_step = 2}};
  const ps::by_tokens equal{lengths.size(),
                            [&](std::uint64_t i) { return std::uint64_t{lengths[i]}; },
                            {.seed = 7, .max_tokens = 4000, .window = 900, .batches_per_step = 2}};
  const indices expected = epoch_of(order, 5003, 1);
  CHECK(epoch_of(equal, 5003, 1) == expected);
  CHECK(equal.fingerprint() == order.fingerprint());
  for (const std::size_t part : {1U, 7U, 64U, 1000U}) {
    const auto epoch = equal.order(5003, 1);
    for (std::size_t end = expected.size(); end != 0;) {
      const std::size_t begin = end > part ? end - part : 0;
      indices some(end - begin);
      epoch.fill(begin, some);
      REQUIRE(std::equal(some.begin(), some.end(),
                         expected.begin() + static_cast<std::ptrdiff_t>(begin)));
      end = begin;
    }
  }
  CHECK(std::all_of(expected.begin(), expected.end(), [](std::uint64_t i) { return i < 5003; }));
}

TEST_CASE("epochs and seeds give the same number of different token batches",
          "[samplers][promise:exact-22]") {
  const auto lengths = long_tailed(3000, 1500);
  const bool padded = GENERATE(false, true);
  const auto first_batch = [&](std::uint64_t seed, std::uint64_t epoch) {
    const ps::by_tokens order{lengths, {.seed = seed, .max_tokens = 4000, .padded = padded}};
    const auto batches = batches_of(order, 3000, epoch);
    CHECK(batches.size() == order.batches());
    std::set<std::set<std::uint64_t>> all;
    for (const auto& batch : batches) all.emplace(batch.begin(), batch.end());
    return all;
  };
  const auto first = first_batch(1, 0);
  for (const auto& other : {first_batch(1, 1), first_batch(2, 0)}) {
    std::vector<std::set<std::uint64_t>> same;
    std::set_intersection(first.begin(), first.end(), other.begin(), other.end(),
                          std::back_inserter(same));
    CHECK(same.size() < first.size() / 10);  // batches of one or two samples may repeat
  }
}

TEST_CASE("any two samples of like length meet in a batch as often as others",
          "[samplers][statistics]") {
  // All samples in both windows have the same length. Each sample must meet every other sample
  // equally often.
  constexpr std::size_t n = 48;
  const lengths_of_samples lengths(n, 10);
  const ps::by_tokens order{lengths, {.seed = 5, .max_tokens = 40, .window = 24}};
  std::vector<double> met(n);
  constexpr std::uint64_t epochs = 20000;
  std::vector<double> batch_of_7(order.batches());
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
    const auto batches = batches_of(order, n, epoch);
    for (std::size_t b = 0; b < batches.size(); ++b) {
      if (std::find(batches[b].begin(), batches[b].end(), 7U) == batches[b].end()) continue;
      ++batch_of_7[b];
      for (const std::uint64_t index : batches[b]) ++met[index];
    }
  }
  met.erase(met.begin() + 7);
  double sum = 0;  // a chi-square with 46 degrees of freedom exceeds 90 once in ten thousand times
  for (const double count : met) {
    const double expected = 3.0 * epochs / 47;
    sum += (count - expected) * (count - expected) / expected;
  }
  CHECK(sum < 95);
  sum = 0;  // a chi-square with 11 degrees of freedom
  for (const double count : batch_of_7) {
    const double expected = double{epochs} / 12;
    sum += (count - expected) * (count - expected) / expected;
  }
  CHECK(sum < 40);
}

TEST_CASE("the ranks of any world share the batches of an order by tokens",
          "[samplers][promise:exact-22]") {
  const auto lengths = long_tailed(2000, 1500);
  const ps::by_tokens order{lengths,
                            {.seed = 3, .max_tokens = 4000, .window = 700, .batches_per_step = 12}};
  const auto all = batches_of(order, 2000, 2);
  for (const int world : {1, 2, 3, 4, 6, 12}) {
    const auto ranks = static_cast<std::size_t>(world);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const ps::sharded share{order, {.rank = static_cast<int>(rank), .world = world}};
      CHECK(share.batches_per_step() == 12);
      const auto mine = batches_of(share, 2000, 2);
      REQUIRE(mine.size() == all.size() / ranks);
      for (std::size_t b = 0; b < mine.size(); ++b) REQUIRE(mine[b] == all[b * ranks + rank]);
    }
  }
  CHECK_THROWS_MATCHES((ps::sharded{order, {.rank = 0, .world = 5}}), ps::option_error,
                       Catch::Matchers::Message(
                           "world: must divide the sampler's batches_per_step of 12, but is 5"));
  CHECK_THROWS_AS((ps::sharded{order, {.rank = 0, .world = 2, .global_batch = 24}}),
                  ps::option_error);
}

TEST_CASE("the fingerprint of token batches depends on every length and option", "[samplers]") {
  auto lengths = long_tailed(1000, 1500);
  const ps::by_tokens_options options{.seed = 3, .max_tokens = 4000};
  std::set<std::uint64_t> all{ps::by_tokens(lengths, options).fingerprint()};
  const auto with = [&](auto member, auto value) {
    auto other = options;
    other.*member = value;
    all.insert(ps::by_tokens(lengths, other).fingerprint());
  };
  with(&ps::by_tokens_options::seed, 4U);
  with(&ps::by_tokens_options::max_tokens, 4001U);
  with(&ps::by_tokens_options::window, 999U);
  with(&ps::by_tokens_options::batches_per_step, 2U);
  with(&ps::by_tokens_options::max_samples, 50U);
  with(&ps::by_tokens_options::padded, true);
  std::swap(lengths[0], lengths[999]);
  all.insert(ps::by_tokens(lengths, options).fingerprint());
  CHECK(all.size() == 8);
}

TEST_CASE("invalid options of by_tokens are rejected by name", "[samplers][promise:honest-7]") {
  const lengths_of_samples lengths{5, 20, 7};
  CHECK(problem_of(lengths, {.max_tokens = 0}) == "max_tokens: must be at least 1, but is 0");
  CHECK(problem_of(lengths, {.max_tokens = std::uint64_t{1} << 32}) ==
        "max_tokens: 4294967296 is above 4294967295");
  CHECK(problem_of(lengths, {.max_tokens = 20, .window = 0}) ==
        "window: must be at least 1, but is 0");
  CHECK(problem_of(lengths, {.max_tokens = 20, .window = (1U << 24) + 1}) ==
        "window: 16777217 is above 16777216");
  CHECK(problem_of(lengths, {.max_tokens = 20, .batches_per_step = 0}) ==
        "batches_per_step: must be at least 1, but is 0");
  CHECK(problem_of({}, {.max_tokens = 20}) == "lengths: must be at least 1, but is 0");
  CHECK(problem_of(lengths, {.max_tokens = 19}) ==
        "max_tokens: expected at most 19 values per sample, found 20 in sample 1: raise the limit, "
        "or "
        "exclude such samples (ps::exclude) or shorten them");
  CHECK(problem_of(lengths, {.max_tokens = 20}).empty());
  const ps::by_tokens order{lengths, {.max_tokens = 20}};
  CHECK_THROWS_MATCHES(
      order.size(4), ps::option_error,
      Catch::Matchers::Message(
          "lengths: expected one weight for each of the dataset's 4 samples, found 3"));
  CHECK_THROWS_AS(order.order(2, 0), ps::option_error);
}

TEST_CASE("classes of lengths are exact below 512 and within 1/256 above", "[samplers]") {
  std::uint32_t before = 0;
  for (std::uint64_t length = 0; length < 200000; ++length) {
    const std::uint32_t which = ps::detail::length_class(length);
    const std::uint64_t longest = ps::detail::longest_of_class(which);
    REQUIRE(which - before <= 1);
    REQUIRE(longest >= length);
    REQUIRE((length < 512 ? longest == length : (longest - length) * 256 < length));
    before = which;
  }
  CHECK(ps::detail::longest_of_class(ps::detail::length_class(0xffffffffU)) == 0xffffffffU);
}

// by_tokens_model.py runs this hidden test.
TEST_CASE("batches by tokens are written for a comparison with a model", "[.][by_tokens_cases]") {
  const char* const folder = std::getenv("PENSTOCK_BY_TOKENS_CASES");
  REQUIRE(folder != nullptr);
  std::ifstream cases{std::string{folder} + "/cases"};
  std::ofstream found{std::string{folder} + "/found"};
  ps::by_tokens_options options;
  std::uint64_t epoch = 0;
  std::size_t n = 0;
  while (cases >> options.seed >> options.max_tokens >> options.window >>
         options.batches_per_step >> options.max_samples >> options.padded >> epoch >> n) {
    lengths_of_samples lengths(n);
    for (auto& length : lengths) cases >> length;
    const ps::by_tokens order{lengths, options};
    found << order.batches() << ' ' << order.batch_size() << '\n';
    for (const indices& batch : batches_of(order, n, epoch)) {
      std::copy(batch.begin(), batch.end(), std::ostream_iterator<std::uint64_t>{found, " "});
      found << '\n';
    }
  }
  REQUIRE(found.flush());
}
