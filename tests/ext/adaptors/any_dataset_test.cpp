// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/adaptors/any_dataset.hpp>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock_ext/adaptors/exclude.hpp>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using pair_record = ps::record<ps::field<"x", std::uint64_t>, ps::field<"bits", std::uint32_t>>;

struct drawing {
  using record_type = pair_record;
  // Makes the dataset move-only.
  std::unique_ptr<std::uint64_t> base = std::make_unique<std::uint64_t>(0);
  std::uint64_t size() const { return 100; }
  void read(std::uint64_t i, ps::sample<record_type> out, ps::sample_generator& rng) const {
    ps::get<"x">(out) = *base + i;
    ps::get<"bits">(out) = rng();
  }
};

const auto drawn_again = [](ps::sample<pair_record> s, ps::sample_generator& rng) {
  ps::get<"bits">(s) ^= static_cast<std::uint32_t>(rng());
};

const std::vector<std::uint64_t> some{9, 3, 50, 3};

template <class D>
std::vector<std::uint64_t> look(const D& data) {
  auto batch = test::read_batch(data, some, {.seed = 3, .epoch = 2});
  auto all = test::values<"x">(batch);
  for (const std::uint32_t bits : test::values<"bits">(batch)) all.push_back(bits);
  return all;
}

}  // namespace

TEST_CASE("an any_dataset returns the samples and random bits of its dataset",
          "[adaptors][promise:exact-1]") {
  const ps::any_dataset any = drawing{} | ps::map(drawn_again) | ps::exclude({1, 2});
  CHECK(any.size() == 98);
  CHECK(look(any) == look(drawing{} | ps::map(drawn_again) | ps::exclude({1, 2})));
  CHECK(ps::fingerprint_of(any) == ps::fingerprint_of(drawing{} | ps::exclude({1, 2})));
  CHECK(ps::origin_of(any, 1) == ps::sample_origin{3, 0});
  CHECK(ps::base_sizes_of(any) == std::vector<std::uint64_t>{100});
  const ps::any_dataset<pair_record> copy = any;
  CHECK(look(copy) == look(any));
}

// An any_dataset is a handle, so a pipeline that starts with a variable stores a copy.
static_assert(std::is_same_v<ps::stored_dataset_t<const ps::any_dataset<pair_record>&>,
                             ps::any_dataset<pair_record>>);

TEST_CASE("maps that are added one by one draw the same bits as one pipeline",
          "[adaptors][promise:exact-1]") {
  ps::any_dataset<pair_record> data = drawing{};
  for (int i = 0; i < 3; ++i) data = data | ps::map(drawn_again);
  CHECK(look(data) ==
        look(drawing{} | ps::map(drawn_again) | ps::map(drawn_again) | ps::map(drawn_again)));
  CHECK(look(data) != look(drawing{} | ps::map(drawn_again)));
  // The pipeline has copied the variable, so a later assignment has no effect.
  const auto kept = data | ps::subset(0, 60);
  data = drawing{};
  CHECK(look(kept) ==
        look(drawing{} | ps::map(drawn_again) | ps::map(drawn_again) | ps::map(drawn_again)));
}

TEST_CASE("an erased dataset refers to an lvalue", "[adaptors]") {
  drawing inside;
  const ps::any_dataset any{inside};
  *inside.base = 1000;
  CHECK(test::values<"x">(test::read_batch(any, {1})) == std::vector<std::uint64_t>{1001});
}
