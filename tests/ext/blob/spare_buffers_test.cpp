// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/stored_blobs.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::spare_buffers;

namespace {

ps::blob_buffer buffer_of(std::size_t bytes) {
  ps::blob_buffer buffer;
  static_cast<void>(buffer.room_for(bytes));
  return buffer;
}

// Returns the number of bytes that the cache keeps of a buffer of this size.
std::size_t reusable_of(spare_buffers& spares, std::size_t bytes) {
  const auto before = spares.bytes();
  ps::blob_buffer buffer = buffer_of(bytes);
  spares.keep(buffer);
  CHECK((buffer.capacity() == 0) == (bytes <= 100));
  return static_cast<std::size_t>(spares.bytes() - before);
}

}  // namespace

TEST_CASE("a spare buffer is used where it is large enough, and not much larger",
          "[blob][promise:bounded-10]") {
  spare_buffers spares{1000};
  for (const std::size_t bytes : {40U, 90U, 60U}) {
    ps::blob_buffer one = buffer_of(bytes);
    spares.keep(one);
    CHECK(one.capacity() == 0);
  }
  CHECK(spares.bytes() == 190);
  CHECK(spares.take(91).capacity() == 0);
  CHECK(spares.take(50).capacity() == 60);  // returns the smallest sufficient buffer
  CHECK(spares.take(50).capacity() == 0);   // the buffer of 90 bytes is too large
  CHECK(spares.take(60).capacity() == 90);
  CHECK(spares.take(0).capacity() == 0);
  CHECK(spares.take(40).capacity() == 40);
  CHECK(spares.bytes() == 0);
}

TEST_CASE("spare buffers are bounded in bytes and in number, and the oldest go",
          "[blob][promise:bounded-10]") {
  spare_buffers spares{100};
  CHECK(reusable_of(spares, 101) == 0);
  CHECK(reusable_of(spares, 60) == 60);
  CHECK(reusable_of(spares, 40) == 40);
  ps::blob_buffer next = buffer_of(50);
  spares.keep(next);
  CHECK(spares.bytes() == 90);  // the buffer of 60 bytes was evicted
  CHECK(spares.take(40).capacity() == 40);
  spare_buffers many{10'000};
  for (std::size_t i = 0; i < 2 * spare_buffers::max_buffers; ++i) {
    ps::blob_buffer one = buffer_of(10 + i);
    many.keep(one);
  }
  CHECK(many.bytes() <= spare_buffers::max_buffers * 140);
  CHECK(many.take(10).capacity() == 0);
  CHECK(many.take(137).capacity() == 137);
  std::mt19937 random{5};
  std::uint64_t taken = 0;
  for (int i = 0; i < 2000; ++i) {
    ps::blob_buffer one = buffer_of(1 + random() % 120);
    spares.keep(one);
    REQUIRE(spares.bytes() <= 100);
    taken += spares.take(random() % 120).capacity() == 0 ? 0U : 1U;
  }
  CHECK(taken > 0);
}

TEST_CASE("a buffer that was moved from is empty", "[blob]") {
  ps::blob_buffer one = buffer_of(10);
  ps::blob_buffer other = std::move(one);
  CHECK(one.capacity() == 0);  // NOLINT: that is the question
  CHECK(other.capacity() == 10);
  CHECK(one.room_for(5).data() != nullptr);
  one = std::move(other);
  CHECK(one.capacity() == 10);
  CHECK(other.capacity() == 0);  // NOLINT: that is the question
}

TEST_CASE("the contents of a buffer move with it until the next blob", "[blob]") {
  const auto block = std::make_shared<const int>(1);
  ps::blob_buffer one;
  one.hold(block);
  CHECK(block.use_count() == 2);
  ps::blob_buffer other = std::move(one);
  CHECK(block.use_count() == 2);
  CHECK(one.room_for(5).size() == 5);  // NOLINT: it is empty
  CHECK(block.use_count() == 2);
  one = std::move(other);
  CHECK(block.use_count() == 2);
  CHECK(one.room_for(5).size() == 5);
  CHECK(block.use_count() == 1);
  one.hold(block);
  one.hold(nullptr);
  CHECK(block.use_count() == 1);
}
