// SPDX-License-Identifier: BSL-1.0
// Tests a consumer that passes its leases to other threads and requests more batches than there are
// slots. With `exhausted_action::wait`, the consumer waits until a lease is released, a stop is
// requested, or the device fails.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock/threads/batch_queue.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

/// A thread that runs `act` as soon as all leases are held elsewhere and the creating thread is
/// asleep.
template <class F>
class once_asleep {
 public:
  explicit once_asleep(F act)
      : thread_([this, consumer = this_thread_number(), act = std::move(act)]() mutable {
          all_held_.wait([](std::uint32_t now) { return now != 0; });
          wait_until_asleep(consumer);
          act();
        }) {}
  once_asleep(once_asleep&&) = delete;
  ~once_asleep() {
    all_held_.store(1);  // the consumer sleeps in this join if it has thrown
    thread_.join();
  }
  /// Reports that all leases are held. The consumer calls this function before it requests another
  /// batch.
  void all_are_held() { all_held_.store(1); }

 private:
  ps::detail::waitable_counter all_held_;
  std::thread thread_;
};

/// Consumes an epoch of 10 batches. Another thread releases the leases, `slots` at a time and only
/// while the consumer sleeps. Returns the batch numbers.
template <class Feed>
std::vector<std::uint64_t> consume(Feed& feed, std::size_t slots) {
  std::vector<std::uint64_t> seen;
  std::vector<typename Feed::batch_type> held;
  auto range = feed.epoch(0);
  auto it = range.begin();
  while (it != range.end()) {
    seen.push_back(it->number());
    CHECK(labels_of(*it).front() == 10 * it->number());
    held.push_back(std::move(*it));
    if (held.size() == slots && seen.size() < 10) {
      once_asleep other{[&held] { held.clear(); }};
      other.all_are_held();
      ++it;
    } else {
      ++it;
    }
  }
  return seen;
}

const std::vector<std::uint64_t> all_ten{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

}  // namespace

TEST_CASE("a loader's consumer waits for leases that end on other threads",
          "[flow][fault:consumers-2]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3});
  const auto prefetch = GENERATE(std::size_t{1}, std::size_t{4});
  ps::loader loader{numbered{100},
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = workers,
                     .prefetch = prefetch,
                     .on_slots_exhausted = ps::exhausted_action::wait}};
  CHECK(consume(loader, prefetch + 1) == all_ten);
  CHECK(consume(loader, prefetch + 1) == all_ten);
}

TEST_CASE("a transfer's consumer waits for leases that end on other threads",
          "[flow][fault:consumers-2]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  const auto depth = GENERATE(std::size_t{1}, std::size_t{3});
  const ps::cpu_device device;
  ps::loader loader{
      numbered{100}, ps::sequential{}, device, {.batch_size = 10, .workers = workers}};
  ps::transfer feed{loader,
                    device.inline_stream(),
                    {.depth = depth, .on_slots_exhausted = ps::exhausted_action::wait}};
  CHECK(consume(feed, depth) == all_ten);
  CHECK(consume(feed, depth) == all_ten);
}

TEST_CASE("leases may end at any time while a consumer waits for them",
          "[flow][promise:race-free-6]") {
  const ps::cpu_device device;
  ps::loader loader{
      numbered{5000}, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 3}};
  ps::transfer feed{loader,
                    device.inline_stream(),
                    {.depth = 2, .on_slots_exhausted = ps::exhausted_action::wait}};
  using lease = decltype(feed)::batch_type;
  // Two queues pass the indices of two lease variables back and forth. Neither thread observes the
  // progress of the other.
  std::vector<lease> places(2);
  ps::batch_queue<std::uint32_t> given{2};
  ps::batch_queue<std::uint32_t> empty{2};
  std::uint64_t sum = 0;
  for (std::uint32_t place = 0; place < 2; ++place) empty.push(place);
  std::thread other{[&] {
    while (const auto place = given.pop()) {
      for (const auto label : labels_of(places[*place])) sum += label;
      places[*place] = {};
      empty.push(*place);
    }
  }};
  for (auto& batch : feed.epochs(0, 2)) {
    const auto place = empty.pop();
    places[*place] = std::move(batch);
    given.push(*place);
  }
  given.close();
  other.join();
  CHECK(sum == 2 * (std::uint64_t{4999} * 5000 / 2));
}

TEST_CASE("a stop request ends the wait for a lease", "[flow][fault:consumers-2]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  const bool is_feed = GENERATE(false, true);
  const ps::cpu_device device;
  std::stop_source source;
  ps::loader loader{numbered{100},
                    ps::sequential{},
                    device,
                    {.batch_size = 10,
                     .workers = workers,
                     .prefetch = 1,
                     .on_slots_exhausted = ps::exhausted_action::wait,
                     .stop = source.get_token()}};
  const auto hoard = [&](auto& feed) {
    std::vector<typename std::remove_reference_t<decltype(feed)>::batch_type> held;
    once_asleep stop{[&source] { source.request_stop(); }};
    for (auto& batch : feed.epoch(0)) {
      held.push_back(std::move(batch));
      if (held.size() == 2) stop.all_are_held();
    }
  };
  if (is_feed) {
    ps::transfer feed{loader,
                      device.inline_stream(),
                      {.depth = 2, .on_slots_exhausted = ps::exhausted_action::wait}};
    CHECK_THROWS_AS(hoard(feed), ps::cancelled);
  } else {
    CHECK_THROWS_AS(hoard(loader), ps::cancelled);
  }
}

TEST_CASE("a release that loses its slot ends the wait with the device's error",
          "[flow][fault:consumers-2]") {
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, {.batch_size = 10}};
  ps::transfer feed{loader,
                    device.inline_stream(),
                    {.depth = 1, .on_slots_exhausted = ps::exhausted_action::wait}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  auto held = std::move(*it);
  once_asleep other{[&] {
    device.fail_record(0);
    device.fail_stream_synchronize(0);
    held = {};
  }};
  other.all_are_held();
  CHECK_THROWS_AS(++it, device_fault);
}

TEST_CASE("the end of a range does not wait for leases", "[flow]") {
  const ps::cpu_device device;
  ps::loader loader{numbered{20}, ps::sequential{}, device, {.batch_size = 10, .workers = 1}};
  const auto when = GENERATE(ps::exhausted_action::fail, ps::exhausted_action::wait);
  ps::transfer feed{loader, device.inline_stream(), {.depth = 2, .on_slots_exhausted = when}};
  std::vector<decltype(feed)::batch_type> held;
  for (auto& batch : feed.epoch(0)) held.push_back(std::move(batch));
  CHECK(held.size() == 2);
}
