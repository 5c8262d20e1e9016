// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/support/host_slots.hpp>

#include <memory>
#include <utility>

#include "support/catch.hpp"

using penstock::detail::end_of_copy;
using penstock::detail::shared_event;
using penstock::detail::shared_event_ref;

TEST_CASE("a mark is held until the last of those who need it lets go", "[memory]") {
  const shared_event_ref<int> owner{7};
  shared_event<int>* const mark = owner.get();
  CHECK(mark->event() == 7);
  CHECK_FALSE(mark->is_held());
  {
    shared_event_ref<int> one{mark};
    shared_event_ref<int> two{mark};
    CHECK(one.event() == 7);
    one.let_go();
    one.let_go();  // it has none any more
    CHECK_FALSE(one);
    CHECK(mark->is_held());
    one = std::move(two);
    CHECK(mark->is_held());
    shared_event_ref<int> three{mark};
    one = std::move(three);
    CHECK(mark->is_held());
  }
  CHECK_FALSE(mark->is_held());
}

TEST_CASE("a mark goes with the last of its owner and those who hold it", "[memory]") {
  const auto event = std::make_shared<int>(0);
  shared_event_ref<std::shared_ptr<int>> owner{event};
  shared_event_ref<std::shared_ptr<int>> one{owner.get()};
  owner.let_go();
  CHECK(event.use_count() == 2);
  CHECK(*one.event() == 0);
  one.let_go();
  CHECK(event.use_count() == 1);
}

TEST_CASE("the end of a copy is the mark that has told it, until that was waited for", "[memory]") {
  const shared_event_ref<int> owner{1};
  end_of_copy<int> copy{{}, 2, {}};
  CHECK(copy.last() == 2);
  copy.marked = shared_event_ref<int>{owner.get()};
  CHECK(copy.last() == 1);
  copy.marked.let_go();
  CHECK(copy.last() == 2);
}
