// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cache/cached_store.hpp>

#include "ext/store/counting_store.hpp"
#include "ext/store/files.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

static_assert(ps::borrowable_store<ps::cached_store<test::counting_store>>);
static_assert(ps::borrowable_store<const ps::cached_store<test::counting_store>&>);
static_assert(!ps::borrowable_store<test::counting_store>);
static_assert(!ps::borrowable_store<const test::counting_store&>);
static_assert(ps::warmable_store<ps::cached_store<test::counting_store>>);
static_assert(ps::warmable_store<const ps::cached_store<test::counting_store>&>);
static_assert(!ps::warmable_store<test::counting_store>);
static_assert(!ps::warmable_store<const test::counting_store&>);

namespace {

// A store with one object of 250 bytes: two blocks of 100 bytes and one of 50.
struct three_blocks {
  three_blocks() { store.add("x", test::some_bytes(250)); }
  test::counting_store store;
};

std::string_view text_of(const ps::borrowed_bytes& lent) {
  return {reinterpret_cast<const char*>(lent.bytes.data()), lent.bytes.size()};
}

template <class Store>
void read(const Store& cache, std::uint64_t offset, std::size_t count) {
  static_cast<void>(test::part_of(cache, "x", static_cast<std::size_t>(offset), count));
}

}  // namespace

TEST_CASE("a cache lends a range of one block in memory in place", "[store]") {
  const three_blocks of;
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 300}};
  const std::string& all = of.store.content("x");
  CHECK_FALSE(cache.try_borrow({"x", 110, 50}));
  read(cache, 0, 200);
  const auto lent = cache.try_borrow({"x", 110, 50});
  REQUIRE(lent);
  CHECK(text_of(*lent) == all.substr(110, 50));
  const auto again = cache.try_borrow({"x", 100, 100});
  REQUIRE(again);
  CHECK(again->bytes.data() + 10 == lent->bytes.data());
  CHECK(text_of(*again) == all.substr(100, 100));

  const auto is_lent = [&](std::string_view object, std::uint64_t offset, std::uint64_t length) {
    const ps::upcoming_range range{object, offset, length};
    const bool is_near = cache.warm(range);
    CHECK(cache.try_borrow(range).has_value() == is_near);
    return is_near;
  };
  CHECK(is_lent("x", 0, 100));
  CHECK_FALSE(is_lent("x", 0, 0));
  CHECK_FALSE(is_lent("x", 99, 2));  // the range spans two blocks
  CHECK_FALSE(is_lent("x", 200, 50));
  CHECK_FALSE(is_lent("y", 0, 1));
  read(cache, 200, 50);
  CHECK(is_lent("x", 200, 50));
  CHECK(is_lent("x", 249, 1));
  CHECK_FALSE(is_lent("x", 249, 2));
  CHECK_FALSE(is_lent("x", 250, 1));
  constexpr std::uint64_t max = (std::numeric_limits<std::uint64_t>::max)();
  CHECK_FALSE(is_lent("x", 249, max));
  CHECK_FALSE(is_lent("x", max, max));
  CHECK(of.store.reads == 3);
}

TEST_CASE("lent memory stays valid after its block is evicted", "[store][promise:bounded-10]") {
  const three_blocks of;
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 100}};
  std::optional<ps::borrowed_bytes> lent;
  read(cache, 0, 100);
  lent = cache.try_borrow({"x", 20, 30});
  read(cache, 100, 100);
  CHECK(cache.stats().memory_bytes == 100);
  CHECK_FALSE(cache.warm({"x", 20, 30}));
  REQUIRE(lent);
  CHECK(text_of(*lent) == of.store.content("x").substr(20, 30));
  CHECK(lent->owner.use_count() == 1);
}

TEST_CASE("borrowing counts as a read, and bringing near does not", "[store]") {
  const three_blocks of;
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 300}};
  read(cache, 0, 200);
  const std::vector<ps::upcoming_range> order{{"x", 0, 100}, {"x", 100, 100}, {"x", 200, 50}};
  cache.will_use(order);
  CHECK(cache.warm({"x", 0, 10}));
  CHECK_FALSE(cache.try_borrow({"x", 200, 50}));
  CHECK(cache.stats().planned_uses == 3);
  CHECK(cache.stats().from_memory == 0);
  CHECK(cache.try_borrow({"x", 0, 10}));
  CHECK(cache.stats().planned_uses == 2);
  CHECK(cache.stats().from_memory == 1);
}

TEST_CASE("a block that is lent or brought near is not evicted next", "[store]") {
  const bool is_lent = GENERATE(false, true);
  const three_blocks of;
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 200}};
  const ps::upcoming_range first{"x", 0, 100};
  read(cache, 0, 200);
  CHECK((is_lent ? cache.try_borrow(first).has_value() : cache.warm(first)));
  read(cache, 200, 50);  // evicts block 1, which was used least recently
  CHECK(cache.try_borrow(first));
  CHECK_FALSE(cache.try_borrow({"x", 100, 100}));
}

TEST_CASE("a block on the disk counts as near and stays there", "[store]") {
  const std::string how = GENERATE(as<std::string>{}, "lent", "near");
  const three_blocks of;
  const test::temp_dir dir;
  const std::uint64_t file_bytes = 64 + 1 + 8 + 100;
  const ps::upcoming_range first{"x", 0, 100};
  const ps::cached_store_options options{.block_bytes = 100,
                                         .memory_bytes = how == "lent" ? 300U : 0U,
                                         .folder = dir.path("cache"),
                                         .disk_bytes = 2 * file_bytes};
  {
    const ps::cached_store cache{of.store, options};
    CHECK_FALSE(cache.warm(first));
    read(cache, 0, 200);
    CHECK((how == "lent" ? cache.try_borrow(first).has_value() : cache.warm(first)));
    read(cache, 200, 50);  // evicts block 1 from the disk
    CHECK(cache.warm(first));
    CHECK(of.store.reads == 3);
  }
  const ps::cached_store next{of.store, options};
  read(next, 0, 100);
  CHECK(next.stats().from_disk == 1);
  read(next, 100, 100);
  CHECK(next.stats().from_disk == 1);
}

TEST_CASE("a block that was removed from the disk is not near", "[store]") {
  const three_blocks of;
  const test::temp_dir dir;
  const ps::cached_store cache{
      of.store, {.block_bytes = 100, .memory_bytes = 0, .folder = dir.path("cache")}};
  read(cache, 0, 250);
  const ps::upcoming_range middle{"x", 120, 50};
  CHECK(cache.warm(middle));
  CHECK_FALSE(cache.try_borrow(middle));
  for (const auto& entry : std::filesystem::directory_iterator{dir.path("cache")}) {
    std::filesystem::remove(entry.path());
  }
  CHECK_FALSE(cache.warm(middle));
  CHECK(test::part_of(cache, "x", 120, 50) == of.store.content("x").substr(120, 50));
}

TEST_CASE("after files are removed, their blocks soon do not count as near", "[store]") {
  constexpr std::uint64_t blocks = 100;
  test::counting_store below;
  below.add("x", test::some_bytes(10 * blocks));
  const test::temp_dir dir;
  const ps::cached_store cache{below,
                               {.block_bytes = 10, .memory_bytes = 0, .folder = dir.path("cache")}};
  read(cache, 0, 10 * blocks);
  const auto near_now = [&] {
    int count = 0;
    for (std::uint64_t i = 0; i < blocks; ++i) count += cache.warm({"x", 10 * i, 10}) ? 1 : 0;
    return count;
  };
  CHECK(near_now() == blocks);
  for (const auto& entry : std::filesystem::directory_iterator{dir.path("cache")}) {
    std::filesystem::remove(entry.path());
  }
  CHECK(near_now() < 16);
}

TEST_CASE("a block is not kept alive for a small part of it", "[store][promise:bounded-10]") {
  test::counting_store below;
  below.add("x", test::some_bytes(1000));
  const ps::cached_store cache{below, {.block_bytes = 1000}};
  read(cache, 0, 1000);
  CHECK_FALSE(cache.try_borrow({"x", 0, 14}));
  CHECK(cache.warm({"x", 0, 14}));
  CHECK(cache.try_borrow({"x", 0, 15}));
}

TEST_CASE("a block in memory that is used next stays while others are read ahead", "[store]") {
  constexpr std::uint64_t blobs = 6000;
  test::counting_store below;
  below.add("x", test::some_bytes(10 * blobs));
  const ps::cached_store cache{below, {.block_bytes = 10, .memory_bytes = 1000}};
  read(cache, 0, 10);
  std::vector<ps::upcoming_range> order;
  for (std::uint64_t i = 0; i < blobs; ++i) order.push_back({"x", 10 * i, 10});
  for (std::uint64_t i = 1; i < 200; ++i) order.push_back({"x", 10 * i, 10});
  const int reader = 0;
  cache.announce_reads(&reader, order);
  CHECK(cache.warm({"x", 0, 10}));
  for (std::uint64_t i = 1; i < blobs; ++i) read(cache, 10 * i, 10);
  CHECK(cache.try_borrow({"x", 0, 10}));
}
