// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/support/copy_mark.hpp>

#include <memory>
#include <utility>

#include "support/catch.hpp"

using penstock::detail::copy_mark;
using penstock::detail::end_of_copy;
using penstock::detail::held_mark;

TEST_CASE("a mark is held until the last of those who need it lets go", "[memory]") {
  const held_mark<int> owner{7};
  copy_mark<int>* const mark = owner.get();
  CHECK(mark->event() == 7);
  CHECK_FALSE(mark->is_held());
  {
    held_mark<int> one{mark};
    held_mark<int> two{mark};
    CHECK(one.event() == 7);
    one.let_go();
    one.let_go();  // it has none any more
    CHECK_FALSE(one);
    CHECK(mark->is_held());
    one = std::move(two);
    CHECK(mark->is_held());
    held_mark<int> three{mark};
    one = std::move(three);
    CHECK(mark->is_held());
  }
  CHECK_FALSE(mark->is_held());
}

TEST_CASE("a mark goes with the last of its owner and those who hold it", "[memory]") {
  const auto event = std::make_shared<int>(0);
  held_mark<std::shared_ptr<int>> owner{event};
  held_mark<std::shared_ptr<int>> one{owner.get()};
  owner.let_go();
  CHECK(event.use_count() == 2);
  CHECK(*one.event() == 0);
  one.let_go();
  CHECK(event.use_count() == 1);
}

TEST_CASE("the end of a copy is the mark that has told it, until that was waited for", "[memory]") {
  const held_mark<int> owner{1};
  end_of_copy<int> copy{{}, 2, {}};
  CHECK(copy.last() == 2);
  copy.marked = held_mark<int>{owner.get()};
  CHECK(copy.last() == 1);
  copy.marked.let_go();
  CHECK(copy.last() == 2);
}
