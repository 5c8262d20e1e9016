// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/stored_blobs.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock_ext/store/cache/cached_store.hpp>
#include <penstock_ext/store/local_store.hpp>

#include "ext/blob/folders.hpp"
#include "ext/store/counting_store.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;
using test::error_of;

static_assert(ps::blob_source<ps::stored_blobs<ps::local_store>>);
static_assert(ps::blob_source<ps::stored_blobs<ps::cached_store<ps::local_store>>>);

namespace {

// Contiguous blobs of ten bytes in a single object.
struct ten_each {
  explicit ten_each(std::size_t count) {
    std::string all;
    for (std::size_t i = 0; i < count; ++i) {
      list.push_back({"x", 10 * i, 10, static_cast<std::int64_t>(i)});
      all += content(i);
    }
    store.add("x", all);
  }
  [[nodiscard]] static std::string content(std::size_t i) {
    std::string text = "blob " + std::to_string(i);
    text.resize(10, '.');
    return text;
  }
  test::counting_store store;
  std::vector<ps::stored_blob> list;
};

// A store whose objects are either all in local storage or all remote. Counts the queries.
struct requested_store {
  explicit requested_store(bool has_all) : is_near(has_all) {}
  [[nodiscard]] static std::uint64_t size_of(std::string_view /*object*/) { return 10; }
  static void read(const ps::byte_range& range) {
    for (std::byte& one : range.out) one = std::byte{};
  }
  [[nodiscard]] bool warm(const ps::upcoming_range& /*range*/) const {
    ++requested;
    return is_near;
  }
  const bool is_near;
  mutable std::atomic<int> requested{0};
};

}  // namespace

TEST_CASE("blobs in a store have the bytes, labels and keys of their list",
          "[blob][promise:honest-9]") {
  const test::folder dir;
  dir.add("a.jpg", "a picture");
  dir.add("b/shard.bin", "headtwoothree");
  const ps::local_store disk{dir.path()};
  const ps::stored_blobs blobs{disk,
                               {{"a.jpg"},
                                {"b/shard.bin", 4, 4, 7, "the second"},
                                {"b/shard.bin", 8},
                                {"b/shard.bin", 13, 0, -1}}};
  CHECK(blobs.size() == 4);
  CHECK(test::content_of(blobs, 0) == "a picture");
  CHECK(test::content_of(blobs, 1) == "twoo");
  CHECK(test::content_of(blobs, 2) == "three");
  CHECK(test::content_of(blobs, 3).empty());
  CHECK(test::labels_of(blobs) == std::vector<std::int64_t>{0, 7, 0, -1});
  CHECK(test::keys_of(blobs) ==
        std::vector<std::string>{"a.jpg", "the second", "b/shard.bin", "b/shard.bin"});
  CHECK_THROWS_AS(blobs.label(4), ps::index_error);
  CHECK_THROWS_AS(blobs.key(4), ps::index_error);
  CHECK_THROWS_AS(test::content_of(blobs, 4), ps::index_error);
  // Reads through a cache that the blob source owns.
  ps::stored_blobs owning{ps::cached_store{disk, {.block_bytes = 3}}, {{"b/shard.bin", 4, 4}}};
  const auto moved = std::move(owning);
  CHECK(test::content_of(moved, 0) == "twoo");
}

TEST_CASE("blobs that are prefetched are read together, and once", "[blob][promise:honest-9]") {
  ten_each of{40};
  const ps::stored_blobs blobs{of.store, of.list, {.threads = 1}};
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 1; i <= 16; ++i) indices.push_back(i);
  of.store.shut();
  blobs.prefetch(0);
  REQUIRE(of.store.await(1));  // the only thread is busy
  blobs.prefetch(indices);
  blobs.prefetch(indices);  // already requested, so nothing happens
  blobs.prefetch(0);
  blobs.prefetch(40);  // out of range, so nothing happens
  CHECK(of.store.calls == 1);
  of.store.let_one();
  REQUIRE(of.store.await_call(2));  // a single call reads all blobs requested since then
  of.store.open();
  for (std::uint64_t i = 0; i <= 16; ++i) CHECK(test::content_of(blobs, i) == ten_each::content(i));
  CHECK(of.store.calls == 2);
  CHECK(of.store.reads == 17);
  CHECK(blobs.stats().ahead == 17);
  CHECK(blobs.stats().in_vain == 0);
  // Reads the blob again with a separate call.
  CHECK(test::content_of(blobs, 5) == ten_each::content(5));
  CHECK(of.store.reads == 18);
}

TEST_CASE("a prefetched blob is delivered in place, and its memory is reused",
          "[blob][promise:bounded-10]") {
  struct notes {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<const std::byte*> read_to;
  };
  struct noting_store {
    notes* all;
    [[nodiscard]] std::uint64_t size_of(std::string_view) const { return 5000; }
    void read(const ps::byte_range& range) const {
      const std::lock_guard lock{all->mutex};
      all->read_to.push_back(range.out.data());
      all->changed.notify_all();
    }
  };
  notes all;
  const ps::stored_blobs blobs{
      noting_store{&all}, {{"x", 0, 1000}, {"x", 1000, 1000}}, {.read_ahead = 4000, .threads = 1}};
  ps::blob_buffer buffer;
  const std::byte* const first = buffer.room_for(1000).data();
  // Prefetches and reads blob `index`. Returns the address that the store wrote to and the address
  // that the caller received.
  const auto places_of = [&](std::uint64_t index) {
    blobs.prefetch(index);
    std::unique_lock lock{all.mutex};
    all.changed.wait(lock, [&] { return all.read_to.size() > index; });
    const std::byte* const read_to = all.read_to.back();
    lock.unlock();
    return std::pair{read_to, static_cast<const std::byte*>(blobs.bytes(index, buffer).data())};
  };
  const auto one = places_of(0);
  CHECK(one.first == one.second);
  // Reuses the memory that a freed buffer would have released.
  const auto other = std::make_unique_for_overwrite<std::byte[]>(1000);
  CHECK(places_of(1) == std::pair{first, first});
  CHECK(blobs.stats().ahead == 2);
}

TEST_CASE("a reader of a blob that is being prefetched waits for it", "[blob]") {
  ten_each of{3};
  const ps::stored_blobs blobs{of.store, of.list, {.threads = 1}};
  of.store.shut();
  blobs.prefetch(1);
  of.store.await(1);
  std::atomic<bool> has_it{false};
  std::thread asking{[&] { has_it = test::content_of(blobs, 1) == ten_each::content(1); }};
  CHECK_FALSE(has_it);
  of.store.open();
  asking.join();
  CHECK(has_it);
  CHECK(of.store.reads == 1);
  CHECK(blobs.stats().ahead == 1);
  CHECK(blobs.stats().ready <= 1);
}

TEST_CASE("a blob whose prefetch has not begun is read by its reader", "[blob]") {
  ten_each of{3};
  const ps::stored_blobs blobs{of.store, of.list, {.threads = 1}};
  of.store.shut();
  blobs.prefetch(0);
  of.store.await(1);  // the only thread is busy
  blobs.prefetch(1);
  std::atomic<bool> has_it{false};
  std::thread asking{[&] { has_it = test::content_of(blobs, 1) == ten_each::content(1); }};
  of.store.await(2);  // the calling thread reads the blob itself
  of.store.open();
  asking.join();
  CHECK(has_it);
  CHECK(test::content_of(blobs, 0) == ten_each::content(0));
  CHECK(of.store.reads == 2);
}

TEST_CASE("prefetching stays within its bytes, and the oldest unused blob is evicted",
          "[blob][promise:bounded-10]") {
  ten_each of{30};
  const ps::stored_blobs blobs{of.store, of.list, {.read_ahead = 50, .threads = 1}};
  of.store.shut();
  for (std::uint64_t i = 0; i < 20; ++i) blobs.prefetch(i);
  of.store.open();
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(test::content_of(blobs, i) == ten_each::content(i));
  CHECK(of.store.reads == 5);  // at most five blobs were requested at a time
  for (std::uint64_t i = 20; i < 25; ++i) blobs.prefetch(i);
  while (of.store.reads < 10) std::this_thread::yield();
  // Some of these blobs have been read, and others will be read soon. Later blobs evict both.
  while (blobs.stats().in_vain < 2) {
    blobs.prefetch(25);
    blobs.prefetch(26);
    std::this_thread::yield();
  }
  for (std::uint64_t i = 20; i < 27; ++i) CHECK(test::content_of(blobs, i) == ten_each::content(i));
  // A read_ahead of 0 disables prefetching.
  const ps::stored_blobs none{of.store, of.list, {.read_ahead = 0}};
  none.prefetch(3);
  CHECK(test::content_of(none, 3) == ten_each::content(3));
  CHECK(none.stats().ahead == 0);
}

TEST_CASE("a blob that is wanted again is not the next to be dropped", "[blob]") {
  ten_each of{30};
  const ps::stored_blobs blobs{of.store, of.list, {.read_ahead = 40, .threads = 1}};
  of.store.shut();
  blobs.prefetch(9);
  of.store.await(1);
  for (std::uint64_t i = 0; i < 3; ++i) blobs.prefetch(i);  // a later call reads all three blobs
  of.store.open();
  CHECK(test::content_of(blobs, 9) == ten_each::content(9));
  blobs.prefetch(3);
  blobs.prefetch(0);  // makes blob 0 the most recently requested
  while (blobs.stats().in_vain < 2) {
    blobs.prefetch(4 + blobs.stats().in_vain);
    std::this_thread::yield();
  }
  CHECK(test::content_of(blobs, 0) == ten_each::content(0));
  CHECK(blobs.stats().ahead == 2);
  CHECK(blobs.stats().ready >= 1);
}

TEST_CASE("stored blobs report the prefetch capacity and the size of each blob", "[blob]") {
  ten_each of{3};
  of.list.push_back({"x"});
  const ps::stored_blobs blobs{of.store, of.list, {.read_ahead = 70}};
  CHECK(blobs.prefetch_capacity() == 70);
  CHECK(blobs.storage_size(2) == 10);
  CHECK(blobs.storage_size(3) == 0);  // the blob extends to the end of the object
  CHECK(blobs.storage_size(4) == 0);
}

TEST_CASE("announced blobs are forwarded to the store until the source ends",
          "[blob][promise:bounded-11]") {
  ten_each of{8};
  of.list.push_back({"x", 5});
  const ps::cached_store cache{of.store, {.block_bytes = 10, .memory_bytes = 30}};
  const ps::stored_blobs blobs{cache, of.list, {.read_ahead = 20, .threads = 1}};
  CHECK(blobs.plan_capacity() == std::uint64_t{10} << 19U);
  CHECK(test::content_of(blobs, 7) == ten_each::content(7));
  const std::vector<std::uint64_t> indices{0, 1, 2, 1, 77};
  blobs.access_plan(indices);
  CHECK(cache.stats().planned_uses == 4);
  CHECK(test::content_of(blobs, 0) == ten_each::content(0));
  CHECK(test::content_of(blobs, 1) == ten_each::content(1));
  CHECK(cache.stats().planned_uses == 2);
  blobs.prefetch(2);
  CHECK(test::content_of(blobs, 2) == ten_each::content(2));
  CHECK(cache.stats().planned_uses == 1);
  blobs.access_plan({});
  CHECK(cache.stats().planned_uses == 0);
  CHECK(test::content_of(blobs, 1) == ten_each::content(1));
  {
    const ps::stored_blobs others{cache, of.list};
    others.access_plan(indices);
    CHECK(cache.stats().planned_uses == 4);
  }
  CHECK(cache.stats().planned_uses == 0);
  // Blobs that are larger than the cache blocks, and blobs of unknown length.
  const ps::stored_blobs large{cache, {{"x", 0, 80}}};
  CHECK(large.plan_capacity() == cache.plan_capacity());
  const ps::stored_blobs unknown{cache, {{"x"}}};
  CHECK(unknown.plan_capacity() == cache.plan_capacity());
  const ps::stored_blobs small{cache, {{"x", 0, 4}, {"x", 4, 6}, {"x", 70}}};
  CHECK(small.plan_capacity() == std::uint64_t{5} << 19U);
}

TEST_CASE("blobs that a cache has in memory are delivered in place", "[blob]") {
  ten_each of{10};
  of.list.push_back({"x", 95});  // extends to the end of the object
  const ps::cached_store cache{of.store, {.block_bytes = 50, .memory_bytes = 50}};
  const ps::stored_blobs blobs{cache, of.list, {.read_ahead = 100, .threads = 1}};
  CHECK(test::content_of(blobs, 9) == ten_each::content(9));
  ps::blob_buffer one;
  ps::blob_buffer other;
  const auto* const own = one.room_for(10).data();  // the allocation becomes a spare buffer below
  const auto first = blobs.bytes(8, one);
  CHECK(first.data() == blobs.bytes(8, other).data());
  CHECK(first.data() != own);
  CHECK(blobs.bytes(10, other).data() == first.data() + 15);
  CHECK(of.store.reads == 1);

  // Buffers that borrow a block keep it alive until the last buffer releases it.
  const auto owners = [lent = cache.try_borrow({"x", 80, 10})] { return lent->owner.use_count(); };
  CHECK(owners() == 4);  // owners: the cache, both buffers, and this test
  CHECK(blobs.bytes(0, other).size() == 10);
  CHECK(owners() == 2);
  CHECK(test::text_of(first) == ten_each::content(8));
  of.store.shut();
  const int calls = of.store.calls;
  blobs.prefetch(8);
  while (of.store.calls == calls) std::this_thread::yield();  // the blob is being prefetched
  of.store.open();
  CHECK(test::text_of(blobs.bytes(8, one)) == ten_each::content(8));
  CHECK(blobs.stats().ahead == 1);
  CHECK(owners() == 1);
}

TEST_CASE("blobs that are near are not read ahead", "[blob]") {
  ten_each of{10};
  const ps::cached_store cache{of.store, {.block_bytes = 50, .memory_bytes = 100}};
  const ps::stored_blobs blobs{cache, of.list, {.read_ahead = 100, .threads = 1}};
  CHECK(test::content_of(blobs, 0) == ten_each::content(0));
  for (const std::uint64_t near_by : {1U, 2U, 3U}) blobs.prefetch(near_by);
  of.store.shut();
  const int calls = of.store.calls;
  blobs.prefetch(5);
  while (of.store.calls == calls) std::this_thread::yield();  // prefetched after the other blobs
  of.store.open();
  CHECK(test::content_of(blobs, 5) == ten_each::content(5));
  for (const std::uint64_t near_by : {1U, 2U, 3U}) {
    CHECK(test::content_of(blobs, near_by) == ten_each::content(near_by));
  }
  CHECK(blobs.stats().ahead == 1);
}

TEST_CASE("a borrowed blob is rejected above the maximum size", "[blob]") {
  const ten_each of{3};
  const ps::cached_store cache{of.store};
  const ps::stored_blobs blobs{
      cache, {{"x", 0, 9}, {"x", 0, 10}, {"x", 21}, {"x", 20}}, {.max_bytes = 9}};
  ps::blob_buffer buffer;
  for (int round = 0; round < 2; ++round) {
    for (const std::uint64_t fits : {0U, 2U}) CHECK(blobs.bytes(fits, buffer).size() == 9);
    for (const std::uint64_t large : {1U, 3U}) {
      CHECK_THROWS_AS(blobs.bytes(large, buffer), ps::file_format_error);
    }
  }
  CHECK(cache.stats().from_memory == 3);
}

TEST_CASE("a blob that cannot be prefetched fails when it is read", "[blob][fault:stores-4]") {
  ten_each of{4};
  of.list.push_back({"none", 0, 5});
  of.list.push_back({"x", 1'000});
  of.list.push_back({"x", 0, 1'000});
  const ps::stored_blobs blobs{of.store, of.list, {.threads = 1, .max_bytes = 500}};
  const std::vector<std::uint64_t> indices{0, 4, 5, 6};
  blobs.prefetch(indices);
  CHECK(test::content_of(blobs, 0) == ten_each::content(0));
  const auto missing = error_of<ps::file_unreadable>([&] { (void)test::content_of(blobs, 4); });
  CHECK(missing.path() == "none");
  const auto beyond = error_of<ps::file_truncated>([&] { (void)test::content_of(blobs, 5); });
  CHECK(beyond.offset() == 40);
  const auto large = error_of<ps::file_format_error>([&] { (void)test::content_of(blobs, 6); });
  CHECK(large.expected() == "at most 500 bytes (max_bytes)");
  CHECK(error_of<ps::option_error>([&] {
          const ps::stored_blobs wrong{of.store, of.list, {.threads = 0}};
        }).option() == "threads");
}

TEST_CASE("a source may go while blobs are read ahead", "[blob]") {
  ten_each of{30};
  of.store.shut();
  std::thread opener;
  {
    const ps::stored_blobs blobs{of.store, of.list, {.threads = 2}};
    for (std::uint64_t i = 0; i < 30; ++i) blobs.prefetch(i);
    of.store.await(1);
    opener = std::thread{[&] { of.store.open(); }};
  }
  opener.join();
  CHECK(of.store.reads <= 30);
}

TEST_CASE("in a forked child no store is queried for nearby blobs", "[blob]") {
  const requested_store store{GENERATE(false, true)};
  const ps::stored_blobs blobs{store, {{"x", 0, 1}, {"x", 1, 1}}, {.threads = 1}};
  blobs.prefetch(0);
  CHECK(store.requested == 1);
  CHECK(test::in_child([&] {
          blobs.prefetch(1);
          return store.requested == 1 ? 7 : 1;
        }) == 7);
}

TEST_CASE("in a forked child blobs are read on request and destroyed", "[blob]") {
  ten_each of{4};
  using source = ps::stored_blobs<ps::detail::store_member<test::counting_store&>>;
  auto blobs = std::make_unique<source>(of.store, of.list, ps::stored_blobs_options{.threads = 1});
  of.store.shut();
  blobs->prefetch(2);
  of.store.await(1);  // the thread holds no lock during the fork
  ps::blob_buffer buffer;
  CHECK(test::in_child([&] {
          of.store.open();
          blobs->prefetch(3);
          const bool are_right = test::text_of(blobs->bytes(2, buffer)) == of.content(2) &&
                                 test::text_of(blobs->bytes(3, buffer)) == of.content(3);
          const bool is_direct = blobs->stats().ahead == 0;
          blobs.reset();
          return are_right && is_direct ? 7 : 1;
        }) == 7);
  of.store.open();
  CHECK(test::text_of(blobs->bytes(2, buffer)) == of.content(2));
}
