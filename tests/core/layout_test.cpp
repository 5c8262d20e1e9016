// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/layout.hpp>

#include <cstdint>
#include <limits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using small_digit =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
using series = ps::record<ps::field<"x", double, ps::dyn, 2>, ps::field<"y", float>>;

}  // namespace

TEST_CASE("fields are stored in sequence at multiples of 256 bytes", "[core]") {
  const ps::batch_layout<small_digit> layout{{}, 3};
  CHECK(layout.batch_size() == 3);
  CHECK(layout.offset<0>() == 0);
  CHECK(layout.offset<1>() == 2560);  // 3 * 784 = 2352, rounded up
  CHECK(layout.bytes() == 2816);
}

TEST_CASE("a field that ends at a multiple of 256 bytes gets no padding", "[core]") {
  const ps::batch_layout<small_digit> layout{{}, 256};
  CHECK(layout.offset<1>() == 256 * 784);
  CHECK(layout.bytes() == 256 * 784 + 256);
}

TEST_CASE("the used bytes end with the last sample of the last field", "[core]") {
  const ps::batch_layout<small_digit> layout{{}, 64};
  CHECK(layout.used_bytes(64) == 64 * 784 + 64);
  CHECK(layout.used_bytes(1) == 64 * 784 + 1);
}

TEST_CASE("the bytes of a sample include its dynamic extents", "[core]") {
  const ps::batch_layout<series> layout{{{5}, {}}, 4};
  CHECK(layout.sample_bytes<0>() == 5 * 2 * sizeof(double));
  CHECK(layout.sample_bytes<1>() == sizeof(float));
  CHECK(layout.sample_bytes() == 84);
  CHECK(layout.offset<1>() == 512);  // 4 * 80 = 320, rounded up
  CHECK(layout.extents().at<0>()[0] == 5);
}

TEST_CASE("layouts are equal if their extents and batch sizes are equal", "[core]") {
  const ps::batch_layout<series> layout{{{5}, {}}, 4};
  CHECK(layout == ps::batch_layout<series>{{{5}, {}}, 4});
  CHECK_FALSE(layout == ps::batch_layout<series>{{{5}, {}}, 5});
  CHECK_FALSE(layout == ps::batch_layout<series>{{{6}, {}}, 4});
}

TEST_CASE("a layout of no samples or of an extent of 0 is rejected", "[core][fault:memory-2]") {
  CHECK_THROWS_MATCHES(
      (ps::batch_layout<small_digit>{{}, 0}), ps::layout_error,
      Catch::Matchers::Message("batch_layout: the batch size must be at least 1, but is 0"));
  CHECK_THROWS_MATCHES((ps::batch_layout<series>{{{0}, {}}, 4}), ps::layout_error,
                       Catch::Matchers::Message("batch_layout: field \"x\": the extent of "
                                                "dimension 0 must be at least 1, but is 0"));
}

TEST_CASE("a layout larger than the address space is rejected", "[core][fault:memory-2]") {
  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
  SECTION("in one sample") {
    CHECK_THROWS_AS((ps::batch_layout<series>{{{huge / 4}, {}}, 1}), ps::layout_error);
  }
  SECTION("in one field of the batch") {
    CHECK_THROWS_AS((ps::batch_layout<small_digit>{{}, huge / 784}), ps::layout_error);
    CHECK_THROWS_AS((ps::batch_layout<small_digit>{{}, huge}), ps::layout_error);
  }
  SECTION("in a product that wraps to a small number") {
    CHECK_THROWS_AS((ps::batch_layout<series>{{{huge / 16 + 2}, {}}, 1}), ps::layout_error);
    CHECK_THROWS_AS((ps::batch_layout<small_digit>{{}, huge / 784 + 1}), ps::layout_error);
  }
  SECTION("in the sum of the fields") {
    using two = ps::record<ps::field<"a", std::uint8_t>, ps::field<"b", std::uint8_t>>;
    CHECK_THROWS_AS((ps::batch_layout<two>{{}, huge / 2 - 1024}), ps::layout_error);
    // The size is several pages below the limit, so no overflow occurs.
    CHECK_NOTHROW(ps::batch_layout<two>{{}, huge / 4 - 4096});
    // The first field ends exactly at the limit, so its padding exceeds the limit.
    CHECK_THROWS_AS((ps::batch_layout<two>{{}, huge / 2}), ps::layout_error);
  }
  SECTION("with the field and its sizes in the message") {
    CHECK_THROWS_MATCHES(
        (ps::batch_layout<series>{{{huge / 4}, {}}, 3}), ps::layout_error,
        Catch::Matchers::Message("batch_layout: field \"x\": 3 samples x 4611686018427387903 x "
                                 "2 x 8 bytes, after 0 bytes of other fields, exceed the address "
                                 "space: lower batch_size or the extents"));
  }
}

TEST_CASE("a layout can be computed by the compiler", "[core]") {
  constexpr ps::batch_layout<small_digit> layout{{}, 64};
  STATIC_REQUIRE(layout.bytes() == 64 * 784 + 256);
}
