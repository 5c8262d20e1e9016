// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/support/copy_mark.hpp>

#include <memory>

#include "support/catch.hpp"

using penstock::detail::copy_mark;
using penstock::detail::end_of_copy;

TEST_CASE("a mark is held from the record until the device slot lets go", "[memory]") {
  copy_mark<int> mark{7};
  CHECK(mark.event() == 7);
  CHECK_FALSE(mark.is_held());
  mark.hold();
  CHECK(mark.is_held());
  mark.let_go();
  CHECK_FALSE(mark.is_held());
}

TEST_CASE("the end of a copy is what was recorded last", "[memory]") {
  end_of_copy<int> copy{std::make_shared<copy_mark<int>>(1), 2};
  CHECK(copy.last() == 2);
  copy.is_marked = true;
  CHECK(copy.last() == 1);
}
