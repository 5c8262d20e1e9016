// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/adaptors/interleave.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;

namespace {

using mark = ps::record<ps::field<"x", std::int32_t>>;
using marks = std::vector<std::int32_t>;

/// Returns `size` values starting at 1000 times `which`.
marks of(std::int32_t which, std::size_t size) {
  marks values(size);
  std::iota(values.begin(), values.end(), which * 1000);
  return values;
}

template <class D>
marks all_marks(const D& data) {
  if (data.size() == 0) return {};
  std::vector<std::uint64_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  return test::values<"x">(test::read_batch(data, indices));
}

std::string why_not(const ps::interleave_options& how, std::size_t of_first,
                    std::size_t of_second) {
  const marks a = of(0, of_first);
  const marks b = of(1, of_second);
  const ps::memory_dataset<mark> one{a};
  const ps::memory_dataset<mark> other{b};
  return test::rejection_of([&] { (void)ps::interleave(how, one, other); }).text;
}

}  // namespace

TEST_CASE("datasets take turns by their weights", "[adaptors]") {
  const marks a = of(0, 7);
  const marks b = of(1, 100);
  const ps::memory_dataset<mark> one{a};
  const ps::memory_dataset<mark> other{b};
  CHECK(all_marks(ps::interleave({.weights = {3, 1}}, one, other)) ==
        marks{0, 1, 1000, 2, 3, 4, 1001, 5, 6});
  CHECK(all_marks(ps::interleave({}, one, other | ps::subset(0, 2))) == marks{0, 1000, 1, 1001, 2});
  CHECK(all_marks(ps::interleave({}, one)) == a);
  // A common factor of the weights has no effect.
  CHECK(all_marks(ps::interleave({.weights = {30, 10}}, one, other)) ==
        all_marks(ps::interleave({.weights = {3, 1}}, one, other)));
}

TEST_CASE("weights are exact in every round, and each dataset keeps its order",
          "[adaptors][promise:exact-2]") {
  const std::vector<std::uint32_t> weights{5, 1, 3, 8};
  std::vector<marks> values;
  for (std::int32_t i = 0; i < 4; ++i) values.push_back(of(i, 500));
  const ps::memory_dataset<mark> a{values[0]};
  const ps::memory_dataset<mark> b{values[1]};
  const ps::memory_dataset<mark> c{values[2]};
  const ps::memory_dataset<mark> d{values[3]};
  const auto mixed = ps::interleave({.weights = weights}, a, b, c, d);
  const marks all = all_marks(mixed);
  CHECK(mixed.size() > 62 * 17);
  std::vector<std::int32_t> next{0, 1000, 2000, 3000};
  for (std::size_t begin = 0; begin + 17 <= all.size(); begin += 17) {
    std::vector<std::uint32_t> seen(4);
    for (std::size_t i = begin; i < begin + 17; ++i) {
      const auto which = static_cast<std::size_t>(all[i] / 1000);
      ++seen[which];
      REQUIRE(all[i] == next[which]++);
    }
    REQUIRE(seen == weights);
  }
  CHECK(ps::origin_of(mixed, 0).part == 3);
}

TEST_CASE("interleave ends with its first exhausted dataset, or repeats until all are exhausted",
          "[adaptors]") {
  const marks a = of(0, 2);
  const marks b = of(1, 5);
  const ps::memory_dataset<mark> one{a};
  const ps::memory_dataset<mark> other{b};
  CHECK(all_marks(ps::interleave({}, one, other)) == marks{0, 1000, 1, 1001});
  CHECK(all_marks(ps::interleave({}, other, one)) == marks{1000, 0, 1001, 1, 1002});
  CHECK(all_marks(ps::interleave({.on_exhausted = ps::exhausted_policy::repeat}, one, other)) ==
        marks{0, 1000, 1, 1001, 0, 1002, 1, 1003, 0, 1004});
  CHECK(all_marks(ps::interleave({.weights = {1, 2}, .on_exhausted = ps::exhausted_policy::repeat},
                                 one, other)) == marks{1000, 0, 1001, 1002, 1, 1003, 1004});
  CHECK(ps::interleave({}, one, other | ps::subset(0, 0)).size() == 1);
}

TEST_CASE("invalid weights of interleave are rejected", "[adaptors][fault:samples-7]") {
  CHECK(why_not({.weights = {1}}, 2, 2) ==
        "weights: there are 1 weights for 2 datasets: give one weight per dataset, or none for "
        "equal weights");
  CHECK(why_not({.weights = {1, 0}}, 2, 2) ==
        "weights: the weight of dataset 1 is 0: omit the dataset");
  CHECK(why_not({.weights = {65536, 1}}, 2, 2) ==
        "weights: their sum after division by the common divisor is 65537, above 65536: use "
        "coarser weights, for example from `temperature_weights`");
  CHECK(why_not({.weights = {65535, 1}}, 2, 2) == "none");
  CHECK(why_not({.on_exhausted = ps::exhausted_policy::repeat}, 2, 0) ==
        "on_exhausted: dataset 1 has no sample that could be repeated");
}

TEST_CASE("the fingerprint of a mixture is that of its weights and sizes",
          "[adaptors][promise:exact-7]") {
  const marks a = of(0, 8);
  const marks b = of(1, 8);
  const ps::memory_dataset<mark> one{a};
  const ps::memory_dataset<mark> other{b};
  const auto print = [&](std::vector<std::uint32_t> weights, ps::exhausted_policy through) {
    return ps::fingerprint_of(
        ps::interleave({.weights = std::move(weights), .on_exhausted = through}, one, other));
  };
  CHECK(print({2, 1}, ps::exhausted_policy::end) == print({4, 2}, ps::exhausted_policy::end));
  CHECK(print({2, 1}, ps::exhausted_policy::end) != print({1, 2}, ps::exhausted_policy::end));
  CHECK(print({2, 1}, ps::exhausted_policy::end) != print({2, 1}, ps::exhausted_policy::repeat));
}
