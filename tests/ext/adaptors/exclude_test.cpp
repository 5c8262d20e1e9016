// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/adaptors/exclude.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using tick = ps::record<ps::field<"x", std::int32_t>>;
using ticks = std::vector<std::int32_t>;
using list = std::vector<std::uint64_t>;

ticks counted(std::size_t size) {
  ticks values(size);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

/// Returns all values of a dataset, in order.
template <class D>
ticks all_ticks(const D& data) {
  if (data.size() == 0) return {};
  list indices(data.size());
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  return test::values<"x">(test::read_batch(data, indices));
}

/// Returns 0 to `size` - 1, except the values in `out`.
ticks rest_of(std::int32_t size, const list& out) {
  ticks rest;
  for (std::int32_t i = 0; i < size; ++i) {
    if (std::find(out.begin(), out.end(), static_cast<std::uint64_t>(i)) == out.end())
      rest.push_back(i);
  }
  return rest;
}

}  // namespace

TEST_CASE("excluded samples are removed, and the others keep their order", "[adaptors]") {
  const ticks values = counted(20);
  const ps::memory_dataset<tick> data{values};
  for (const list& out : {list{}, list{0}, list{19}, list{7, 3, 3, 4}, list{0, 1, 2},
                          list{17, 19, 18}, list{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}}) {
    const auto rest = data | ps::exclude(out);
    CHECK(all_ticks(rest) == rest_of(20, out));
    CHECK(ps::origin_of(rest, 0).index == static_cast<std::uint64_t>(rest_of(20, out)[0]));
  }
  list everything(20);
  std::iota(everything.begin(), everything.end(), std::uint64_t{0});
  CHECK((data | ps::exclude(everything)).size() == 0);
}

TEST_CASE("a list names samples by their index in the base dataset",
          "[adaptors][promise:honest-3]") {
  const ticks values = counted(30);
  const ps::memory_dataset<tick> data{values};
  const auto same = [](ps::sample<tick>) {};
  const auto part = data | ps::subset(10, 20) | ps::map(same);
  CHECK(all_ticks(part | ps::exclude({12, 5, 25})) == ticks{10, 11, 13, 14, 15, 16, 17, 18, 19});
  CHECK(all_ticks(data | ps::subset({9, 8, 9, 7}) | ps::exclude({9})) == ticks{8, 7});
  CHECK(all_ticks(data | ps::exclude({1, 2}) | ps::exclude({0, 2, 4}) | ps::subset(0, 3)) ==
        ticks{3, 5, 6});

  const ticks others = counted(10);
  const ps::memory_dataset<tick> more{others};
  const auto both = ps::concat(data | ps::subset(0, 4), more);
  CHECK(all_ticks(both | ps::exclude({1, 3})) == ticks{0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(all_ticks(both | ps::exclude({1, 3}, 1)) == ticks{0, 1, 2, 3, 0, 2, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a list of another dataset is rejected", "[adaptors][fault:samples-3]") {
  const ticks values = counted(30);
  const ps::memory_dataset<tick> data{values};
  CHECK_THROWS_MATCHES(data | ps::exclude({30}), ps::index_error,
                       Catch::Matchers::Message("exclude: the largest entry of the list: sample "
                                                "index 30 is out of range for size 30"));
  // The indices refer to the base dataset, not to the subset.
  CHECK_NOTHROW(data | ps::subset(0, 5) | ps::exclude({29}));
  CHECK_THROWS_AS(data | ps::subset(0, 5) | ps::exclude({30}), ps::index_error);
  CHECK_THROWS_MATCHES(
      data | ps::exclude({1}, 1), ps::index_error,
      Catch::Matchers::Message(
          "exclude: there is no part 1: the pipeline has 1 base datasets, counted from 0"));
}

TEST_CASE("the fingerprint of a pipeline depends only on its selected samples",
          "[adaptors][promise:exact-7]") {
  const ticks values = counted(30);
  const ps::memory_dataset<tick> data{values};
  const auto same = [](ps::sample<tick>) {};
  CHECK(ps::fingerprint_of(data) == 0);
  CHECK(ps::fingerprint_of(data | ps::map(same)) == 0);
  CHECK(ps::fingerprint_of(ps::concat(data, data)) == 0);
  const auto print = [&](const list& out) { return ps::fingerprint_of(data | ps::exclude(out)); };
  CHECK(print({3, 4}) == print({4, 3, 3}));
  CHECK(print({3, 4}) != print({3, 5}));
  CHECK(print({3}) != print({4}));
  const auto chosen = [&](const list& in) { return ps::fingerprint_of(data | ps::subset(in)); };
  CHECK(chosen({1, 2}) != chosen({2, 1}));
  CHECK(ps::fingerprint_of(data | ps::subset(0, 5)) != ps::fingerprint_of(data | ps::subset(1, 6)));
  // Every adaptor passes on the fingerprint.
  const auto one = data | ps::exclude({3});
  CHECK(ps::fingerprint_of(one | ps::map(same)) == ps::fingerprint_of(one));
  CHECK(ps::fingerprint_of(ps::concat(data, one)) != ps::fingerprint_of(ps::concat(one, data)));
  CHECK(ps::fingerprint_of(ps::concat(data, one)) !=
        ps::fingerprint_of(ps::concat(data, data | ps::exclude({4}))));
  CHECK(ps::fingerprint_of(one | ps::subset(0, 5)) !=
        ps::fingerprint_of(data | ps::exclude({4}) | ps::subset(0, 5)));
}

TEST_CASE("two successive lists differ in the fingerprint from one combined list", "[adaptors]") {
  const ticks values = counted(6);
  const ps::memory_dataset<tick> data{values};
  const auto two = data | ps::exclude(list{0}) | ps::subset(list{2, 2});
  const auto one = data | ps::exclude(list{0, 3, 4, 5});
  REQUIRE(two.size() == one.size());
  CHECK(two.fingerprint() != one.fingerprint());
}
