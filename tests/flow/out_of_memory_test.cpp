// SPDX-License-Identifier: BSL-1.0
// Any one allocation fails: the consumer gets an exception, and nothing ends the program. The
// checked build does the same in tests/checked.
#include "flow/out_of_memory.hpp"
#include "support/catch.hpp"

TEST_CASE("whichever allocation fails, a loader is made or throws, and nothing is lost",
          "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_life() > 20);
}

TEST_CASE(
    "whichever allocation fails in a range, it ends with that error, and the next is complete",
    "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_ranges() > 2);
}

TEST_CASE("whichever allocation fails while samples are skipped, the ledger and the batches hold",
          "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_skipping() > 2);
}

TEST_CASE("a stop request needs no memory", "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_stop() > 20);
}

TEST_CASE("without memory for the message a hanging read is given up all the same",
          "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_timeout() > 20);
}
