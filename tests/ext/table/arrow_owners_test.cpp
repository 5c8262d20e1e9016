// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/table/arrow_table.hpp>

#include <utility>

#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("a structure of Arrow's is released once, by its last owner",
          "[table][promise:race-free-9]") {
  int released = 0;
  ArrowArray given = test::array_of(test::numbers<int>("x", "i", {1, 2}), &released).release();
  {
    ps::arrow_array first{&given};
    CHECK(given.release == nullptr);
    CHECK_FALSE(ps::arrow_array{&given});
    ps::arrow_array second{std::move(first)};
    ps::arrow_array third;
    CHECK_FALSE(third);
    third = std::move(second);
    CHECK(third->length == 2);
    CHECK((*third).n_buffers == 2);
    auto& itself = third;
    third = std::move(itself);  // a self-move must keep the structure
    CHECK(third);
    CHECK(released == 0);
    third = test::array_of(test::numbers<int>("x", "i", {1}));
    CHECK(released == 1);
  }
  CHECK(released == 1);
  CHECK_FALSE(ps::arrow_array{nullptr});
}

TEST_CASE("a structure that was given away is released by its new owner",
          "[table][promise:race-free-9]") {
  int released = 0;
  ArrowSchema given{};
  {
    ps::arrow_schema own;
    *own.address() = test::schema_of(test::numbers<int>("x", "i", {1}), &released).release();
    CHECK(own);
    given = own.release();
    CHECK_FALSE(own);
  }
  CHECK(released == 0);
  given.release(&given);
  CHECK(released == 1);
}
