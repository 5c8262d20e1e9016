// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/adaptors/random_split.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

using split_row = ps::record<ps::field<"x", std::int32_t>, ps::field<"label", std::uint8_t>>;
using indices = std::vector<std::uint64_t>;

// A dataset in which each sample is its own index. The labels are sorted, as in a folder that is
// sorted by class.
struct sorted_by_class {
  using record_type = split_row;
  std::uint64_t count;
  std::uint64_t classes = 10;

  [[nodiscard]] std::uint64_t size() const { return count; }
  [[nodiscard]] std::uint64_t class_of(std::uint64_t index) const {
    return index * classes / count;
  }
  void read(std::uint64_t index, ps::sample<split_row> out) const {
    ps::get<"x">(out) = static_cast<std::int32_t>(index);
    ps::get<"label">(out) = static_cast<std::uint8_t>(class_of(index));
  }
};

// Returns the original indices of all samples in a part, in the order of the part.
template <class Part>
indices members(const Part& part) {
  indices all;
  for (std::uint64_t i = 0; i < part.size(); ++i) all.push_back(ps::origin_of(part, i).index);
  return all;
}

template <class Parts>
indices sizes(const Parts& parts) {
  indices all;
  for (const auto& part : parts) all.push_back(part.size());
  return all;
}

// Returns true if each of the `size` samples is in exactly one part.
template <class Parts>
bool covers(const Parts& parts, std::uint64_t size) {
  indices all;
  for (const auto& part : parts) {
    for (const std::uint64_t index : members(part)) all.push_back(index);
  }
  std::sort(all.begin(), all.end());
  indices expected(size);
  std::iota(expected.begin(), expected.end(), std::uint64_t{0});
  return all == expected;
}

// Returns the number of samples of each class in a part.
template <class Part>
indices classes_in(const Part& part, const sorted_by_class& data) {
  indices counts(data.classes);
  for (const std::uint64_t index : members(part)) ++counts[data.class_of(index)];
  return counts;
}

}  // namespace

TEST_CASE("each sample is in one part of a random split", "[data]") {
  for (const std::uint64_t size : {0U, 1U, 2U, 3U, 10U, 64U, 65U, 1000U, 4097U}) {
    const sorted_by_class data{size};
    for (const std::uint64_t seed : {0U, 1U, 77U}) {
      CAPTURE(size, seed);
      CHECK(covers(ps::random_split(data, {0.8, 0.2}, seed), size));
      CHECK(covers(ps::random_split(data, {0.5, 0.25, 0.125, 0.125}, seed), size));
      CHECK(covers(ps::random_split(data, {0.7, 0.1, 0.2}, seed, ps::stratified<"label">()), size));
      const std::vector<double> tenths(10, 0.1);
      CHECK(covers(ps::random_split(data, tenths, seed), size));
      CHECK(covers(ps::random_split(data, tenths, seed, ps::stratified<"label">()), size));
    }
  }
}

TEST_CASE("the parts of a random split have the sizes of largest remainders", "[data]") {
  const auto split = [](std::uint64_t size, std::span<const double> fractions) {
    const sorted_by_class data{size};
    const auto parts = sizes(ps::random_split(data, fractions, 1));
    CHECK(sizes(ps::random_split(data, fractions, 2, ps::stratified<"label">())) == parts);
    return parts;
  };
  CHECK(split(10, std::array{0.8, 0.2}) == indices{8, 2});
  CHECK(split(100, std::array{0.29, 0.57, 0.14}) == indices{29, 57, 14});
  CHECK(split(3, std::array{0.5, 0.5}) == indices{2, 1});
  CHECK(split(5, std::array{0.1, 0.2, 0.7}) == indices{1, 1, 3});
  CHECK(split(5, std::array{0.7, 0.2, 0.1}) == indices{4, 1, 0});
  CHECK(split(7, std::array{1.0 / 3, 1.0 / 3, 1.0 / 3}) == indices{3, 2, 2});
  CHECK(split(11, std::array{0.0, 1.0}) == indices{0, 11});
  CHECK(split(1000, std::array{0.3333333, 0.6666666}) == indices{333, 667});
  constexpr std::uint64_t many = 1'000'000'000'000'000'000;
  CHECK(ps::detail::split_sizes(many, std::array{0.7, 0.3}) ==
        indices{many / 10 * 7, many / 10 * 3});
  // In double arithmetic, 0.2683 * 10^15 is slightly less than the exact integer, so the product
  // must be rounded.
  CHECK(ps::detail::split_sizes(many, std::array{0.2683, 0.7317}) ==
        indices{many / 10'000 * 2683, many / 10'000 * 7317});
}

TEST_CASE("a random split of a growing dataset has the samples at the time of the split",
          "[data]") {
  struct growing : sorted_by_class {
    mutable int requested = 0;
    [[nodiscard]] std::uint64_t size() const { return requested++ == 0 ? 10 : 14; }
  };
  const growing data{{.count = 14}};
  const auto [a, b] = ps::random_split(data, {0.5, 0.5}, 1);
  indices all = members(a);
  for (const std::uint64_t index : members(b)) all.push_back(index);
  std::sort(all.begin(), all.end());
  CHECK(all == indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("the remainders of a random split go to the largest fractions, ties to the first part",
          "[data]") {
  constexpr std::size_t parts = 20'000;
  const std::vector<double> fractions(parts, 1.0 / parts);
  const indices all = ps::detail::split_sizes(3 * parts + 5, fractions);
  indices expected(parts, 3);
  std::fill_n(expected.begin(), 5, 4U);
  CHECK(all == expected);
}

TEST_CASE("a random split is the same on every machine", "[data]") {
  const sorted_by_class small{10};
  const auto [a, b] = ps::random_split(small, {0.6, 0.4}, 1);
  CHECK(members(a) == indices{7, 2, 5, 9, 8, 3});
  CHECK(members(b) == indices{0, 6, 1, 4});
  const sorted_by_class large{100'000};
  const auto parts = ps::random_split(large, {0.99995, 0.00005}, 7);
  CHECK(members(parts[1]) == indices{26966, 85826, 47547, 72910, 1287});
  const auto by_class = ps::random_split(large, {0.99995, 0.00005}, 7, ps::stratified<"label">());
  CHECK(members(by_class[1]) == indices{31349, 17885, 51632, 93195, 70099});
}

TEST_CASE("other seeds give other splits, and a sorted folder is split evenly", "[data]") {
  const sorted_by_class data{1000};
  const auto once = ps::random_split(data, {0.8, 0.2}, 1);
  CHECK(members(once[0]) == members(ps::random_split(data, {0.8, 0.2}, 1)[0]));
  CHECK(members(once[0]) != members(ps::random_split(data, {0.8, 0.2}, 2)[0]));
  for (const std::uint64_t count : classes_in(once[1], data)) {
    CHECK(count >= 8);
    CHECK(count <= 34);  // about 3.5 standard deviations from the mean of 20
  }
  // A slice of a part contains all classes too, because the samples of a part are shuffled.
  const auto first = once[0] | ps::subset(0, 100);
  for (const std::uint64_t count : classes_in(first, data)) CHECK(count > 0);
  const auto by_class = ps::random_split(data, {0.8, 0.2}, 1, ps::stratified<"label">());
  const auto first_by_class = by_class[0] | ps::subset(0, 100);
  for (const std::uint64_t count : classes_in(first_by_class, data)) CHECK(count > 0);
}

TEST_CASE("the order of a split differs from the order of an epoch", "[data]") {
  constexpr std::uint64_t size = 100;
  const sorted_by_class data{size};
  const ps::detail::permutation epoch{size, 5, 0};
  indices shuffled(size);
  epoch.fill(0, shuffled);
  CHECK(members(ps::random_split(data, {1.0}, 5)[0]) != shuffled);
}

TEST_CASE("a stratified part has its share of each class", "[data]") {
  for (const std::uint64_t size : {100U, 1000U, 1003U, 77U}) {
    for (const std::uint64_t classes : {1U, 7U, 10U, 30U}) {
      CAPTURE(size, classes);
      const sorted_by_class data{size, classes};
      const auto count = classes_in(ps::random_split(data, {1.0}, 1)[0], data);
      const auto within = [&](const auto& part, double max) {
        const double share = static_cast<double>(part.size()) / static_cast<double>(size);
        const auto found = classes_in(part, data);
        for (std::size_t one = 0; one < classes; ++one) {
          const double due = share * static_cast<double>(count[one]);
          CHECK(std::abs(static_cast<double>(found[one]) - due) < max);
        }
      };
      for (const auto& part : ps::random_split(data, {0.8, 0.2}, 3, ps::stratified<"label">())) {
        within(part, 1);
      }
      for (const auto& part :
           ps::random_split(data, {0.5, 0.3, 0.2}, 3, ps::stratified<"label">())) {
        within(part, 2);
      }
    }
  }
  // Such small classes cannot be split individually: 0.2 of 1000 classes with 7 samples is 1400
  // samples, not 1 per class.
  const sorted_by_class many{7000, 1000};
  const auto parts = ps::random_split(
      many, {0.8, 0.2}, 1, ps::stratified([&](std::uint64_t i) { return many.class_of(i); }));
  CHECK(sizes(parts) == indices{5600, 1400});
}

TEST_CASE("labels are read from a field or computed by a function of the index", "[data]") {
  const sorted_by_class data{333};
  std::vector<std::uint8_t> labels;
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    labels.push_back(static_cast<std::uint8_t>(data.class_of(i)));
  }
  using label_only = ps::record<ps::field<"label", std::uint8_t>>;
  const ps::memory_dataset<label_only> viewed{labels};
  const auto by_reading = ps::random_split(data, {0.8, 0.2}, 1, ps::stratified<"label">());
  const auto by_view = ps::random_split(viewed, {0.8, 0.2}, 1, ps::stratified<"label">());
  std::uint64_t calls = 0;
  const auto by_function =
      ps::random_split(data, {0.8, 0.2}, 1, ps::stratified([&](std::uint64_t index) {
                         ++calls;
                         return static_cast<std::int16_t>(data.class_of(index));
                       }));
  CHECK(calls == 333);
  for (const std::size_t part : {0U, 1U}) {
    CHECK(members(by_reading[part]) == members(by_view[part]));
    CHECK(members(by_reading[part]) == members(by_function[part]));
  }
}

TEST_CASE("a split refers to an lvalue, and owns an rvalue until its last part is destroyed",
          "[data]") {
  struct watched : sorted_by_class {
    std::shared_ptr<int> token;
  };
  const auto token = std::make_shared<int>(0);
  {
    auto parts = ps::random_split(watched{{100}, token}, {0.8, 0.2}, 1);
    CHECK(token.use_count() == 2);
    CHECK_FALSE(ps::detail::borrows<std::remove_cvref_t<decltype(parts[0])>>);
    const auto left = std::move(parts[1]);
    { const auto gone = std::move(parts); }
    CHECK(token.use_count() == 2);
    CHECK(test::values<"x">(test::read_batch(left, {0}))[0] ==
          static_cast<std::int32_t>(members(left)[0]));
  }
  CHECK(token.use_count() == 1);

  sorted_by_class data{100};
  const auto referring = ps::random_split(data, {0.8, 0.2}, 1);
  CHECK(ps::detail::borrows<std::remove_cvref_t<decltype(referring[0])>>);
  const ps::any_dataset<split_row> any = data;
  const auto over_any = ps::random_split(any, {0.8, 0.2}, 1);
  CHECK(members(over_any[1]) == members(referring[1]));
  // A move-only dataset.
  struct only_moves : sorted_by_class {
    std::unique_ptr<int> owned = std::make_unique<int>(1);
  };
  const auto [train, rest] = ps::random_split(only_moves{{10}}, {0.8, 0.2}, 1);
  CHECK(train.size() + rest.size() == 10);
}

TEST_CASE("a part of a random split has the capabilities of its dataset", "[data]") {
  std::vector<std::int32_t> values(100);
  std::iota(values.begin(), values.end(), 0);
  using number = ps::record<ps::field<"x", std::int32_t>>;
  const ps::memory_dataset<number> data{values};
  const auto both = ps::random_split(data, {0.8, 0.2}, 1);  // clang 14 cannot capture structured
                                                            // bindings
  const auto& [train, rest] = both;
  CHECK(ps::dataset<std::remove_cvref_t<decltype(train)>>);
  const auto of_train = members(train);
  CHECK(&ps::get<"x">(train.view(3)) == &values[of_train[3]]);
  train.prefetch(1);
  train.prefetch(80);
  const auto twice = train | ps::map([](ps::sample<number> s) { ps::get<"x">(s) *= 2; });
  CHECK(test::values<"x">(test::read_batch(twice, {70, 0})) ==
        std::vector<std::int32_t>{static_cast<std::int32_t>(2 * of_train[70]),
                                  static_cast<std::int32_t>(2 * of_train[0])});
  CHECK(error_of<ps::index_error>([&] { (void)both[1].view(20); }).size() == 20);
  CHECK(rest.size() == 20);
  CHECK(ps::base_sizes_of(train) == indices{100});

  struct planned : sorted_by_class {
    std::shared_ptr<indices> reported = std::make_shared<indices>();
    void prefetch_hint(std::span<const std::uint64_t> some) const {
      reported->insert(reported->end(), some.begin(), some.end());
    }
    [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const { return 1000 + index; }
  };
  const planned source{{100}};
  const auto parts = ps::random_split(source, {0.8, 0.2}, 1);
  CHECK(members(parts[0]) == of_train);
  ps::prefetch_hint(parts[0], indices{5, 6});
  CHECK(*source.reported == indices{of_train[5], of_train[6]});
  CHECK(ps::storage_size_of(parts[0], 7) == 1000 + of_train[7]);
}

TEST_CASE("a part of a split has a fingerprint of seed, sizes and labels", "[data]") {
  const sorted_by_class data{100};
  std::set<std::uint64_t> seen;
  std::size_t made = 0;
  const auto add = [&](const auto& parts) {
    for (const auto& part : parts) {
      seen.insert(ps::fingerprint_of(part));
      ++made;
    }
  };
  add(ps::random_split(data, {0.8, 0.2}, 1));
  add(ps::random_split(data, {0.8, 0.2}, 2));
  add(ps::random_split(data, {0.7, 0.3}, 3));
  add(ps::random_split(sorted_by_class{101}, {0.8, 0.2}, 1));
  add(ps::random_split(data, {0.8, 0.2}, 1, ps::stratified<"label">()));
  CHECK(seen.size() == made);
  add(ps::random_split(data, {0.8, 0.2}, 1));
  CHECK(seen.size() == made - 2);
}

TEST_CASE("fractions that do not form a split are rejected", "[data][fault:samples-7]") {
  const sorted_by_class data{100};
  const auto rejected = [&](const std::vector<double>& fractions) {
    const auto problem =
        error_of<ps::option_error>([&] { (void)ps::random_split(data, fractions, 1); });
    CHECK(problem.option() == "fractions");
    const auto stratified = error_of<ps::option_error>(
        [&] { (void)ps::random_split(data, fractions, 1, ps::stratified<"label">()); });
    CHECK(std::string{stratified.what()} == problem.what());
    return std::string{problem.what()};
  };
  CHECK(rejected({}) == "fractions: must not be empty");
  CHECK(rejected({0.8, -0.2}) == "fractions: must lie in [0, 1], found -0.2 for part 1");
  CHECK(rejected({1.5, -0.5}) == "fractions: must lie in [0, 1], found 1.5 for part 0");
  CHECK(test::has(rejected({std::numeric_limits<double>::quiet_NaN()}), "found nan"));
  CHECK(rejected({0.5, 0.25}) ==
        "fractions: must have the sum 1, found 0.75: divide each weight by that sum");
  CHECK(test::has(rejected({80, 20}), "must lie in [0, 1], found 80"));
  CHECK(test::has(rejected({1, 1}), "must have the sum 1, found 2"));
  CHECK(test::has(rejected({0.5, 0.499998}), "must have the sum 1, found 0.99999"));
  CHECK(sizes(ps::random_split(data, {0.5, 0.4999995}, 1)) == indices{50, 50});
}
