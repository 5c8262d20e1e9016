// SPDX-License-Identifier: BSL-1.0
// Tests that the consumer gets an exception if an allocation fails, and that the program does not
// terminate. tests/checked runs the same scenarios in a checked build.
#include "flow/out_of_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock_ext/blob/stored_blobs.hpp>

#include "ext/store/counting_store.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("if any allocation fails, constructing a loader succeeds or throws, and nothing is lost",
          "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_life() > 20);
}

TEST_CASE(
    "whichever allocation fails in a range, it ends with that error, and the next is complete",
    "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_ranges() > 2);
}

TEST_CASE("if any allocation fails while samples are skipped, the ledger and batches stay correct",
          "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_skipping() > 2);
}

TEST_CASE("a stop request needs no memory", "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_stop() > 20);
}

TEST_CASE("a hanging read is abandoned even without memory for the message",
          "[flow][fault:memory-5]") {
  CHECK(out_of_memory::sweep_timeout() > 20);
}

TEST_CASE("a blob that is not recorded for lack of memory is read as usual", "[flow]") {
  test::counting_store below;
  below.add("x", "0123456789");
  std::vector<ps::stored_blob> list;
  for (std::uint64_t i = 0; i < 10; ++i) list.push_back({"x", i, 1});
  bool is_right = true;
  std::size_t failures = 0;
  for (std::size_t k = 1; k < 20; ++k) {
    const ps::stored_blobs blobs{below, list};
    ps::blob_buffer buffer;
    blobs.prefetch(0);  // starts the prefetch threads
    is_right = is_right && std::to_integer<char>(blobs.bytes(0, buffer)[0]) == '0';
    test::failing_allocation = k;
    blobs.prefetch(1);
    failures += test::failing_allocation.exchange(0) == 0 ? 1U : 0U;
    blobs.prefetch(1);
    blobs.prefetch(2);
    for (std::uint64_t i = 1; i < 3; ++i) {
      is_right = is_right &&
                 std::to_integer<char>(blobs.bytes(i, buffer)[0]) == static_cast<char>('0' + i);
    }
  }
  CHECK(failures > 0);
  CHECK(is_right);
}
