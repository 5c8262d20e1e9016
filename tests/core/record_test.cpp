// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/record.hpp>

#include <cstdint>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using image = ps::field<"image", float, 3, ps::dyn, ps::dyn>;
using label = ps::field<"label", std::int64_t>;
using image_record = ps::record<image, label>;

}  // namespace

TEST_CASE("a field has a name, an element type and extents", "[core]") {
  CHECK(image::key.str() == "image");
  CHECK(std::is_same_v<image::value_type, float>);
  CHECK(image::extents_type::rank == 3);
  CHECK(label::extents_type::rank == 0);
}

TEST_CASE("a record finds its fields by name and by index", "[core]") {
  CHECK(image_record::size == 2);
  CHECK(image_record::index_of<"image">() == 0);
  CHECK(image_record::index_of<"label">() == 1);
  CHECK(image_record::index_of<"lable">() == image_record::size);
  CHECK(image_record::has_field<"label">);
  CHECK_FALSE(image_record::has_field<"lable">);
  CHECK(std::is_same_v<image_record::field_at<1>, label>);
}

TEST_CASE("a record reports if an extent is dynamic", "[core]") {
  CHECK(image_record::has_dynamic_extents);
  CHECK_FALSE(ps::record<label>::has_dynamic_extents);
}

TEST_CASE("the record concept accepts only records", "[core]") {
  CHECK(ps::record_type<image_record>);
  CHECK_FALSE(ps::record_type<label>);
  CHECK_FALSE(ps::record_type<int>);
}

TEST_CASE("the extents of a record are those of its fields in order", "[core]") {
  const ps::record_extents<image_record> lengths{{48, 64}, {}};
  CHECK(lengths.at<0>()[0] == 3);
  CHECK(lengths.at<0>()[1] == 48);
  CHECK(lengths.at<0>()[2] == 64);
  CHECK(lengths.at<1>().size() == 1);
  CHECK(lengths == ps::record_extents<image_record>{{48, 64}, {}});
  CHECK_FALSE(lengths == ps::record_extents<image_record>{{64, 48}, {}});
}

TEST_CASE("record extents are default-constructible only if all are fixed", "[core]") {
  CHECK(std::is_default_constructible_v<ps::record_extents<ps::record<label>>>);
  CHECK_FALSE(std::is_default_constructible_v<ps::record_extents<image_record>>);
}
