// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/weighted.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>

#include "support/catch.hpp"
#include "support/statistics.hpp"

// Tests a sample's random bits along each dimension that a run uses: along a stream, and across
// samples, epochs, stages and seeds. Neighboring keys must not give related bits. The file is only
// a smoke test, because the authors of Philox tested the generator with TestU01's BigCrush. The
// choice of keys is ours, so the tests concentrate on keys.

namespace ps = penstock;

namespace {

/// The p-values of all statistics over a sequence of words.
struct quality {
  double ones;     ///< number of set bits at each bit position
  double runs;     ///< changes between consecutive bits
  double serial;   ///< pairs of bytes within a word
  double across;   ///< pairs of the high bytes, and of the low bytes, of neighboring words
  double gaps;     ///< distances between words less than 2^28
  double spacing;  ///< repeated distances between 4096 words on a circle of 2^32
};

double chance_of_ones(const std::vector<std::uint32_t>& words) {
  std::array<double, 32> set{};
  for (const std::uint32_t word : words) {
    for (std::size_t bit = 0; bit < 32; ++bit) set[bit] += word >> bit & 1;
  }
  const double count = static_cast<double>(words.size());
  double sum = 0;
  double all = 0;
  for (const double ones : set) {
    sum += (ones - count / 2) * (ones - count / 2) / (count / 4);
    all += ones;
  }
  const double monobit = chance_of_deviation((all - 16 * count) / std::sqrt(8 * count));
  return std::min(chance_of_chi_square(sum, 32), monobit);
}

double chance_of_runs(const std::vector<std::uint32_t>& words) {
  double changes = 0;
  for (std::size_t k = 0; k < words.size(); ++k) {
    // Starts with the highest bit.
    const std::uint32_t before = k == 0 ? words[0] >> 31 : words[k - 1] & 1;
    changes += std::popcount(words[k] ^ (words[k] >> 1 | before << 31));
  }
  const double steps = 32 * static_cast<double>(words.size()) - 1;
  return chance_of_deviation((changes - steps / 2) / std::sqrt(steps / 4));
}

double chance_of_serial(const std::vector<std::uint32_t>& words) {
  std::vector<double> high(1 << 16), low(1 << 16);
  for (const std::uint32_t word : words) {
    ++high[word >> 16];
    ++low[word & 0xffff];
  }
  return std::min(chance_of(high), chance_of(low));
}

double chance_of_across(const std::vector<std::uint32_t>& words) {
  std::vector<double> high(1 << 16), low(1 << 16);
  for (std::size_t k = 0; k + 1 < words.size(); k += 2) {
    ++high[words[k] >> 24 << 8 | words[k + 1] >> 24];
    ++low[(words[k] & 0xff) << 8 | (words[k + 1] & 0xff)];
  }
  return std::min(chance_of(high), chance_of(low));
}

double chance_of_gaps(const std::vector<std::uint32_t>& words) {
  std::vector<double> found(100), expected(100);
  std::size_t gap = 0;
  for (const std::uint32_t word : words) {
    if (word >> 28 != 0) {
      ++gap;
      continue;
    }
    ++found[std::min<std::size_t>(gap, 99)];
    gap = 0;
  }
  for (std::size_t k = 0; k < 99; ++k) expected[k] = std::pow(15.0 / 16, k) / 16;
  expected[99] = std::pow(15.0 / 16, 99);
  return chance_with_ends(found, expected);
}

/// Marsaglia's birthday spacings test: the number of repeated distances has a Poisson distribution
/// with mean 4.
double chance_of_spacing(const std::vector<std::uint32_t>& words) {
  constexpr std::size_t birthdays = 4096;
  std::vector<double> found(20), expected(20);
  for (std::size_t begin = 0; begin + birthdays <= words.size(); begin += birthdays) {
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(begin);
    std::vector<std::uint32_t> days(first, first + birthdays);
    std::sort(days.begin(), days.end());
    const std::uint32_t last = days.back();
    for (std::size_t k = birthdays; --k > 0;) days[k] -= days[k - 1];
    days[0] -= last;  // the distance around the end of the circle
    std::sort(days.begin(), days.end());
    std::size_t again = 0;
    for (std::size_t k = 1; k < birthdays; ++k) again += days[k] == days[k - 1] ? 1u : 0u;
    ++found[std::min<std::size_t>(again, 19)];
  }
  double chance = std::exp(-4.0);
  for (std::size_t k = 0; k < 20; ++k) {
    expected[k] = chance;
    chance *= 4 / static_cast<double>(k + 1);
  }
  return chance_with_ends(found, expected, 3);
}

/// Computes the statistics of `word_at(k)` for k = 0, 1, ...
template <class Source>
quality quality_of(Source&& word_at) {
  std::vector<std::uint32_t> words((std::size_t{1} << 20) / slowness);
  for (std::size_t k = 0; k < words.size(); ++k) words[k] = word_at(std::uint64_t{k});
  return {.ones = chance_of_ones(words),
          .runs = chance_of_runs(words),
          .serial = chance_of_serial(words),
          .across = chance_of_across(words),
          .gaps = chance_of_gaps(words),
          .spacing = chance_of_spacing(words)};
}

template <class Source>
void check_quality(const std::string& name, Source&& word_at) {
  const quality found = quality_of(word_at);
  CAPTURE(name, found.ones, found.runs, found.serial, found.across, found.gaps, found.spacing);
  CHECK(std::min({found.ones, found.runs, found.serial, found.across, found.gaps, found.spacing}) >
        false_alarm);
}

std::uint32_t first_word(const ps::random_key& key, std::uint64_t index) {
  return ps::sample_generator{key, index}();
}

/// A dataset of zeros in two fields, to which maps add random numbers.
struct blank {
  using record_type = ps::record<ps::field<"one", std::uint64_t>, ps::field<"two", std::uint64_t>>;
  [[nodiscard]] std::uint64_t size() const { return 500; }
  void read(std::uint64_t, ps::sample<record_type> out) const {
    ps::get<"one">(out) = 0;
    ps::get<"two">(out) = 0;
  }
};

std::uint64_t draw(ps::sample_generator& gen) {
  return ps::uniform(gen, std::uint64_t{0}, ~std::uint64_t{0});
}

/// Returns the values of both fields for every sample of two epochs.
template <class Data>
std::vector<std::array<std::uint64_t, 2>> values_of(Data&& data, std::uint64_t seed) {
  ps::loader loader{
      std::forward<Data>(data), ps::sequential{}, {.batch_size = 50, .workers = 2, .seed = seed}};
  std::vector<std::array<std::uint64_t, 2>> all;
  for (auto& batch : loader.epochs(0, 2)) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      all.push_back({ps::get<"one">(batch).flat()[i], ps::get<"two">(batch).flat()[i]});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("the random bits of a sample are good within its stream and across keys",
          "[order][statistics]") {
  ps::sample_generator one{{.seed = 1}, 0};
  check_quality("one stream", [&](std::uint64_t) { return one(); });
  check_quality("samples", [](std::uint64_t k) { return first_word({.seed = 1}, k); });
  check_quality("samples with high numbers",
                [](std::uint64_t k) { return first_word({.seed = 1}, k << 40); });
  check_quality("epochs", [](std::uint64_t k) { return first_word({.seed = 1, .epoch = k}, 3); });
  check_quality("seeds", [](std::uint64_t k) { return first_word({.seed = k}, 3); });
  check_quality("seeds with high bits",
                [](std::uint64_t k) { return first_word({.seed = k << 32}, 3); });
  check_quality("stages", [](std::uint64_t k) {
    return first_word({.seed = 1, .stage = static_cast<std::uint32_t>(k)}, 3);
  });
  check_quality("all four at once", [](std::uint64_t k) {
    return first_word({.seed = k, .epoch = k, .stage = static_cast<std::uint32_t>(k)}, k);
  });
  ps::sample_generator current{{}, 0};
  check_quality("five words a sample", [&](std::uint64_t k) {
    if (k % 5 == 0) current = ps::sample_generator{{.seed = 2, .epoch = 1}, k / 5};
    return current();
  });
  check_quality("two stages in turn", [](std::uint64_t k) {
    return first_word({.seed = 3, .stage = static_cast<std::uint32_t>(k % 2)}, k / 2);
  });
}

TEST_CASE("the streams of neighboring keys are unrelated: their difference is random",
          "[order][statistics]") {
  check_quality("samples", [](std::uint64_t k) {
    return first_word({.seed = 1}, 2 * k) ^ first_word({.seed = 1}, 2 * k + 1);
  });
  check_quality("epochs", [](std::uint64_t k) {
    return first_word({.seed = 1, .epoch = 4}, k) ^ first_word({.seed = 1, .epoch = 5}, k);
  });
  check_quality("stages", [](std::uint64_t k) {
    return first_word({.seed = 1, .stage = 1}, k) - first_word({.seed = 1, .stage = 2}, k);
  });
  check_quality("seeds", [](std::uint64_t k) {
    return first_word({.seed = 6}, k) - first_word({.seed = 7}, k);
  });
  check_quality("epoch and seed exchanged", [](std::uint64_t k) {
    return first_word({.seed = 6, .epoch = 7}, k) ^ first_word({.seed = 7, .epoch = 6}, k);
  });
}

TEST_CASE("the statistics detect bad generators", "[order][statistics]") {
  ps::sample_generator good{{.seed = 1}, 9};

  const quality stuck =
      quality_of([&](std::uint64_t k) { return good() | (k % 10 == 0 ? 1u : 0u); });
  CHECK(stuck.ones < false_alarm);
  CHECK(std::min({stuck.runs, stuck.gaps, stuck.spacing}) > false_alarm);

  std::uint32_t last = 0;
  // Repeats the previous bit at one of 64 positions.
  const quality sticky = quality_of([&](std::uint64_t) {
    std::uint32_t word = good();
    for (std::uint32_t bit = 32; bit-- > 0;) {
      if (good() >> 26 == 0) word = (word & ~(1u << bit)) | last << bit;
      last = word >> bit & 1;
    }
    return word;
  });
  CHECK(sticky.ones > false_alarm);
  CHECK(sticky.runs < false_alarm);

  std::uint32_t state = 1;
  const quality congruential =
      quality_of([&](std::uint64_t) { return state = state * 1664525u + 1013904223u; });
  CHECK(congruential.serial < false_alarm);
  CHECK(congruential.across < false_alarm);

  const quality weyl =
      quality_of([](std::uint64_t k) { return static_cast<std::uint32_t>(k) * 0x9E3779B9u; });
  CHECK(weyl.spacing < false_alarm);

  const quality regular = quality_of(
      [&](std::uint64_t k) { return k % 16 == 0 ? good() >> 4 : 0x10000000u + good() / 16 * 15; });
  CHECK(regular.gaps < false_alarm);

  // A stream that two stages share, so that each word occurs twice.
  const quality shared = quality_of([](std::uint64_t k) { return first_word({.seed = 3}, k / 2); });
  CHECK(shared.across < false_alarm);
  CHECK(shared.spacing < false_alarm);
}

TEST_CASE("no part of a stream occurs in another stream at any offset",
          "[order][statistics][promise:exact-2]") {
  // Pairs of two consecutive words. The probability that any two of 2^17 such pairs are equal is
  // 2^-31.
  std::set<std::uint64_t> seen;
  std::size_t stretches = 0;
  const std::size_t length = 33;
  for (std::uint64_t index = 0; index < 16; ++index) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      for (std::uint64_t epoch = 0; epoch < 8; ++epoch) {
        for (const std::uint32_t stage :
             {0u, 1u, 2u, 3u, ps::detail::weighted_stage, ps::detail::block_shuffle_stage,
              ps::detail::shuffle_stage}) {
          ps::sample_generator gen{{seed, epoch, stage}, index};
          std::uint64_t two = gen();
          for (std::size_t k = 1; k < length; ++k) {
            two = two << 32 | gen();
            seen.insert(two);
            ++stretches;
          }
        }
      }
    }
  }
  CHECK(seen.size() == stretches);
}

TEST_CASE("the samplers draw from stages that no pipeline can reach", "[order][statistics]") {
  const std::set<std::uint32_t> stages{ps::detail::shuffle_stage, ps::detail::block_shuffle_stage,
                                       ps::detail::weighted_stage};
  CHECK(stages.size() == 3);
  CHECK(*stages.begin() > 0xffff'0000u);
}

TEST_CASE("two fields filled by two maps, and two epochs, share no bits",
          "[order][statistics][promise:exact-2]") {
  const auto both = [](std::uint64_t seed) {
    return values_of(
        blank{} | ps::map([](auto s, ps::sample_generator& rng) {
          ps::get<"one">(s) = draw(rng);
        }) | ps::map([](auto s, ps::sample_generator& rng) { ps::get<"two">(s) = draw(rng); }),
        seed);
  };
  const auto values = both(5);
  REQUIRE(values.size() == 1000);
  std::set<std::uint64_t> seen;
  for (const auto& sample : values) seen.insert(sample.begin(), sample.end());
  for (const auto& sample : both(6)) seen.insert(sample.begin(), sample.end());
  CHECK(seen.size() == 4000);

  // The second map receives the same input, however many bits the first map draws.
  const auto greedy = values_of(
      blank{} | ps::map([](auto s, ps::sample_generator& rng) {
        const std::uint64_t rounds = 1 + draw(rng) % 20;
        for (std::uint64_t k = 0; k < rounds; ++k) ps::get<"one">(s) = draw(rng);
      }) | ps::map([](auto s, ps::sample_generator& rng) { ps::get<"two">(s) = draw(rng); }),
      5);
  std::size_t same_one = 0;
  for (std::size_t k = 0; k < values.size(); ++k) {
    REQUIRE(greedy[k][1] == values[k][1]);
    same_one += greedy[k][0] == values[k][0] ? 1u : 0u;
  }
  CHECK(same_one == 0);
}

TEST_CASE("two fields filled by one map take their bits from different places of a stream",
          "[order][statistics]") {
  const auto values = values_of(blank{} | ps::map([](auto s, ps::sample_generator& rng) {
                                  ps::get<"one">(s) = draw(rng);
                                  ps::get<"two">(s) = draw(rng);
                                }),
                                5);
  std::set<std::uint64_t> seen;
  for (const auto& sample : values) seen.insert(sample.begin(), sample.end());
  CHECK(seen.size() == 2000);
}
