// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/support/delivery.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "support/asleep.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::delivery;

namespace {

std::exception_ptr error_saying(const char* text) {
  return std::make_exception_ptr(std::domain_error(text));
}

}  // namespace

TEST_CASE("batches are delivered in order for any order of completion", "[load]") {
  delivery to_consumer{3, true};
  to_consumer.announce(1, 10);
  CHECK_FALSE(to_consumer.is_ready(0));
  to_consumer.announce(2, 20);
  to_consumer.announce(0, 30);
  CHECK(to_consumer.is_ready(0));
  CHECK(to_consumer.wait(0) == 30U);
  to_consumer.announce(3, 40);  // reuses the entry of batch 0
  CHECK(to_consumer.wait(1) == 10U);
  CHECK(to_consumer.wait(2) == 20U);
  CHECK(to_consumer.wait(3) == 40U);
  CHECK_FALSE(to_consumer.is_ready(4));
}

TEST_CASE("in completion order, the batch that was completed first comes first", "[load]") {
  delivery to_consumer{3, false};
  CHECK_FALSE(to_consumer.is_ready(0));
  to_consumer.announce(2, 20);
  to_consumer.announce(0, 30);
  CHECK(to_consumer.is_ready(0));
  CHECK(to_consumer.wait(0) == 20U);
  CHECK(to_consumer.wait(1) == 30U);
  CHECK_FALSE(to_consumer.is_ready(2));
}

TEST_CASE("a failure ends every wait, although batches are complete", "[load]") {
  const bool in_order = GENERATE(true, false);
  delivery to_consumer{2, in_order};
  const long consumer = this_thread_number();
  bool is_first_kept = false;
  bool is_second_kept = true;
  std::thread other{[&] {
    wait_until_asleep(consumer);
    is_first_kept = to_consumer.fail({error_saying("first"), ps::failure{"read", 1, 2, 3, 4}});
    is_second_kept = to_consumer.fail({error_saying("second")});
  }};
  CHECK_FALSE(to_consumer.wait(0));
  other.join();
  CHECK(is_first_kept);
  CHECK_FALSE(is_second_kept);
  CHECK(to_consumer.has_failed());
  to_consumer.announce(0, 1);
  CHECK_FALSE(to_consumer.wait(0));
  for (int time = 0; time < 2; ++time) {
    const auto failed = to_consumer.failed();
    CHECK_THROWS_WITH(std::rethrow_exception(failed.error), "first");
    REQUIRE(failed.place);
    CHECK(failed.place->sample == 4);
  }
}

TEST_CASE("a failure is reported before complete batches", "[load]") {
  const bool in_order = GENERATE(true, false);
  delivery to_consumer{2, in_order};
  to_consumer.announce(0, 1);
  to_consumer.fail({error_saying("first")});
  CHECK_FALSE(to_consumer.wait(0));
}
