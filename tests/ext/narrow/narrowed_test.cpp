// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/narrow/narrowed.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

using wave_record = ps::record<ps::field<"id", std::uint16_t>, ps::field<"x", float, ps::dyn, 3>,
                               ps::field<"tail", char, 5>>;

/// A dataset in which sample i has values around i with either sign. One sample may have bad
/// values.
struct waves {
  using record_type = wave_record;
  std::uint64_t bad = 1000;
  float value = std::numeric_limits<float>::quiet_NaN();

  [[nodiscard]] static float at(std::uint64_t sample, std::size_t i) {
    return std::sin(static_cast<float>(sample * 7 + i)) * static_cast<float>(sample) - 1.5F;
  }
  [[nodiscard]] std::uint64_t size() const { return 40; }
  [[nodiscard]] ps::record_extents<wave_record> extents() const { return {{}, {4}, {}}; }
  void read(std::uint64_t index, ps::sample<wave_record> out) const {
    ps::get<"id">(out) = static_cast<std::uint16_t>(index + 500);
    const auto x = ps::get<"x">(out).flat();
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = at(index, i);
    if (index == bad) x[7] = value;
    for (auto& c : ps::get<"tail">(out).flat()) c = static_cast<char>('a' + index % 26);
  }
};

const std::vector<std::uint64_t> chosen_waves{3, 39, 0, 3, 17};

/// Returns true if all fields except the narrowed field equal those of `chosen_waves`.
template <class Memory>
bool has_the_rest(Memory& batch) {
  bool right = true;
  for (std::size_t n = 0; n < chosen_waves.size(); ++n) {
    right = right && batch.template get<"id">()(n) == chosen_waves[n] + 500;
    for (std::size_t i = 0; i < 5; ++i) {
      right = right &&
              batch.template get<"tail">()(n, i) == static_cast<char>('a' + chosen_waves[n] % 26);
    }
  }
  return right;
}

template <class Memory>
float one_of(Memory& batch, std::size_t n, std::size_t i) {
  return batch.template get<"x">()(n, i / 3, i % 3);
}

}  // namespace

TEMPLATE_TEST_CASE("floats are stored as the nearest values of 16 bits", "[data]", ps::half,
                   ps::bfloat16) {
  const auto narrow = waves{} | ps::narrowed<"x", TestType>();
  using record = typename decltype(narrow)::record_type;
  static_assert(record::size == 3 && record::template index_of<"x">() == 1);
  static_assert(std::is_same_v<typename record::template field_at<1>::value_type, TestType>);
  CHECK(narrow.size() == 40);
  CHECK(ps::extents_of(narrow).template at<1>()[0] == 4);
  auto batch = test::read_batch(narrow, chosen_waves);
  for (std::size_t n = 0; n < chosen_waves.size(); ++n) {
    for (std::size_t i = 0; i < 12; ++i) {
      const TestType expected{waves::at(chosen_waves[n], i)};
      CHECK(batch.template get<"x">()(n, i / 3, i % 3).bits() == expected.bits());
    }
  }
  CHECK(has_the_rest(batch));
}

TEST_CASE("bytes have a scale for each sample, in two fields that come last", "[data]") {
  const auto narrow = waves{} | ps::narrowed<"x", std::int8_t>();
  using record = decltype(narrow)::record_type;
  static_assert(record::size == 5 && record::index_of<"x_scale">() == 3 &&
                record::index_of<"x_zero">() == 4);
  auto batch = test::read_batch(narrow, chosen_waves);
  for (std::size_t n = 0; n < chosen_waves.size(); ++n) {
    float min = waves::at(chosen_waves[n], 0);
    float max = min;
    for (std::size_t i = 1; i < 12; ++i) {
      min = std::fmin(min, waves::at(chosen_waves[n], i));
      max = std::fmax(max, waves::at(chosen_waves[n], i));
    }
    const ps::affine_scale by{batch.get<"x_scale">()(n), batch.get<"x_zero">()(n)};
    CHECK(by == ps::affine_over(min, max));
    for (std::size_t i = 0; i < 12; ++i) {
      const float found = by(batch.get<"x">()(n, i / 3, i % 3));
      CAPTURE(n, i, found);
      CHECK(std::abs(found - waves::at(chosen_waves[n], i)) <= by.scale / 2 * 1.00001F);
    }
  }
  CHECK(has_the_rest(batch));
}

TEST_CASE("bytes with one fixed scale have no scale field and saturate", "[data]") {
  const ps::affine_scale by{0.25F, -3.0F};
  const auto narrow = waves{} | ps::narrowed<"x", std::int8_t>(by);
  static_assert(decltype(narrow)::record_type::size == 3);
  auto batch = test::read_batch(narrow, chosen_waves);
  std::size_t saturated = 0;
  for (std::size_t n = 0; n < chosen_waves.size(); ++n) {
    for (std::size_t i = 0; i < 12; ++i) {
      const float given = waves::at(chosen_waves[n], i);
      const std::int8_t byte = batch.get<"x">()(n, i / 3, i % 3);
      if (given < by(-128) || given > by(127)) {
        CHECK(byte == (given < 0 ? -128 : 127));
        ++saturated;
      } else {
        CHECK(std::abs(by(byte) - given) <= by.scale / 2);
      }
    }
  }
  CHECK(saturated > 0);
  CHECK(has_the_rest(batch));
}

TEST_CASE("two fields are narrowed one after the other, of samples that lie in memory too",
          "[data]") {
  using pair_record = ps::record<ps::field<"a", float, 2>, ps::field<"b", float>>;
  const std::vector<float> as{1.0F, -2.0F, 0.1F, 70000.0F};
  const std::vector<float> bs{0.3F, 1e-9F};
  const auto narrow = ps::memory_dataset<pair_record>{as, bs} | ps::narrowed<"a", ps::half>() |
                      ps::narrowed<"b", std::int8_t>();
  auto batch = test::read_batch(narrow, {1, 0});
  CHECK(batch.get<"a">()(0, 0) == static_cast<float>(ps::half{0.1F}));
  CHECK(std::isinf(static_cast<float>(batch.get<"a">()(0, 1))));
  CHECK(batch.get<"a">()(1, 1) == -2.0F);
  // A sample with a single value is converted exactly.
  CHECK(ps::affine_scale{batch.get<"b_scale">()(0),
                         batch.get<"b_zero">()(0)}(batch.get<"b">()(0)) == 1e-9F);
  CHECK(batch.get<"b_zero">()(1) == 0.3F);
}

TEST_CASE("a value that a byte cannot represent is an error that names the sample",
          "[data][fault:samples-6]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float value = GENERATE_COPY(std::numeric_limits<float>::quiet_NaN(), infinity, -infinity);
  const auto check = [&](const auto& narrow) {
    const auto error =
        test::error_of<ps::not_finite>([&] { test::read_batch(narrow, {1, 9, 11, 12}); });
    CHECK(error.sample() == 11);
    CHECK(error.element() == 7);
    CHECK(test::has(error.what(), "\"x\""));
    CHECK(test::has(error.what(), "sample 11, element 7"));
    CHECK(test::has(error.what(), std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf"));
    ps::reader reader{narrow};
    test::batch_memory<typename std::decay_t<decltype(narrow)>::record_type> memory{
        ps::extents_of(narrow), 3};
    CHECK_THROWS_AS(reader.read(std::vector<std::uint64_t>{4, 5, 11}, memory.view(), {}),
                    ps::not_finite);
    CHECK(reader.failed_at() == 2);
  };
  check(waves{11, value} | ps::narrowed<"x", std::int8_t>());
  check(waves{11, value} | ps::narrowed<"x", std::int8_t>({.scale = 1.0F}));
  // The 16-bit types can represent these values.
  auto batch = test::read_batch(waves{11, value} | ps::narrowed<"x", ps::half>(), {11});
  CHECK(std::isfinite(one_of(batch, 0, 6)));
  CHECK_FALSE(std::isfinite(one_of(batch, 0, 7)));
}

TEST_CASE("an invalid scale is rejected", "[data]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float scale : {0.0F, -1.0F, nan, std::numeric_limits<float>::infinity()}) {
    CHECK_THROWS_AS((ps::narrowed<"x", std::int8_t>({.scale = scale})), ps::option_error);
  }
  CHECK_THROWS_AS((ps::narrowed<"x", std::int8_t>({.scale = 1.0F, .zero = nan})), ps::option_error);
}

TEST_CASE("narrowing does not change states, failures and random bits", "[data]") {
  const auto shift = [](auto s, ps::sample_generator& rng) {
    for (auto& x : ps::get<"x">(s).flat()) x += ps::uniform(rng, 0.0F, 1.0F);
  };
  const waves all;
  const auto part = all | ps::subset({30, 2, 5}) | ps::map(shift);
  const auto narrow = part | ps::narrowed<"x", ps::half>();
  CHECK(ps::fingerprint_of(narrow) == ps::fingerprint_of(part));
  CHECK(ps::origin_of(narrow, 1) == ps::sample_origin{2, 0});
  CHECK(ps::base_sizes_of(narrow) == std::vector<std::uint64_t>{40});
  CHECK(ps::detail::stages_of(narrow) == ps::detail::stages_of(part));
  const ps::random_key key{.seed = 4, .epoch = 2};
  auto wide = test::read_batch(part, {1, 2}, key);
  auto batch = test::read_batch(narrow, {1, 2}, key);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(one_of(batch, 1, i) == static_cast<float>(ps::half{one_of(wide, 1, i)}));
  }
}

TEST_CASE("a name of 26 characters has room for its scale", "[data]") {
  using long_record = ps::record<ps::field<"abcdefghijklmnopqrstuvwxyz", float>>;
  const std::vector<float> values{2.0F};
  const auto narrow = ps::memory_dataset<long_record>{values} |
                      ps::narrowed<"abcdefghijklmnopqrstuvwxyz", std::int8_t>();
  auto batch = test::read_batch(narrow, {0});
  CHECK(batch.get<"abcdefghijklmnopqrstuvwxyz_zero">()(0) == 2.0F);
  CHECK(batch.get<"abcdefghijklmnopqrstuvwxyz_scale">()(0) == 0.0F);
}
