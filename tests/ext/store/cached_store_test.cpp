// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/cache/cached_store.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/store/local_store.hpp>

#include "ext/store/belady.hpp"
#include "ext/store/counting_store.hpp"
#include "ext/store/files.hpp"
#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/exit_while.hpp"
#include "support/has.hpp"
#include "support/in_child.hpp"
#include "support/limits.hpp"

namespace ps = penstock;
using test::error_of;
using test::fewest_misses;
using test::random_order;

static_assert(ps::batching_store<ps::cached_store<test::counting_store>>);
static_assert(ps::planned_store<ps::cached_store<test::counting_store>>);
static_assert(!ps::planned_store<test::counting_store>);

namespace {

// A store with one object of `blocks` blocks of 100 bytes.
struct blocks_below {
  explicit blocks_below(std::size_t blocks) { store.add("x", test::some_bytes(100 * blocks)); }
  test::counting_store store;
};

template <class Store>
bool reads_right(const Store& cache, const test::counting_store& below, const std::string& object,
                 std::size_t offset, std::size_t count) {
  return test::part_of(cache, object, offset, count) == below.content(object).substr(offset, count);
}

template <class Store>
bool can_read(const Store& cache) {
  try {
    (void)test::part_of(cache, "x", 120, 60);
    return true;
  } catch (const ps::file_unreadable&) {
    return false;
  }
}

// Uses the blocks in order. Returns the number of reads from the underlying store.
template <class Store>
int misses_of(const Store& cache, const test::counting_store& below,
              const std::vector<std::uint64_t>& order) {
  const int before = below.reads;
  for (const std::uint64_t block : order) {
    CHECK(reads_right(cache, below, "x", static_cast<std::size_t>(100 * block), 100));
  }
  return below.reads - before;
}

// Reads `bytes` bytes of object "x" through a cache and then destroys the cache. The blocks stay on
// disk.
void leave_on_disk(const test::counting_store& below, std::size_t bytes,
                   const ps::cached_store_options& options) {
  CHECK(reads_right(ps::cached_store{below, options}, below, "x", 0, bytes));
}

std::vector<ps::upcoming_range> reported(const std::vector<std::uint64_t>& order) {
  std::vector<ps::upcoming_range> ranges;
  for (const std::uint64_t block : order) ranges.push_back({"x", 100 * block + 7, 50});
  return ranges;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) bytes += entry.file_size();
  return bytes;
}

constexpr std::uint64_t file_bytes = 64 + 1 + 8 + 100;  // size of the cache file for a block of "x"

}  // namespace

TEST_CASE("a cache returns the bytes of the underlying store for any range",
          "[store][promise:bounded-10]") {
  const test::temp_dir dir;
  test::counting_store below;
  below.add("a", test::some_bytes(1000, 1));
  below.add("b", test::some_bytes(1, 2));
  below.add("none", "");
  for (const std::uint64_t block : {1U, 7U, 100U, 4096U}) {
    for (const std::uint64_t memory : {0U, 150U, 100'000U}) {
      for (const std::string folder : {"", "cache"}) {
        CAPTURE(block, memory, folder);
        const ps::cached_store cache{below,
                                     {.block_bytes = block,
                                      .memory_bytes = memory,
                                      .folder = folder.empty() ? "" : dir.path(folder),
                                      .disk_bytes = 50'000,
                                      .store_name = std::to_string(block)}};
        CHECK(cache.size_of("a") == 1000);
        CHECK(cache.size_of("none") == 0);
        std::mt19937 random{5};
        test::wanted_ranges wanted;
        wanted.add("a", 0, 1000);
        wanted.add("b", 0, 1);
        wanted.add("none", 0, 0);
        wanted.add("a", 1000, 0);
        for (int i = 0; i < 20; ++i) {
          const std::size_t begin = random() % 1000;
          wanted.add("a", begin, random() % (1001 - begin));
        }
        for (int turn = 0; turn < 2; ++turn) {
          cache.read_many(wanted.ranges());
          CHECK(wanted.are_right(below));
        }
        CHECK(reads_right(cache, below, "a", 333, 333));
        CHECK(cache.stats().memory_bytes <= memory);
        CHECK(cache.stats().disk_bytes <= 50'000);
      }
    }
  }
}

TEST_CASE("a block is read once, and blocks of one call together", "[store][promise:bounded-11]") {
  blocks_below of{10};
  const ps::cached_store cache{of.store, {.block_bytes = 100}};
  CHECK(reads_right(cache, of.store, "x", 50, 730));
  CHECK(of.store.calls == 1);
  CHECK(of.store.reads == 8);
  CHECK(reads_right(cache, of.store, "x", 0, 1000));
  CHECK(of.store.reads == 10);
  CHECK(reads_right(cache, of.store, "x", 0, 1000));
  CHECK(of.store.calls == 2);
  CHECK(of.store.sizes == 1);
  const auto stats = cache.stats();
  CHECK(stats.from_store == 10);
  CHECK(stats.from_memory == 18);
  CHECK(stats.memory_bytes == 1000);
  test::wanted_ranges wanted;
  wanted.add("x", 10, 10);
  wanted.add("x", 20, 10);
  const ps::cached_store other{of.store, {.block_bytes = 100, .memory_bytes = 0}};
  other.read_many(wanted.ranges());
  CHECK(other.stats().from_store == 1);
  CHECK(other.stats().from_others == 1);
}

TEST_CASE("with a known order, a memory cache has the minimum number of misses",
          "[store][promise:bounded-11]") {
  std::mt19937 random{11};
  for (int round = 0; round < 150; ++round) {
    const std::size_t blocks = 3 + random() % 4;
    const std::size_t room = 1 + random() % 3;
    const auto order = random_order(random, blocks, 14);
    blocks_below of{blocks};
    const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 100 * room}};
    cache.will_use(reported(order));
    CAPTURE(order, room);
    CHECK(misses_of(cache, of.store, order) == fewest_misses(order, room));
    // Announces a new order while the cache still holds blocks of the previous order.
    const auto next = random_order(random, blocks, 10);
    cache.will_use(reported(next));
    CHECK(misses_of(cache, of.store, next) <= fewest_misses(next, room));
  }
}

TEST_CASE("with a known order, a disk cache has the minimum number of misses",
          "[store][promise:bounded-11]") {
  const test::temp_dir dir;
  std::mt19937 random{12};
  for (int round = 0; round < 15; ++round) {
    const std::size_t blocks = 3 + random() % 4;
    const std::size_t room = 1 + random() % 3;
    const auto order = random_order(random, blocks, 14);
    blocks_below of{blocks};
    const std::string folder = dir.path(std::to_string(round));
    // The cache scans the folder after each block that it has written.
    const ps::cached_store cache{of.store,
                                 {.block_bytes = 100,
                                  .memory_bytes = 0,
                                  .folder = folder,
                                  .disk_bytes = file_bytes * room + 20}};
    cache.will_use(reported(order));
    CAPTURE(order, room);
    CHECK(misses_of(cache, of.store, order) == fewest_misses(order, room));
    CHECK(bytes_in(folder) <= file_bytes * room + 20);
    CHECK(cache.stats().disk_bytes == bytes_in(folder));
  }
}

TEST_CASE("without a known order, the least recently used block is evicted first",
          "[store][promise:bounded-11]") {
  blocks_below of{5};
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 300}};
  CHECK(misses_of(cache, of.store, {0, 1, 2}) == 3);
  CHECK(misses_of(cache, of.store, {0}) == 0);
  CHECK(misses_of(cache, of.store, {3}) == 1);  // evicts block 1
  CHECK(misses_of(cache, of.store, {0, 2, 3}) == 0);
  CHECK(misses_of(cache, of.store, {1}) == 1);
  CHECK(misses_of(cache, of.store, {2, 3}) == 0);
  // The oldest blocks are evicted first if the announced order has only blocks that are not cached.
  cache.will_use(reported({4}));
  CHECK(misses_of(cache, of.store, {4}) == 1);
  CHECK(misses_of(cache, of.store, {2, 3}) == 0);
}

TEST_CASE("threads that need one block read it once", "[store][promise:bounded-11]") {
  blocks_below of{4};
  const ps::cached_store cache{of.store, {.block_bytes = 100}};
  of.store.shut();
  std::atomic<int> right{0};
  const auto read = [&] {
    if (reads_right(cache, of.store, "x", 120, 60)) ++right;
  };
  std::thread first{read};
  of.store.await(1);
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) others.emplace_back(read);
  while (cache.stats().from_others < 3) std::this_thread::yield();
  of.store.open();
  first.join();
  for (std::thread& one : others) one.join();
  CHECK(right == 4);
  CHECK(of.store.reads == 1);
}

TEST_CASE("if the thread that reads a block fails, the waiting threads retry",
          "[store][fault:stores-4]") {
  blocks_below of{4};
  const ps::cached_store cache{of.store, {.block_bytes = 100}};
  of.store.shut();
  of.store.fails = true;
  std::atomic<int> failed{0};
  const auto read = [&] { failed += can_read(cache) ? 0 : 1; };
  std::thread first{read};
  of.store.await(1);
  std::thread second{read};
  while (cache.stats().from_others < 1) std::this_thread::yield();
  of.store.open();
  first.join();
  second.join();
  CHECK(failed == 2);
  of.store.fails = false;
  CHECK(reads_right(cache, of.store, "x", 120, 60));  // no thread waits for these blocks
}

TEST_CASE("threads that waited for a failed block read it concurrently",
          "[store][fault:stores-4]") {
  blocks_below of{4};
  const ps::cached_store cache{of.store, {.block_bytes = 100}};
  of.store.shut();
  of.store.fails = true;
  std::atomic<int> failed{0};
  const auto read = [&] { failed += can_read(cache) ? 0 : 1; };
  std::vector<std::thread> all;
  all.emplace_back(read);
  of.store.await(1);
  for (int i = 0; i < 3; ++i) all.emplace_back(read);
  while (cache.stats().from_others < 3) std::this_thread::yield();
  of.store.let_one();
  CHECK(of.store.await(3));  // sequential reads would take three times as long
  of.store.fails = false;
  of.store.let_one();
  while (cache.stats().from_store == 0) std::this_thread::yield();
  // The bytes are available to this thread while other threads still read the block.
  CHECK(reads_right(cache, of.store, "x", 120, 60));
  of.store.open();
  for (std::thread& one : all) one.join();
  CHECK(failed == 1);
  CHECK(of.store.reads == 4);
  CHECK(reads_right(cache, of.store, "x", 120, 60));  // no thread waits for these blocks
}

TEST_CASE("a forked child reads blocks that its parent was reading at the fork",
          "[store][fault:memory-7]") {
  blocks_below of{4};
  const ps::cached_store cache{of.store, {.block_bytes = 100}};
  of.store.shut();
  std::thread reader{[&] { (void)test::part_of(cache, "x", 120, 60); }};
  of.store.await(1);
  CHECK(test::in_child([&] {
          of.store.open();
          const bool is_right = reads_right(cache, of.store, "x", 150, 60) &&
                                reads_right(cache, of.store, "x", 120, 60);  // already cached
          return is_right && of.store.reads == 2 ? 0 : 1;
        }) == 0);
  of.store.open();
  reader.join();
  CHECK(of.store.reads == 1);
}

TEST_CASE("a forked child destroys a cache in which a thread of its parent waits",
          "[store][fault:memory-7]") {
  blocks_below of{4};
  std::optional<ps::cached_store<test::counting_store&>> cache;
  cache.emplace(of.store, ps::cached_store_options{.block_bytes = 100});
  of.store.shut();
  std::thread reader{[&] { (void)test::part_of(*cache, "x", 120, 60); }};
  of.store.await(1);
  sleeper waiter{[&] { (void)test::part_of(*cache, "x", 120, 60); }};
  waiter.wait_until_it_sleeps();
  CHECK(test::in_child([&] {
          cache.reset();
          return 7;
        }) == 7);
  of.store.open();
  reader.join();
  waiter.join();
}

TEST_CASE("exit() in the store below releases a thread that waits for the same block",
          "[store][fault:hangs-8]") {
  struct exiting_store {
    [[nodiscard]] std::uint64_t size_of(std::string_view) const { return 100; }
    void read(const ps::byte_range&) const {
      if (!is_exiting->exchange(true)) test::exit_while([this] { (*wait)(); });
    }
    std::atomic<bool>* is_exiting;
    const std::function<void()>* wait;
  };
  CHECK(test::in_child([]() -> int {
          std::atomic<bool> is_exiting{false};
          std::function<void()> read;
          const ps::cached_store cache{exiting_store{&is_exiting, &read}, {.block_bytes = 100}};
          read = [&] { (void)test::part_of(cache, "x", 0, 100); };
          read();
          return 1;
        }) == 7);
}

TEST_CASE("announcements are bounded for any reported object size", "[store]") {
  struct endless {
    [[nodiscard]] std::uint64_t size_of(std::string_view) const { return std::uint64_t{1} << 62; }
    void read(const ps::byte_range&) const { FAIL("nothing is read"); }
  };
  const ps::cached_store_options options{.block_bytes = 100};
  const ps::cached_store cache{endless{}, options};
  CHECK(cache.size_of("x") == std::uint64_t{1} << 62);
  const ps::upcoming_range all{"x", 0, ~std::uint64_t{0}};
  cache.announce_reads(&all, std::span{&all, 1});
  // The same limit applies to an announced order. Without the limit, this call would take a minute.
  ps::detail::known_objects none{"s"};
  const auto size_of = [](std::string_view) { return std::optional{std::uint64_t{1} << 62}; };
  CHECK(ps::detail::block_numbers(std::span{&all, 1}, options, none, 1000, size_of).size() == 1000);
}

TEST_CASE("threads read through one cache at once", "[store][promise:honest-9]") {
  const test::temp_dir dir;
  blocks_below of{40};
  const ps::cached_store cache{of.store,
                               {.block_bytes = 100,
                                .memory_bytes = 500,
                                .folder = dir.path("cache"),
                                .disk_bytes = 15 * file_bytes}};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random{seed};
      for (int i = 0; i < 60; ++i) {
        const std::size_t begin = random() % 3900;
        const std::size_t count = random() % 400;
        const std::size_t max = (std::min)(count, 4000 - begin);
        if (!reads_right(cache, of.store, "x", begin, max)) ++wrong;
        if (i % 20 == 0) cache.will_use(reported(random_order(random, 40, seed < 2 ? 30 : 0)));
        if (i % 5 == 1)
          cache.announce_reads(&threads + seed % 2, reported(random_order(random, 40, 30)));
        if (i % 30 == 7) cache.retract(&threads + seed % 2);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  CHECK(wrong == 0);
  CHECK(cache.stats().memory_bytes <= 500);
}

TEST_CASE("blocks on disk serve the next run and other processes, but no other store",
          "[store][fault:stores-3]") {
  const test::temp_dir dir;
  blocks_below of{10};
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 0, .folder = dir.path("deep/cache"), .store_name = "s"};
  {
    const ps::cached_store cache{of.store, options};
    CHECK(reads_right(cache, of.store, "x", 0, 1000));
    CHECK(cache.stats().written == 10);
  }
  const int before = of.store.reads;
  const ps::cached_store again{of.store, options};
  CHECK(again.stats().disk_bytes == 10 * (file_bytes + 1));
  CHECK(reads_right(again, of.store, "x", 0, 1000));
  CHECK(of.store.reads == before);
  CHECK(again.stats().from_disk == 10);

  ps::cached_store_options others = options;
  others.store_name = "t";
  const ps::cached_store other{of.store, others};
  CHECK(reads_right(other, of.store, "x", 0, 100));
  CHECK(of.store.reads == before + 1);

  // Another process writes blocks to the folder while this cache exists.
  REQUIRE(test::in_child([&] {
            const ps::cached_store theirs{of.store, others};
            return reads_right(theirs, of.store, "x", 500, 200) ? 0 : 1;
          }) == 0);
  CHECK(reads_right(other, of.store, "x", 500, 200));
  CHECK(of.store.reads == before + 1);

  // An object of another size is another version.
  of.store.add("x", test::some_bytes(999, 9));
  const ps::cached_store newer{of.store, options};
  CHECK(reads_right(newer, of.store, "x", 0, 999));
  CHECK(newer.stats().damaged == 10);
  CHECK(newer.stats().from_disk == 0);
}

TEST_CASE("blocks of an older version with the same size are read again", "[store]") {
  // A store that reports versions, as a server does with ETag or Last-Modified.
  struct versioned : test::counting_store {
    std::string version = "1";
    [[nodiscard]] ps::object_state state_of(std::string_view object) const {
      return {size_of(object), version};
    }
  };
  static_assert(ps::versioned_store<versioned>);
  const test::temp_dir dir;
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 0, .folder = dir.path("cache"), .store_name = "s"};
  versioned below;
  below.add("x", test::some_bytes(1000, 1));
  {
    const ps::cached_store cache{below, options};
    CHECK(reads_right(cache, below, "x", 0, 500));
    CHECK(cache.state_of("x").version == "1");
    CHECK(cache.state_of("x").size == 1000);
  }
  const int before = below.reads;
  const ps::cached_store same{below, options};
  CHECK(reads_right(same, below, "x", 0, 500));
  CHECK(below.reads == before);

  below.add("x", test::some_bytes(1000, 2));
  below.version = "2";
  const ps::cached_store newer{below, options};
  CHECK(reads_right(newer, below, "x", 0, 1000));
  CHECK(newer.stats().damaged == 5);  // the new blocks have replaced the old blocks
  CHECK(newer.stats().from_disk == 0);
  CHECK(newer.stats().disk_bytes == same.stats().disk_bytes / 5 * 10);
}

TEST_CASE("a file that changed between two runs is not served from a cache", "[store]") {
  const test::temp_dir dir;
  std::filesystem::create_directory(dir.path("data"));
  const std::string path = dir.path("data/x");
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 0, .folder = dir.path("cache")};
  for (const char content : {'a', 'b'}) {
    std::ofstream{path, std::ios::binary} << std::string(300, content);
    const auto when = std::filesystem::file_time_type{} + std::chrono::seconds{content};
    std::filesystem::last_write_time(path, when);
    const ps::local_store disk{dir.path("data")};
    const ps::cached_store cache{disk, options};
    CHECK(test::part_of(cache, "x", 0, 300) == std::string(300, content));
  }
}

TEST_CASE("stores that share a cache folder have separate blocks", "[store]") {
  const test::temp_dir dir;
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 0, .folder = dir.path("cache")};
  const auto when = std::filesystem::file_time_type{} + std::chrono::seconds{1};
  const auto write = [&](const std::string& path, char content) {
    std::ofstream{path, std::ios::binary} << std::string(300, content);
    std::filesystem::last_write_time(path, when);
  };
  const auto cached = [&](const auto& store) {
    return test::part_of(ps::cached_store{store, options}, "x", 0, 300);
  };
  for (const char content : {'a', 'b'}) {
    const std::string root = dir.path(std::string(1, content));
    std::filesystem::create_directory(root);
    write(root + "/x", content);
    CHECK(cached(ps::local_store{root}) == std::string(300, content));
  }
  // Replaces the file with another file that has the same size and time.
  write(dir.path("a/new"), 'c');
  std::filesystem::rename(dir.path("a/new"), dir.path("a/x"));
  CHECK(cached(ps::local_store{dir.path("a")}) == std::string(300, 'c'));
  // Stores without versions are distinguished only by their roots.
  struct rooted : test::counting_store {
    std::string where;
    [[nodiscard]] const std::string& root() const { return where; }
  };
  for (const char content : {'d', 'e'}) {
    rooted below;
    below.where = content;
    below.add("x", std::string(300, content));
    CHECK(cached(below) == std::string(300, content));
  }
}

TEST_CASE("a damaged, truncated or longer cache file is dropped and read again",
          "[store][fault:stores-3]") {
  const test::temp_dir dir;
  blocks_below of{1};
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 0, .folder = dir.path("cache")};
  leave_on_disk(of.store, 100, options);
  REQUIRE(names_in(options.folder).size() == 1);
  const std::string path = options.folder + '/' + names_in(options.folder)[0];
  const std::string whole = test::content_of(path);
  REQUIRE(whole.size() == file_bytes);
  const auto is_noticed = [&](const std::string& bytes) {
    test::folder::write(path, bytes);
    const int before = of.store.reads;
    const ps::cached_store cache{of.store, options};
    CHECK(reads_right(cache, of.store, "x", 0, 100));
    CHECK(reads_right(cache, of.store, "x", 0, 100));  // reads the block from the disk again
    return of.store.reads == before + 1 && cache.stats().damaged == 1 &&
           cache.stats().from_disk == 1;
  };
  for (std::size_t at = 0; at < whole.size(); at += at < 75 ? 1 : 9) {
    CAPTURE(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CHECK(is_noticed(damaged));
  }
  for (std::size_t size = 0; size < whole.size(); size += 11) {
    CAPTURE(size);
    CHECK(is_noticed(whole.substr(0, size)));
  }
  CHECK(is_noticed(whole + "x"));
  CHECK_FALSE(is_noticed(whole));
}

TEST_CASE("a part of a block on the disk is read by itself, and all of it is checked",
          "[store][promise:honest-9]") {
  const test::temp_dir dir;
  const ps::cached_store_options options{
      .block_bytes = 50'000, .memory_bytes = 49'999, .folder = dir.path("cache")};
  test::counting_store below;
  below.add("x", test::some_bytes(50'000));
  leave_on_disk(below, 50'000, options);
  const std::string path = options.folder + '/' + names_in(options.folder)[0];
  constexpr std::size_t chunk = 16'384;  // the unit that has its own checksum
  constexpr std::size_t start = 64 + 1 + 4 * 8;
  const std::string whole = test::content_of(path);
  REQUIRE(whole.size() == start + 50'000);
  const std::vector<std::size_t> edges{0,         1,      chunk - 1, chunk,         chunk + 1,
                                       2 * chunk, 40'000, 3 * chunk, 3 * chunk + 1, 49'999,
                                       50'000};
  for (const std::size_t from : edges) {
    for (const std::size_t to : edges) {
      if (from >= to) continue;
      CAPTURE(from, to);
      const int before = below.reads;
      {
        const ps::cached_store cache{below, options};
        CHECK(reads_right(cache, below, "x", from, to - from));
        CHECK(cache.stats().from_disk == 1);
        CHECK(cache.stats().memory_bytes == 0);
      }
      CHECK(below.reads == before);
      // Damage is detected only in chunks that are read.
      for (const std::size_t at : {from, to - 1, from / chunk * chunk}) {
        std::string damaged = whole;
        damaged[start + at] = static_cast<char>(damaged[start + at] ^ 1);
        test::folder::write(path, damaged);
        const ps::cached_store cache{below, options};
        CHECK(reads_right(cache, below, "x", from, to - from));
        CHECK(cache.stats().damaged == 1);
        CHECK(cache.stats().from_store == 1);
      }
      const std::size_t next_chunk = ((to - 1) / chunk + 1) * chunk;
      if (next_chunk >= 50'000) continue;
      std::string damaged = whole;
      damaged[start + next_chunk] = static_cast<char>(damaged[start + next_chunk] ^ 1);
      test::folder::write(path, damaged);
      CHECK(reads_right(ps::cached_store{below, options}, below, "x", from, to - from));
      CHECK(below.reads == before + 3);
      test::folder::write(path, whole);
    }
  }
}

TEST_CASE("a block on disk moves to memory if it is used sooner than the blocks there",
          "[store][promise:honest-9]") {
  const test::temp_dir dir;
  blocks_below of{3};
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 100, .folder = dir.path("cache")};
  leave_on_disk(of.store, 300, options);
  const ps::cached_store cache{of.store, options};
  const auto from_memory = [&](const std::vector<std::uint64_t>& order) {
    const auto before = cache.stats().from_memory;
    misses_of(cache, of.store, order);
    return cache.stats().from_memory - before;
  };
  cache.will_use(reported({0, 1, 2, 0, 1}));
  // Only block 0 is in memory, because replacing it with block 1 or 2 would not help.
  CHECK(from_memory({0, 1, 2, 0, 1}) == 1);
  // Without a known order, the most recently used blocks stay in memory.
  CHECK(from_memory({2, 2}) == 1);
  CHECK(cache.stats().from_store == 0);
}

TEST_CASE("only the requested part of a block on disk is read if it does not move to memory",
          "[store][promise:honest-9]") {
  const test::temp_dir dir;
  const ps::cached_store_options options{
      .block_bytes = 40'000, .memory_bytes = 40'000, .folder = dir.path("cache")};
  test::counting_store below;
  below.add("x", test::some_bytes(80'000));
  leave_on_disk(below, 80'000, options);
  const ps::cached_store cache{below, options};
  const std::vector<ps::upcoming_range> first_block{{"x", 0, 1}, {"x", 0, 1}};
  cache.will_use(first_block);
  CHECK(reads_right(cache, below, "x", 0, 1));
  for (const auto& name : names_in(options.folder)) {  // both blocks end with a damaged chunk
    const std::string path = options.folder + '/' + name;
    std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(below.content("x")[39'999] ^ 1));
  }
  CHECK(reads_right(cache, below, "x", 40'000, 10));
  CHECK(cache.stats().damaged == 0);
  CHECK(cache.stats().from_disk == 2);
}

TEST_CASE("the files of a killed process are removed by the next process",
          "[store][fault:stores-3]") {
  const test::temp_dir dir;
  blocks_below of{2};
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 0, .folder = dir.path("cache")};
  { const ps::cached_store first{of.store, options}; }
  const std::string left = options.folder + "/0123456789abcdef.block.part-1-2";
  const std::string held = options.folder + "/0123456789abcdef.block.part-3-4";
  const std::string foreign = options.folder + "/notes.txt";
  test::folder::write(left, "half of a bl");
  test::folder::write(held, "half of a bl");
  test::folder::write(foreign, "not ours");
  const int file = ::open(held.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(file, LOCK_EX) == 0);
  { const ps::cached_store second{of.store, options}; }
  CHECK(names_in(options.folder) ==
        std::vector<std::string>{"0123456789abcdef.block.part-3-4", "notes.txt"});
  ::close(file);  // closed by the end of its process
  { const ps::cached_store third{of.store, options}; }
  CHECK(names_in(options.folder) == std::vector<std::string>{"notes.txt"});
}

TEST_CASE("a full or missing disk makes a cache slower and is reported",
          "[store][fault:stores-3]") {
  const test::temp_dir dir;
  blocks_below of{30};
  const ps::cached_store_options options{
      .block_bytes = 100, .memory_bytes = 300, .folder = dir.path("cache")};
  const ps::cached_store cache{of.store, options};
  CHECK(reads_right(cache, of.store, "x", 0, 300));
  CHECK(cache.stats().written == 3);
  SECTION("the disk is full") {
    // A file size limit simulates a full disk: writes fail halfway.
    std::optional<test::file_limit> less{100};
    const bool is_right = reads_right(cache, of.store, "x", 300, 900);
    less.reset();
    CHECK(is_right);
    CHECK(cache.stats().written == 3);
    CHECK(cache.stats().disk_failures > 0);
    CHECK(cache.stats().disk_failures < 9);  // the cache does not try to write every block
    CHECK(test::has(cache.stats().disk_problem, options.folder + ": File too large"));
    CHECK(names_in(options.folder).size() == 3);
    // The disk has free space again.
    CHECK(reads_right(cache, of.store, "x", 0, 3000));
    CHECK(reads_right(cache, of.store, "x", 0, 3000));
    CHECK(cache.stats().written > 3);
  }
  SECTION("the folder is removed") {
    std::filesystem::remove_all(options.folder);
    CHECK(reads_right(cache, of.store, "x", 0, 3000));
    CHECK(reads_right(cache, of.store, "x", 0, 3000));
    CHECK(cache.stats().disk_failures > 0);
    CHECK(test::has(cache.stats().disk_problem, "No such file or directory"));
    CHECK(cache.stats().from_memory > 0);
  }
}

TEST_CASE("a block that cannot be opened for lack of descriptors stays on disk", "[store]") {
  const test::temp_dir dir;
  blocks_below of{4};
  const ps::cached_store cache{
      of.store, {.block_bytes = 100, .memory_bytes = 0, .folder = dir.path("cache")}};
  CHECK(reads_right(cache, of.store, "x", 0, 400));
  const auto before = cache.stats();
  CHECK(before.written == 4);
  std::optional<test::descriptor_limit> none{3};
  const bool is_right = reads_right(cache, of.store, "x", 0, 400);
  none.reset();
  CHECK(is_right);
  const auto after = cache.stats();
  CHECK(after.damaged == 0);
  CHECK(after.disk_bytes == before.disk_bytes);
  CHECK(after.disk_failures == 4);
  CHECK(test::has(after.disk_problem, "Too many open files"));
  CHECK(reads_right(cache, of.store, "x", 0, 400));
  CHECK(cache.stats().from_disk == 4);
}

TEST_CASE("an announced range ends at the end of its object", "[store]") {
  blocks_below of{4};
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 200}};
  constexpr auto to_end = static_cast<std::uint64_t>(-1);
  // The first two blocks will be used last, so the last two blocks stay in memory.
  const std::vector<ps::upcoming_range> ranges{{"x", 200, to_end}, {"x", 0, 200}};
  cache.will_use(ranges);
  CHECK(misses_of(cache, of.store, {2, 3}) == 2);
  const std::vector<ps::upcoming_range> again{{"x", 201, to_end}, {"x", 400, 1}, {"x", 401, 9}};
  cache.will_use(again);
  CHECK(misses_of(cache, of.store, {0, 1, 2, 3}) == 2);
}

TEST_CASE("announcements of several readers keep the blocks that are used next",
          "[store][promise:bounded-11]") {
  blocks_below of{8};
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 200}};
  CHECK(cache.plan_capacity() == std::uint64_t{100} << 19U);
  const int one = 0;
  const int other = 0;
  cache.announce_reads(&one, reported({0, 1, 2, 0, 3, 0}));
  cache.announce_reads(&other, reported({4, 1}));
  cache.announce_reads(&one, reported({5, 2}));
  CHECK(cache.stats().planned_uses == 10);
  // Blocks 1 and 2 stay until block 2 is dropped without a replacement.
  CHECK(misses_of(cache, of.store, {0, 1, 2, 0, 3, 0}) == 4);
  CHECK(cache.stats().planned_uses == 4);
  // A retraction by one reader keeps the announcements of other readers: block 1 is used again, but
  // block 2 is not.
  cache.retract(&one);
  CHECK(cache.stats().planned_uses == 2);
  CHECK(misses_of(cache, of.store, {4, 6, 1}) == 2);
  CHECK(cache.stats().planned_uses == 0);
  // The user's announcements take priority until they are used up or retracted.
  cache.announce_reads(&one, reported({0}));
  cache.will_use(reported({1, 2}));
  cache.announce_reads(&one, reported({3}));
  CHECK(cache.stats().planned_uses == 2);
  CHECK(misses_of(cache, of.store, {1, 2}) <= 2);
  CHECK(cache.stats().planned_uses == 0);  // the announced use of block 3 was ignored
  cache.will_use(reported({1, 2}));
  cache.will_use({});
  cache.announce_reads(&one, reported({3}));
  CHECK(cache.stats().planned_uses == 1);
}

TEST_CASE("a cached block stays after it is announced", "[store][promise:bounded-11]") {
  const test::temp_dir dir;
  for (const std::string folder : {"", "cache"}) {
    CAPTURE(folder);
    blocks_below of{3};
    const ps::cached_store cache{of.store,
                                 {.block_bytes = 100,
                                  .memory_bytes = folder.empty() ? 200U : 0U,
                                  .folder = folder.empty() ? "" : dir.path(folder),
                                  .disk_bytes = 2 * file_bytes}};
    CHECK(misses_of(cache, of.store, {0, 1}) == 2);
    cache.announce_reads(&of, reported({2, 0}));
    // Block 2 has replaced block 1, although block 0 is older.
    CHECK(misses_of(cache, of.store, {2, 0}) == 1);
  }
}

TEST_CASE("an announcement makes no request to the store below", "[store][promise:bounded-11]") {
  blocks_below of{4};
  const ps::cached_store cache{of.store, {.block_bytes = 100, .memory_bytes = 200}};
  constexpr auto to_end = static_cast<std::uint64_t>(-1);
  const std::vector<ps::upcoming_range> ranges{{"x", 100, to_end}, {"none", 0, 100}};
  cache.announce_reads(&of, ranges);
  CHECK(cache.stats().planned_uses == 2);  // the first block of "x", whose size is unknown
  CHECK(of.store.sizes == 0);
  cache.retract(&of);
  CHECK(cache.size_of("x") == 400);
  cache.announce_reads(&of, ranges);
  CHECK(cache.stats().planned_uses == 4);
}

TEST_CASE("a block is read once while it is written to the disk", "[store]") {
  const test::temp_dir dir;
  blocks_below of{1};
  constexpr std::size_t size = std::size_t{8} << 20;  // so large that writing takes a while
  of.store.add("y", std::string(size, 'y'));
  const ps::cached_store cache{
      of.store, {.block_bytes = size, .memory_bytes = 0, .folder = dir.path("cache")}};
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 2; ++k) right += reads_right(cache, of.store, "y", 0, 100) ? 1 : 0;
    });
  }
  for (std::thread& one : threads) one.join();
  CHECK(right == 16);
  CHECK(of.store.reads == 1);
}

TEST_CASE("a scan of the folder drops removed files and evicts files of others first",
          "[store][promise:bounded-10]") {
  ps::detail::block_disk disk{"", 300};
  const auto nobody = [](std::uint64_t) { return ps::detail::never; };
  CHECK(disk.look({{1, 100, 10}, {2, 100, 30}, {3, 100, 20}}, nobody).empty());
  // Another process has removed block 1. New files count as older than known files.
  const auto gone = disk.look({{2, 100, 30}, {4, 100, 40}, {3, 100, 20}, {5, 100, 50}}, nobody);
  CHECK(gone == std::vector<std::uint64_t>{4});
  ps::cached_store_stats stats;
  disk.tell(stats);
  CHECK(stats.disk_bytes == 300);
}

TEST_CASE("processes that share a folder keep it bounded", "[store][promise:bounded-10]") {
  const test::temp_dir dir;
  const ps::cached_store_options options{.block_bytes = 100,
                                         .memory_bytes = 0,
                                         .folder = dir.path("cache"),
                                         .disk_bytes = 64 * file_bytes};
  std::vector<::pid_t> children;
  for (unsigned seed = 0; seed < 3; ++seed) {
    children.push_back(test::fork_to([&] {
      blocks_below of{200};
      const ps::cached_store cache{of.store, options};
      std::mt19937 random{seed};
      bool are_right = true;
      for (int i = 0; i < 150; ++i) {
        const std::size_t block = random() % 200;
        are_right = reads_right(cache, of.store, "x", 100 * block, 100) && are_right;
      }
      return are_right && cache.stats().disk_failures == 0 ? 0 : 1;
    }));
  }
  for (const ::pid_t child : children) CHECK(test::end_of(child) == 0);
  CHECK(bytes_in(options.folder) <=
        options.disk_bytes + 3 * (options.disk_bytes / 16 + file_bytes));
  blocks_below of{200};
  const ps::cached_store cache{of.store, options};
  CHECK(bytes_in(options.folder) <= options.disk_bytes);
  CHECK(cache.stats().disk_bytes == bytes_in(options.folder));
}

TEST_CASE("a cache forwards errors and rejects invalid options", "[store][fault:stores-4]") {
  const test::temp_dir dir;
  blocks_below of{3};
  const ps::cached_store cache{of.store, {.block_bytes = 100}};
  CHECK_THROWS_AS((void)cache.size_of("none"), ps::file_unreadable);
  CHECK_THROWS_AS((void)test::part_of(cache, "none", 0, 1), ps::file_unreadable);
  const auto beyond =
      error_of<ps::file_truncated>([&] { (void)test::part_of(cache, "x", 299, 2); });
  CHECK(beyond.path() == "x");
  CHECK(beyond.offset() == 299);
  of.store.fails = true;
  CHECK_THROWS_AS((void)test::part_of(cache, "x", 0, 300), ps::file_unreadable);
  of.store.fails = false;
  CHECK(reads_right(cache, of.store, "x", 0, 300));
  CHECK(error_of<ps::option_error>([&] {
          const ps::cached_store none{of.store, {.block_bytes = 0}};
        }).option() == "block_bytes");
  test::folder::write(dir.path("file"), "x");
  CHECK_THROWS_AS((ps::cached_store{of.store, {.folder = dir.path("file/cache")}}),
                  ps::file_unreadable);
  // An rvalue store is moved into the cache.
  struct movable {
    std::uint64_t size_of(std::string_view) const { return 3; }
    void read(const ps::byte_range& range) const {
      for (std::byte& one : range.out) one = std::byte{'m'};
    }
  };
  ps::cached_store own{movable{}};
  const auto moved = std::move(own);
  CHECK(test::part_of(moved, "any", 1, 2) == "mm");
}
