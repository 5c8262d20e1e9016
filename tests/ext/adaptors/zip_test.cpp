// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/adaptors/zip.hpp>

#include <cstdint>
#include <set>
#include <stdexcept>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/adaptors/with_index.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using left_record = ps::record<ps::field<"row", std::int16_t, ps::dyn, 2>, ps::field<"a", char>>;
using right_record = ps::record<ps::field<"b", double>, ps::field<"bits", std::uint32_t>>;

/// A dataset in which sample i consists of the value i repeated, and i.
struct lefts {
  using record_type = left_record;
  std::uint64_t count = 300;
  std::size_t rows = 3;
  std::uint64_t size() const { return count; }
  ps::record_extents<record_type> extents() const { return {{rows}, {}}; }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    for (auto& x : ps::get<"row">(out).flat()) x = static_cast<std::int16_t>(i);
    ps::get<"a">(out) = static_cast<char>(i % 100);
  }
};

/// A dataset in which sample i consists of i and a random draw. One sample may be bad.
struct rights {
  using record_type = right_record;
  std::uint64_t count = 300;
  std::uint64_t size() const { return count; }
  void read(std::uint64_t i, ps::sample<record_type> out, ps::sample_generator& rng) const {
    if (i == 299) throw std::domain_error("299");
    ps::get<"b">(out) = static_cast<double>(i);
    ps::get<"bits">(out) = rng();
  }
};

}  // namespace

TEST_CASE("a zip has the fields of both parts, sample by sample", "[adaptors][promise:exact-2]") {
  const auto both = ps::zip(lefts{}, rights{});
  using record = decltype(both)::record_type;
  static_assert(record::size == 4 && record::index_of<"a">() == 1 && record::index_of<"b">() == 2);
  CHECK(both.size() == 300);
  CHECK(ps::extents_of(both).at<0>()[0] == 3);
  const std::vector<std::uint64_t> wanted{5, 298, 0, 77, 5};
  auto batch = test::read_batch(both, wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto row = batch.get<"row">();
    for (std::size_t j = 0; j < 3; ++j) CHECK(row(i, j, 1) == static_cast<int>(wanted[i]));
    CHECK(batch.get<"a">()(i) == static_cast<char>(wanted[i] % 100));
    CHECK(batch.get<"b">()(i) == static_cast<double>(wanted[i]));
  }
  // Also reads into the middle of a batch.
  test::batch_memory<record> memory{ps::extents_of(both), 7};
  ps::reader reader{both};
  reader.read(std::vector<std::uint64_t>{9, 8}, memory.view().subchunk(4, 2), {});
  CHECK(memory.get<"b">()(5) == 8);
  CHECK(memory.get<"row">()(4, 2, 0) == 9);
  CHECK(memory.get<"row">()(3, 0, 0) != 9);
}

TEST_CASE("the parts of a zip, and a map over it, share no random bits",
          "[adaptors][promise:exact-2]") {
  const auto draw = [](auto s, ps::sample_generator& rng) {
    ps::get<"bits">(s) = static_cast<std::uint32_t>(rng());
  };
  struct others : rights {
    using record_type = ps::record<ps::field<"other", std::uint32_t>>;
    void read(std::uint64_t, ps::sample<record_type> out, ps::sample_generator& rng) const {
      ps::get<"other">(out) = rng();
    }
  };
  const auto draws_of = [](const auto& data) {
    auto batch = test::read_batch(data, {4, 5});
    std::set<std::uint32_t> seen;
    for (const auto x : test::values<"bits">(batch)) seen.insert(x);
    for (const auto x : test::values<"other">(batch)) seen.insert(x);
    return seen;
  };
  const auto alone = test::values<"bits">(test::read_batch(rights{}, {4, 5}));
  auto pair = test::read_batch(ps::zip(rights{}, others{}), {4, 5});
  CHECK(test::values<"bits">(pair) == alone);
  // All random draws differ: those of the two parts, and those of a map over both parts or over the
  // first part.
  for (const bool is_over : {true, false}) {
    auto mapped = is_over ? draws_of(ps::zip(rights{}, others{}) | ps::map(draw))
                          : draws_of(ps::zip(rights{} | ps::map(draw), others{}));
    mapped.insert(alone.begin(), alone.end());
    CHECK(mapped.size() == 6);
  }
}

TEST_CASE("datasets of different sizes are not zipped", "[adaptors][fault:samples-7]") {
  CHECK_THROWS_MATCHES(ps::zip(lefts{}, rights{.count = 299}), ps::zip_mismatch,
                       Catch::Matchers::Message("zip: the first dataset has 300 samples, the "
                                                "second 299: shorten one of them with subset"));
  CHECK_NOTHROW(ps::zip(lefts{} | ps::subset(0, 299), rights{.count = 299}));
}

TEST_CASE("a bad sample of either part of a zip is named", "[adaptors]") {
  const auto both = ps::zip(lefts{} | ps::subset(100, 300), rights{} | ps::subset(100, 300));
  test::batch_memory<decltype(both)::record_type> memory{ps::extents_of(both), 3};
  ps::reader reader{both};
  CHECK_THROWS_AS(reader.read(std::vector<std::uint64_t>{1, 199, 2}, memory.view(), {}),
                  std::domain_error);
  CHECK(reader.failed_at() == 1);
  CHECK(ps::origin_of(both, 199) == ps::sample_origin{299, 0});
  CHECK(ps::base_sizes_of(both) == std::vector<std::uint64_t>{300});
  CHECK(ps::fingerprint_of(both) != ps::fingerprint_of(ps::zip(lefts{} | ps::subset(100, 300),
                                                               rights{} | ps::subset(99, 299))));
  CHECK(ps::fingerprint_of(ps::zip(lefts{}, rights{})) == 0);
}

TEST_CASE("with_index adds the index of the dataset on its left", "[adaptors]") {
  const auto rows = lefts{} | ps::with_index<"row_of">() | ps::subset(100, 200) | ps::with_index();
  auto batch = test::read_batch(rows, {3, 99, 0});
  CHECK(test::values<"row_of">(batch) == std::vector<std::uint64_t>{103, 199, 100});
  CHECK(test::values<"index">(batch) == std::vector<std::uint64_t>{3, 99, 0});
  CHECK(batch.get<"row">()(1, 2, 1) == 199);
  CHECK(batch.get<"a">()(1) == 99);
}

TEST_CASE("a map may accept the sample's index before its random bits", "[adaptors]") {
  using out = ps::record<ps::field<"index", std::uint64_t>, ps::field<"bits", std::uint32_t>>;
  const auto note = [](ps::sample<left_record> s, std::uint64_t index) {
    ps::get<"a">(s) = static_cast<char>(index);
  };
  const auto make = [](ps::const_sample<left_record> in, ps::sample<out> to, std::uint64_t index,
                       ps::sample_generator& rng) {
    ps::get<"index">(to) = index * 1000 + static_cast<std::uint64_t>(ps::get<"a">(in));
    ps::get<"bits">(to) = rng();
  };
  const auto drawn = [](ps::const_sample<left_record>, ps::sample<out> to,
                        ps::sample_generator& rng) { ps::get<"bits">(to) = rng(); };
  const auto made = lefts{} | ps::map(note) | ps::subset(10, 60) | ps::map<out>(make);
  auto batch = test::read_batch(made, {0, 49});
  CHECK(test::values<"index">(batch) == std::vector<std::uint64_t>{10, 49059});
  // A map receives the same generator with or without an index.
  CHECK(test::values<"bits">(batch) ==
        test::values<"bits">(test::read_batch(lefts{} | ps::map<out>(drawn), {0, 49})));
  const auto both = [](ps::sample<out> s, std::uint64_t index, ps::sample_generator& rng) {
    ps::get<"index">(s) = index;
    ps::get<"bits">(s) = rng();
  };
  auto again = test::read_batch(made | ps::map(both), {7});
  CHECK(test::values<"index">(again) == std::vector<std::uint64_t>{7});
  CHECK(test::values<"bits">(again) != test::values<"bits">(test::read_batch(made, {7})));
}
