// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/subset.hpp>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/memory_dataset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;

namespace {

using number = ps::record<ps::field<"x", std::int32_t>>;
using numbers = std::vector<std::int32_t>;

numbers ascending(std::size_t size) {
  numbers values(size);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

}  // namespace

TEST_CASE("a subset has the samples of its list in that order", "[data]") {
  const numbers values = ascending(100);
  const ps::memory_dataset<number> data{values};
  const auto part = data | ps::subset({7, 99, 7, 0});
  CHECK(ps::dataset<decltype(part)>);
  CHECK(part.size() == 4);
  CHECK(test::values<"x">(test::read_batch(part, {0, 1, 2, 3})) == numbers{7, 99, 7, 0});
  CHECK(test::values<"x">(test::read_batch(part, {3, 1})) == numbers{0, 99});
}

TEST_CASE("a subset by range splits a dataset", "[data]") {
  const numbers values = ascending(100);
  const ps::memory_dataset<number> data{values};
  const auto first = data | ps::subset(0, 90);
  const auto rest = data | ps::subset(90, 100);
  CHECK(first.size() == 90);
  CHECK(rest.size() == 10);
  CHECK(test::values<"x">(test::read_batch(rest, {0, 9})) == numbers{90, 99});
  CHECK((data | ps::subset(5, 5)).size() == 0);
}

TEST_CASE("a chunk longer than the translation buffer is read completely", "[data]") {
  const numbers values = ascending(1000);
  const ps::memory_dataset<number> data{values};
  const auto part = data | ps::subset(100, 1000);
  for (const std::size_t size : {63U, 64U, 65U, 128U, 300U}) {
    std::vector<std::uint64_t> indices(size);
    std::iota(indices.begin(), indices.end(), std::uint64_t{3});
    numbers expected(size);
    std::iota(expected.begin(), expected.end(), 103);
    CHECK(test::values<"x">(test::read_batch(part, indices)) == expected);
  }
}

TEST_CASE("a selection outside the dataset is rejected at construction",
          "[data][fault:samples-3]") {
  const numbers values = ascending(10);
  const ps::memory_dataset<number> data{values};
  CHECK_THROWS_AS(data | ps::subset({0, 10}), ps::index_error);
  CHECK_THROWS_AS(data | ps::subset(0, 11), ps::index_error);
  CHECK_THROWS_MATCHES(
      data | ps::subset(6, 5), ps::index_error,
      Catch::Matchers::Message("subset: the range from 6 to 5 ends before its beginning"));
  CHECK_NOTHROW(data | ps::subset({0, 9}));
  CHECK_NOTHROW(data | ps::subset(0, 10));
  const auto problem = test::error_of<ps::index_error>([&] { (void)(data | ps::subset({3, 12})); });
  CHECK(problem.index() == 12);
  CHECK(problem.size() == 10);
  CHECK(std::string{problem.what()} ==
        "subset: entry 1 of the list: sample index 12 is out of range for size 10");
}

TEST_CASE("an index beyond a subset's end is rejected even if the dataset is larger",
          "[data][fault:samples-3]") {
  const numbers values = ascending(200);
  const ps::memory_dataset<number> data{values};
  const auto part = data | ps::subset(0, 100);
  test::batch_memory<number> memory{{}, 70};
  std::vector<std::uint64_t> indices(70, 1);
  indices[67] = 100;
  ps::reader reader{part};
  CHECK_THROWS_AS(reader.read(indices, memory.view(), {}), ps::index_error);
  CHECK(reader.failed_at() == 67);
  CHECK_THROWS_AS(part.view(100), ps::index_error);
}

TEST_CASE("a subset has the capabilities of its dataset", "[data]") {
  const numbers values = ascending(10);
  const ps::memory_dataset<number> data{values};
  const auto part = data | ps::subset({4, 2});
  CHECK(&ps::get<"x">(part.view(1)) == &values[2]);
  part.prefetch(1);
  part.prefetch(2);
  using in_place = decltype(data | ps::map([](ps::sample<number>) {}) | ps::subset(0, 1));
  CHECK_FALSE(ps::detail::views_samples<in_place>);
}

TEST_CASE("random bits and failures below a subset keep their places in a long run",
          "[data][fault:samples-1]") {
  const numbers values = ascending(200);
  const ps::memory_dataset<number> data{values};
  const auto drawn = data | ps::map([](ps::sample<number> s, ps::sample_generator& rng) {
                       if (ps::get<"x">(s) == 190) throw std::domain_error("190");
                       ps::get<"x">(s) = static_cast<std::int32_t>(rng() >> 1U);
                     });
  const auto part = drawn | ps::subset(50, 200);
  std::vector<std::uint64_t> indices(100);
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  const auto together = test::values<"x">(test::read_batch(part, indices));
  CHECK(together[70] == test::values<"x">(test::read_batch(part, {70}))[0]);

  indices[80] = 140;
  test::batch_memory<number> memory{{}, 100};
  ps::reader reader{part};
  CHECK_THROWS_AS(reader.read(indices, memory.view(), {}), std::domain_error);
  CHECK(reader.failed_at() == 80);
}

TEST_CASE("random bits below a subset follow the subset's index", "[data]") {
  const numbers values = ascending(10);
  const ps::memory_dataset<number> data{values};
  const auto drawn = data | ps::map([](ps::sample<number> s, ps::sample_generator& rng) {
                       ps::get<"x">(s) = static_cast<std::int32_t>(rng() >> 1U);
                     });
  // A sample that is listed twice counts as two samples, with different random bits.
  const auto pair = test::values<"x">(test::read_batch(drawn | ps::subset({5, 5}), {0, 1}));
  CHECK(pair[0] != pair[1]);
}
