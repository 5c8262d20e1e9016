// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/extents.hpp>

#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("fixed extents have constant lengths and occupy no memory", "[core]") {
  constexpr ps::extents<3, 28, 28> lengths;
  CHECK(lengths.rank == 3);
  CHECK(lengths.dynamic_rank == 0);
  CHECK(lengths[0] == 3);
  CHECK(lengths[2] == 28);
  CHECK(lengths.size() == 3 * 28 * 28);
  CHECK(std::is_empty_v<ps::extents<3, 28, 28>>);
}

TEST_CASE("dynamic extents are specified in order and mixed with fixed extents", "[core]") {
  constexpr ps::extents<ps::dyn, 3, ps::dyn> lengths{5, 7};
  CHECK(lengths.dynamic_rank == 2);
  CHECK(lengths[0] == 5);
  CHECK(lengths[1] == 3);
  CHECK(lengths[2] == 7);
  CHECK(lengths.size() == 105);
  CHECK(sizeof(lengths) == 2 * sizeof(std::size_t));
}

TEST_CASE("a scalar has rank 0", "[core]") {
  constexpr ps::extents<> scalar;
  CHECK(scalar.rank == 0);
  CHECK(scalar.size() == 1);
  CHECK(scalar[0] == 1);
}

TEST_CASE("a dimension beyond the rank has length 1", "[core]") {
  CHECK(ps::extents<4>{}[1] == 1);
  CHECK(ps::extents<ps::dyn>{4}[3] == 1);
}

TEST_CASE("extents compare by their dynamic lengths", "[core]") {
  using lengths = ps::extents<ps::dyn, 2>;
  CHECK(lengths{3} == lengths{3});
  CHECK_FALSE(lengths{3} == lengths{4});
}

TEST_CASE("every dynamic extent needs a length", "[core]") {
  CHECK(std::is_constructible_v<ps::extents<ps::dyn, ps::dyn>, int, int>);
  CHECK_FALSE(std::is_constructible_v<ps::extents<ps::dyn, ps::dyn>, int>);
  CHECK_FALSE(std::is_default_constructible_v<ps::extents<ps::dyn>>);
}
