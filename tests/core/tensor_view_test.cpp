// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/tensor_view.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

std::array<int, 24> counted() {
  std::array<int, 24> values{};
  std::iota(values.begin(), values.end(), 0);
  return values;
}

// A type with the members of std::mdspan that the conversion uses.
template <class T, std::size_t Rank>
struct mdspan_like {
  using element_type = T;
  using extents_type = std::array<std::size_t, Rank>;
  using data_handle_type = T*;
  static constexpr std::size_t rank() { return Rank; }

  template <class... Lengths>
  explicit mdspan_like(T* first, Lengths... given) : data(first), lengths{given...} {}

  T* data;
  extents_type lengths;
};

}  // namespace

TEST_CASE("elements are stored in row-major order", "[core]") {
  auto values = counted();
  const ps::tensor_view<int, 2, 3, 4> view{values.data(), {}};
  CHECK(view.size() == 24);
  CHECK(view.extent(1) == 3);
  CHECK(view(0, 0, 0) == 0);
  CHECK(view(0, 1, 0) == 4);
  CHECK(view(1, 2, 3) == 23);
}

TEST_CASE("a view with a dynamic outermost extent addresses like a fixed one", "[core]") {
  auto values = counted();
  const ps::tensor_view<int, ps::dyn, ps::dyn, 4> view{values.data(), {2, 3}};
  CHECK(view.size() == 24);
  CHECK(view(1, 0, 2) == 14);
}

TEST_CASE("indexing drops the outermost dimension", "[core]") {
  auto values = counted();
  const ps::tensor_view<int, ps::dyn, ps::dyn, 4> view{values.data(), {2, 3}};
  const auto inner = view[1];
  CHECK(std::is_same_v<decltype(inner), const ps::tensor_view<int, ps::dyn, 4>>);
  CHECK(inner.extent(0) == 3);
  CHECK(inner(0, 0) == 12);
  CHECK(inner[2].data() == values.data() + 20);
  inner[2][3] = -1;
  CHECK(values[23] == -1);
}

TEST_CASE("a view of rank 0 has one element", "[core]") {
  int value = 7;
  const ps::tensor_view<int> view{&value, {}};
  CHECK(view.size() == 1);
  view() = 8;
  CHECK(value == 8);
}

TEST_CASE("flat returns all elements in memory order", "[core]") {
  auto values = counted();
  const ps::tensor_view<int, 4, 6> view{values.data(), {}};
  CHECK(view.flat().data() == values.data());
  CHECK(view.flat().size() == 24);
}

TEST_CASE("a view reports its shape and strides in the types of array libraries", "[core]") {
  int values[24] = {};
  constexpr ps::tensor_view<int, ps::dyn, 3, ps::dyn> view{nullptr, {2, 4}};
  using three = std::array<std::int64_t, 3>;
  static_assert(view.shape() == three{2, 3, 4});
  static_assert(view.strides() == three{12, 4, 1});
  const auto steps = ps::tensor_view<int, 2, 3, 4>{values, {}}.strides();
  CHECK(&ps::tensor_view<int, 2, 3, 4>{values, {}}(1, 2, 3) ==
        values + steps[0] + 2 * steps[1] + 3 * steps[2]);
  CHECK(ps::tensor_view<int, ps::dyn, 6>{values, {0}}.strides() ==
        std::array<std::int64_t, 2>{6, 1});
  CHECK(ps::tensor_view<int>{values, {}}.shape().empty());
}

TEST_CASE("a view converts to a const view and not back", "[core]") {
  using mutable_view = ps::tensor_view<int, ps::dyn>;
  using const_view = ps::tensor_view<const int, ps::dyn>;
  CHECK(std::is_convertible_v<mutable_view, const_view>);
  CHECK_FALSE(std::is_convertible_v<const_view, mutable_view>);
  int values[3] = {1, 2, 3};
  const const_view view = mutable_view{values, {3}};
  CHECK(view(2) == 3);
  CHECK(view.size() == 3);
}

TEST_CASE("a view converts to types of mdspan's shape of its rank and element", "[core]") {
  auto values = counted();
  const ps::tensor_view<int, ps::dyn, 6> view{values.data(), {4}};
  const mdspan_like<int, 2> span = view;
  CHECK(span.data == values.data());
  CHECK(span.lengths == std::array<std::size_t, 2>{4, 6});
  CHECK_FALSE(std::is_convertible_v<ps::tensor_view<int, 6>, mdspan_like<int, 2>>);
  CHECK_FALSE(std::is_convertible_v<ps::tensor_view<float, 4, 6>, mdspan_like<int, 2>>);
}
