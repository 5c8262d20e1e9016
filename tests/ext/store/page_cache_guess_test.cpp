// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/cache/detail/disk/block_disk.hpp>

#include "support/catch.hpp"

namespace {

using guess = penstock::detail::page_cache_guess;

// How many of `files` are looked at, all of which lie there.
int looks_of(guess& of, int files) {
  int looks = 0;
  for (int i = 0; i < files; ++i) {
    if (!of.is_due()) continue;
    ++looks;
    of.saw(true);
  }
  return looks;
}

}  // namespace

TEST_CASE("files are looked at seldom once 32 in a row lay in memory", "[store]") {
  guess one;
  CHECK(looks_of(one, 32) == 32);
  CHECK(looks_of(one, 1600) == 100);
  CHECK(looks_of(one, 15) + looks_of(one, 1) == 1);
}

TEST_CASE("after a file that did not lie in memory each is looked at again", "[store]") {
  guess one;
  CHECK(looks_of(one, 31) == 31);
  CHECK(one.is_due());
  one.saw(false);
  CHECK(looks_of(one, 32) == 32);
  while (!one.is_due()) {
  }
  one.saw(false);
  for (int i = 0; i < 100; ++i) {
    CHECK(one.is_due());
    one.saw(false);
  }
}
