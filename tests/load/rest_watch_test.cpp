// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/support/climber.hpp>

#include "support/catch.hpp"

using penstock::detail::pace;
using penstock::detail::rest_watch;
using word = rest_watch::word;

namespace {

/// A window of eight batches.
pace window_of(double step, double waits) {
  pace seen;
  for (int batch = 0; batch < 8; ++batch) {
    seen.step.add(step);
    seen.waits.add(waits);
  }
  seen.busy.add(1);
  return seen;
}

/// A rest that has been begun `times` times, and lasted each time as long as it did.
rest_watch rested(int times) {
  rest_watch watch;
  for (int i = 0; i < times; ++i) {
    watch.begin(window_of(100, 0));
    while (watch.note(window_of(100, 0)) == word::rests) {
    }
  }
  watch.begin(window_of(100, 0));
  return watch;
}

int windows_until_over(rest_watch watch) {
  int windows = 1;
  while (watch.note(window_of(100, 0)) == word::rests) ++windows;
  return windows;
}

}  // namespace

TEST_CASE("a rest lasts 64 batches, and each one twice as long as the last", "[load]") {
  CHECK(windows_until_over(rested(0)) == 8);
  CHECK(windows_until_over(rested(1)) == 16);
  CHECK(windows_until_over(rested(4)) == 128);
  rest_watch again = rested(4);
  again.shorten();
  CHECK(windows_until_over(again) == 8);
}

TEST_CASE("after a thousand batches a rest is long, and not before", "[load]") {
  const auto end_of = [](rest_watch watch) {
    auto said = watch.note(window_of(100, 0));
    while (said == word::rests) said = watch.note(window_of(100, 0));
    return said;
  };
  CHECK(end_of(rested(3)) == word::is_over);
  CHECK(end_of(rested(4)) == word::is_long);
}

TEST_CASE("a loop has changed when two windows say so, one after the other", "[load]") {
  rest_watch watch = rested(5);
  CHECK(watch.note(window_of(100, 40)) == word::rests);
  CHECK(watch.note(window_of(100, 0)) == word::rests);
  CHECK(watch.note(window_of(100, 40)) == word::rests);
  CHECK(watch.note(window_of(100, 40)) == word::changed);
  CHECK(watch.seen().waits.mean() == 40);

  rest_watch slower = rested(5);
  CHECK(slower.note(window_of(200, 0)) == word::rests);
  CHECK(slower.note(window_of(200, 0)) == word::changed);
  slower.begin(slower.seen());
  CHECK(windows_until_over(slower) == 2);  // it is that of 100 again
}

TEST_CASE("a small change shows in many windows together", "[load]") {
  rest_watch watch = rested(5);
  int windows = 1;
  while (watch.note(window_of(100, 5)) == word::rests) ++windows;
  CHECK(windows == 4);
  rest_watch same = rested(5);
  for (int i = 0; i < 20; ++i) CHECK(same.note(window_of(100, 2)) == word::rests);
}
