// SPDX-License-Identifier: BSL-1.0
// Tests a read supervisor and its readers. tests/flow/hang_test.cpp tests a loader with a
// supervisor.
#include <penstock/load/detail/read_supervisor.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <penstock/threads/support/waitable_counter.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::read_progress;
using ps::detail::read_scope;
using ps::detail::read_watch;
using ps::detail::watch_settings;
using std::chrono::milliseconds;

TEST_CASE("without limits nothing is watched, and the default policy records nothing", "[faults]") {
  ps::detail::read_supervisor guard{
      {}, {.size = 10}, {.readers = 2, .batches = 2, .batch_size = 8}};
  CHECK_FALSE(guard.has_thread());
  CHECK(guard.recovery() == nullptr);
  CHECK(guard.progress_of(0) == nullptr);
  const std::array<std::uint64_t, 1> samples{7};
  const std::atomic<std::size_t> place{0};
  const read_scope nobody_looks{guard.progress_of(1), 0, samples, place};
  guard.start([](const std::exception_ptr&, const ps::failure&) noexcept {});
  CHECK_FALSE(guard.is_given_up(1));
  ps::detail::failed_batch none;
  guard.judge(0, {}, none);
  CHECK_FALSE(none);
  CHECK(guard.report().failed_reads == 0);
}

TEST_CASE("a supervisor warns of a hanging reader and then abandons only that reader", "[faults]") {
  constexpr std::array<std::uint64_t, 2> samples{7, 8};
  std::atomic<int> reports{0};
  ps::detail::waitable_counter failed;
  watch_settings settings{.warning = milliseconds{2}, .timeout = milliseconds{20}};
  settings.report = [&](const ps::stall_report& read) {
    CHECK(read.worker == 1);
    CHECK(read.where.sample == 8);
    ++reports;
  };
  read_watch watch{std::move(settings), 2, true};
  std::atomic<std::size_t> place{1};
  const read_scope hangs{watch.progress_of(1), 0, samples, place};
  std::exception_ptr error;
  watch.start([&](std::exception_ptr what, const ps::failure& where) noexcept {
    error = std::move(what);
    CHECK(where.sample == 8);
    failed.advance();
  });
  failed.wait([](std::uint32_t now) { return now > 0; });
  watch.stop();
  CHECK(reports >= 1);
  CHECK(watch.is_given_up(1));
  CHECK_FALSE(watch.is_given_up(0));
  CHECK_THROWS_AS(std::rethrow_exception(error), ps::read_timeout);
}

namespace {

/// Returns true if a read that progresses from sample to sample is reported as hanging.
bool is_blamed_for_going_on() {
  // Reader 0 hangs, and reader 1 makes progress. When reader 0 is reported, both have been observed
  // for the same length of time.
  std::array<std::uint64_t, 1000> samples{};
  std::atomic<bool> has_warned{false};
  std::atomic<bool> is_blamed{false};
  watch_settings settings{.warning = milliseconds{400}};
  settings.report = [&](const ps::stall_report& read) {
    (read.worker == 0 ? has_warned : is_blamed) = true;
  };
  read_watch watch{std::move(settings), 2, true};
  const std::atomic<std::size_t> stands{0};
  std::atomic<std::size_t> goes_on{0};
  const read_scope hangs{watch.progress_of(0), 0, samples, stands};
  const read_scope reading{watch.progress_of(1), 0, samples, goes_on};
  watch.start([](const std::exception_ptr&, const ps::failure&) noexcept {});
  for (std::size_t step = 0; !has_warned; ++step) {
    goes_on = step % samples.size();
    std::this_thread::yield();
  }
  watch.stop();
  return is_blamed;
}

}  // namespace

TEST_CASE("a read that progresses from sample to sample does not hang", "[faults]") {
  // Every read hangs if the whole machine stalls, so the test is repeated.
  bool is_blamed = true;
  for (int turn = 0; turn < 3 && is_blamed; ++turn) is_blamed = is_blamed_for_going_on();
  CHECK_FALSE(is_blamed);
}
