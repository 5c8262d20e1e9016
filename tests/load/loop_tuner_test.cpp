// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/loop_tuner.hpp>

#include <atomic>
#include <cstddef>
#include <stop_token>
#include <thread>

#include "support/asleep.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("an opener at its limit sleeps until half of the prefetched batches are taken",
          "[load]") {
  const ps::loader_options options{.batch_size = 4, .workers = 4, .prefetch = ps::automatic};
  ps::detail::schedule batches{ps::detail::epoch_plan{1000, 4, ps::last_batch::keep}};
  ps::detail::active_workers active{4, 4};
  ps::detail::loader_observer seen{4, 4, 16};
  ps::detail::loop_tuner tuner{{options, 9, std::size_t{1} << 20, batches, active, seen}};
  REQUIRE(tuner.history().now == ps::tuning_setting{4, 4});
  tuner.begin(0);
  batches.begin({0, 0}, 1);

  std::stop_source stop;
  std::atomic<long> number = 0;
  std::atomic<int> bound = 0;
  std::thread opener{[&] {
    number = this_thread_number();
    while (const auto next = batches.wait_until_wanted(stop.get_token())) {
      if (batches.bind(*next)) ++bound;
    }
  }};
  while (bound != 4) std::this_thread::yield();
  wait_until_asleep(number);
  tuner.take(1);
  wait_until_asleep(number);
  CHECK(bound == 4);
  tuner.take(2);
  while (bound != 6) std::this_thread::yield();
  wait_until_asleep(number);
  CHECK(bound == 6);
  stop.request_stop();
  batches.wake();
  opener.join();
}
