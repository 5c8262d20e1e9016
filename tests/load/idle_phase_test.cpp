// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/support/hill_climber.hpp>

#include "support/catch.hpp"

using penstock::detail::idle_phase;
using penstock::detail::pace;
using state = idle_phase::state;

namespace {

/// Returns the measurements of a window of eight batches.
pace window_of(double step, double waits) {
  pace seen;
  for (int batch = 0; batch < 8; ++batch) {
    seen.step.add(step);
    seen.waits.add(waits);
  }
  seen.busy.add(1);
  return seen;
}

/// Returns the idle phase after `times` complete rests.
idle_phase rested(int times) {
  idle_phase watch;
  for (int i = 0; i < times; ++i) {
    watch.begin(window_of(100, 0));
    while (watch.record(window_of(100, 0)) == state::rests) {
    }
  }
  watch.begin(window_of(100, 0));
  return watch;
}

int windows_until_over(idle_phase watch) {
  int windows = 1;
  while (watch.record(window_of(100, 0)) == state::rests) ++windows;
  return windows;
}

}  // namespace

TEST_CASE("the first rest lasts 64 batches, and each rest is twice as long as the previous rest",
          "[load]") {
  CHECK(windows_until_over(rested(0)) == 8);
  CHECK(windows_until_over(rested(1)) == 16);
  CHECK(windows_until_over(rested(4)) == 128);
  idle_phase again = rested(4);
  again.shorten();
  CHECK(windows_until_over(again) == 8);
}

TEST_CASE("after a thousand batches a rest is long, and not before", "[load]") {
  const auto end_of = [](idle_phase watch) {
    auto said = watch.record(window_of(100, 0));
    while (said == state::rests) said = watch.record(window_of(100, 0));
    return said;
  };
  CHECK(end_of(rested(3)) == state::is_over);
  CHECK(end_of(rested(4)) == state::is_long);
}

TEST_CASE("a change is detected after two consecutive windows", "[load]") {
  idle_phase watch = rested(5);
  CHECK(watch.record(window_of(100, 40)) == state::rests);
  CHECK(watch.record(window_of(100, 0)) == state::rests);
  CHECK(watch.record(window_of(100, 40)) == state::rests);
  CHECK(watch.record(window_of(100, 40)) == state::changed);
  CHECK(watch.window().waits.mean() == 40);

  idle_phase slower = rested(5);
  CHECK(slower.record(window_of(200, 0)) == state::rests);
  CHECK(slower.record(window_of(200, 0)) == state::changed);
  slower.begin(slower.window());
  CHECK(windows_until_over(slower) == 2);  // as short as the first rest
}

TEST_CASE("a small change is detected over many windows", "[load]") {
  idle_phase watch = rested(5);
  int windows = 1;
  while (watch.record(window_of(100, 5)) == state::rests) ++windows;
  CHECK(windows == 4);
  idle_phase same = rested(5);
  for (int i = 0; i < 20; ++i) CHECK(same.record(window_of(100, 2)) == state::rests);
}
