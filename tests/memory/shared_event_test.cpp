// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/support/host_slots.hpp>

#include <memory>
#include <utility>

#include "support/catch.hpp"

using penstock::detail::end_of_copy;
using penstock::detail::shared_event;

TEST_CASE("a mark is held until the last of those who need it lets go", "[memory]") {
  const auto owner = shared_event<int>::make(7);
  shared_event<int>* const mark = owner.get();
  CHECK(mark->event() == 7);
  CHECK_FALSE(mark->is_held());
  {
    auto one = mark->hold();
    auto two = mark->hold();
    CHECK(one->event() == 7);
    one.reset();
    one.reset();  // it has none any more
    CHECK_FALSE(one);
    CHECK(mark->is_held());
    one = std::move(two);
    CHECK(mark->is_held());
    auto three = mark->hold();
    one = std::move(three);
    CHECK(mark->is_held());
  }
  CHECK_FALSE(mark->is_held());
}

TEST_CASE("a mark goes with the last of its owner and those who hold it", "[memory]") {
  const auto event = std::make_shared<int>(0);
  auto owner = shared_event<std::shared_ptr<int>>::make(event);
  auto one = owner->hold();
  owner.reset();
  CHECK(event.use_count() == 2);
  CHECK(*one->event() == 0);
  one.reset();
  CHECK(event.use_count() == 1);
}

TEST_CASE("the end of a copy is the mark that has told it, until that was waited for", "[memory]") {
  const auto owner = shared_event<int>::make(1);
  end_of_copy<int> copy{{}, 2, {}};
  CHECK(copy.last() == 2);
  copy.marked = owner->hold();
  CHECK(copy.last() == 1);
  copy.marked.reset();
  CHECK(copy.last() == 2);
}
