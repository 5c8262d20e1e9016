// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/concat.hpp>

#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;

// pybind11 and nanobind build function signatures by concatenation in the same way.
namespace foreign {

template <class... Types>
struct text_of {};

template <class... A, class... B>
int concat(const text_of<A...>&, const text_of<B...>&) {
  return 2;
}

}  // namespace foreign

namespace {

using number = ps::record<ps::field<"x", std::int32_t>>;
using row = ps::record<ps::field<"n", std::int32_t>, ps::field<"row", std::int32_t, 1, ps::dyn>>;
using numbers = std::vector<std::int32_t>;

// A dataset of any size that needs no memory.
struct counting_source {
  using record_type = number;
  std::uint64_t count = 0;
  std::int32_t base = 0;
  std::uint64_t size() const { return count; }
  void read(std::uint64_t i, ps::sample<number> out) const {
    if (i >= count) throw std::logic_error("index of another part");
    ps::get<"x">(out) = base + static_cast<std::int32_t>(i);
  }
};

}  // namespace

TEST_CASE("a concatenation has the samples of its parts in sequence", "[data]") {
  const auto all = ps::concat(counting_source{3, 0}, counting_source{0, 500},
                              counting_source{2, 1000}, counting_source{4, 2000});
  CHECK(ps::dataset<decltype(all)>);
  CHECK(all.size() == 9);
  CHECK(test::values<"x">(test::read_batch(all, {0, 1, 2, 3, 4, 5, 6, 7, 8})) ==
        numbers{0, 1, 2, 1000, 1001, 2000, 2001, 2002, 2003});
  CHECK(test::values<"x">(test::read_batch(all, {8, 0, 4, 3, 5, 2})) ==
        numbers{2003, 0, 1001, 1000, 2000, 2});
}

TEST_CASE("a long chunk within one part is read in one call", "[data]") {
  const auto all = ps::concat(counting_source{10, 0}, counting_source{1000, 5000});
  std::vector<std::uint64_t> indices(300);
  std::iota(indices.begin(), indices.end(), std::uint64_t{5});
  numbers expected{5, 6, 7, 8, 9};
  for (std::int32_t i = 0; i < 295; ++i) expected.push_back(5000 + i);
  CHECK(test::values<"x">(test::read_batch(all, indices)) == expected);
}

TEST_CASE("a concatenation of viewable, prefetching parts is viewable and prefetches", "[data]") {
  numbers values(10);
  std::iota(values.begin(), values.end(), 0);
  const ps::memory_dataset<number> data{values};
  const auto all = ps::concat(data | ps::subset(5, 10), data);
  CHECK(&ps::get<"x">(all.view(0)) == &values[5]);
  CHECK(&ps::get<"x">(all.view(4)) == &values[9]);
  CHECK(&ps::get<"x">(all.view(5)) == &values[0]);
  CHECK(&ps::get<"x">(all.view(14)) == &values[9]);
  CHECK_THROWS_AS(all.view(15), ps::index_error);
  all.prefetch(14);
  all.prefetch(15);
  // There are so many indices that the hints extend over several short runs.
  std::vector<std::uint64_t> indices;
  numbers expected;
  for (std::uint64_t i = 0; i < 20; ++i) {
    indices.push_back(i % 2 == 0 ? i / 4 : 5 + i / 2);
    expected.push_back(static_cast<std::int32_t>(i % 2 == 0 ? 5 + i / 4 : i / 2));
  }
  CHECK(test::values<"x">(test::read_batch(all, indices)) == expected);
  CHECK_FALSE(ps::detail::views_samples<decltype(ps::concat(data, counting_source{1, 0}))>);
}

TEST_CASE("an index beyond the last part is rejected and named", "[data][fault:samples-3]") {
  const auto all = ps::concat(counting_source{3, 0}, counting_source{2, 0});
  test::batch_memory<number> memory{{}, 4};
  const std::vector<std::uint64_t> indices{0, 4, 3, 5};
  ps::reader reader{all};
  CHECK_THROWS_AS(reader.read(indices, memory.view(), {}), ps::index_error);
  CHECK(reader.failed_at() == 3);
}

TEST_CASE("parts of different extents are rejected", "[data]") {
  const numbers n(2);
  const numbers wide(10);
  const numbers narrow(8);
  const ps::memory_dataset<row> five{{{}, {5}}, n, wide};
  const ps::memory_dataset<row> four{{{}, {4}}, n, narrow};
  CHECK(ps::concat(five, five).size() == 4);
  const auto problem =
      test::error_of<ps::concat_mismatch>([&] { (void)ps::concat(five, five, four); });
  CHECK(problem.part() == 2);
  CHECK(std::string{problem.what()} ==
        "concat: part 2: field \"row\": expected extent 5 in dimension 1 as in part 0, found 4");
}

TEST_CASE("a total of more than 2^64 - 1 samples is rejected", "[data]") {
  constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  CHECK(ps::concat(counting_source{max - 5, 0}, counting_source{5, 0}).size() == max);
  const auto problem = test::error_of<ps::concat_mismatch>(
      [] { (void)ps::concat(counting_source{max - 5, 0}, counting_source{6, 0}); });
  CHECK(problem.part() == 1);
}

TEST_CASE("parts share scratch memory, random bits follow the index in the concatenation",
          "[data]") {
  const auto twice = [](ps::const_sample<number> in, ps::sample<number> out,
                        ps::sample_generator& rng) {
    ps::get<"x">(out) = ps::get<"x">(in) + static_cast<std::int32_t>(rng() >> 2U);
  };
  const auto mapped = counting_source{3, 0} | ps::map<number>(twice);
  const auto all = ps::concat(mapped, counting_source{2, 7}, mapped);
  CHECK(all.scratch_bytes() == mapped.scratch_bytes());
  const auto found = test::values<"x">(test::read_batch(all, {0, 3, 5}));
  CHECK(found[1] == 7);
  CHECK(found[0] != found[2]);
}

TEST_CASE("a list of parts has the samples of its parts in sequence",
          "[data][promise:bounded-12]") {
  std::vector<counting_source> parts;
  for (std::int32_t part = 0; part < 100; ++part) {
    // Every third part is empty.
    parts.push_back({static_cast<std::uint64_t>(part % 3), 1000 * part});
  }
  const auto referred = ps::concat(parts);
  const auto all = ps::concat(std::vector{parts});
  CHECK(ps::dataset<decltype(all)>);
  REQUIRE(all.size() == 99);
  numbers expected;
  std::vector<std::uint64_t> indices(99);
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  for (std::int32_t part = 0; part < 100; ++part) {
    for (std::int32_t i = 0; i < part % 3; ++i) expected.push_back(1000 * part + i);
  }
  CHECK(test::values<"x">(test::read_batch(all, indices)) == expected);
  CHECK(test::values<"x">(test::read_batch(all, {98, 0, 1, 50})) ==
        numbers{98001, 1000, 2000, expected[50]});
  CHECK(ps::origin_of(all, 98) == ps::sample_origin{1, 98});
  CHECK(ps::base_sizes_of(all).size() == 100);

  parts[1].base = -7;  // `referred` refers to the list, while `all` has its own copy
  CHECK(test::values<"x">(test::read_batch(referred, {0})) == numbers{-7});
  CHECK(test::values<"x">(test::read_batch(all, {0})) == numbers{1000});

  // Only the dataset that contains a sample receives its hint.
  std::vector<std::uint64_t> called;
  const auto note = [&](const auto& part, std::span<const std::uint64_t> local) {
    called.push_back(static_cast<std::uint64_t>(part.base) + local.size());
  };
  all.each_base(std::vector<std::uint64_t>{99, 1, 2, 98, 99}, note);
  CHECK(called == std::vector<std::uint64_t>{2002, 98001});
  called.clear();
  all.each_base({}, note);
  CHECK(called.size() == 100);
}

TEST_CASE("a list of parts rejects what a concatenation does, and an empty list", "[data]") {
  constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
  const auto part_of = [](std::vector<counting_source> parts) {
    return test::error_of<ps::concat_mismatch>([&] { (void)ps::concat(std::move(parts)); }).part();
  };
  CHECK(part_of({}) == 0);
  CHECK(part_of({{1, 0}, {max - 5, 0}, {0, 0}, {5, 0}}) == 3);
  const numbers n(2);
  const numbers wide(10);
  const numbers narrow(8);
  const std::vector rows{ps::memory_dataset<row>{{{}, {5}}, n, wide},
                         ps::memory_dataset<row>{{{}, {4}}, n, narrow}};
  CHECK(test::error_of<ps::concat_mismatch>([&] { (void)ps::concat(rows); }).part() == 1);
}

TEST_CASE("argument-dependent lookup does not find concat for another library's types", "[data]") {
  CHECK(concat(foreign::text_of<counting_source>{}, foreign::text_of<number>{}) == 2);
}

TEST_CASE("a random map over a concatenation has its own random bits", "[data]") {
  const auto draw = [](ps::sample<number> s, ps::sample_generator& rng) {
    ps::get<"x">(s) = static_cast<std::int32_t>(rng() >> 1U);
  };
  const auto compare = [](ps::sample<number> s, ps::sample_generator& rng) {
    ps::get<"x">(s) = ps::get<"x">(s) == static_cast<std::int32_t>(rng() >> 1U) ? 1 : 0;
  };
  const auto all =
      ps::concat(counting_source{2, 0}, counting_source{2, 0} | ps::map(draw)) | ps::map(compare);
  CHECK(test::values<"x">(test::read_batch(all, {2, 3})) == numbers{0, 0});
}
