// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/support/group_cache.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/exit_while.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;

namespace {

using number_cache = ps::detail::group_cache<std::size_t>;

std::size_t got(number_cache& cache, std::size_t number, std::uint64_t bytes = 10) {
  return *cache.get(number, bytes, [&] { return number * 3; });
}

}  // namespace

TEST_CASE("a group is made once and stays while there is room", "[blob][promise:race-free-10]") {
  number_cache cache{30};
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t number : {0U, 1U, 2U}) CHECK(got(cache, number) == 3 * number);
  }
  CHECK(cache.made() == 3);
  CHECK(cache.held() == 30);
}

TEST_CASE("the least recently used group is evicted, but never a group being read",
          "[blob][promise:race-free-10]") {
  number_cache cache{30};
  {
    const auto first = cache.get(0, 10, [] { return std::size_t{0}; });
    got(cache, 1);
    got(cache, 2);
    got(cache, 1);
    got(cache, 3);  // evicts 2
    CHECK(cache.held() == 30);
    got(cache, 1);
    CHECK(cache.made() == 4);
    got(cache, 0);
    CHECK(cache.made() == 4);
  }
  got(cache, 4, 25);  // evicts everything
  CHECK(cache.held() == 25);
  got(cache, 0);
  CHECK(cache.made() == 6);
}

TEST_CASE("the next request retries a group that could not be made", "[blob][fault:files-12]") {
  number_cache cache{10};
  const auto fails = []() -> std::size_t { throw std::runtime_error{"no"}; };
  CHECK_THROWS_AS(cache.get(0, 10, fails), std::runtime_error);
  CHECK(cache.held() == 0);
  CHECK(got(cache, 0) == 0);
  CHECK(cache.made() == 1);
}

TEST_CASE("threads that request the same group share it", "[blob][promise:race-free-10]") {
  number_cache cache{10};
  std::atomic<int> made{0};
  std::atomic<int> right{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto group = cache.get(7, 10, [&] {
        made.fetch_add(1);
        return std::size_t{21};
      });
      if (*group == 21) right.fetch_add(1);
    });
  }
  threads.clear();
  CHECK(made == 1);
  CHECK(right == 4);
}

TEST_CASE("waiting threads get a group while the thread that made it still reads",
          "[blob][promise:race-free-10]") {
  number_cache cache{1000};
  for (std::size_t round = 0; round < 100; ++round) {
    std::atomic<bool> is_there{false};
    std::jthread other;
    const auto own = cache.get(round, 1, [&] {
      other = std::jthread{[&] {
        is_there = true;
        is_there.notify_one();
        (void)got(cache, round, 1);
      }};
      is_there.wait(false);
      return 3 * round;
    });
    other.join();
    CHECK(*own == 3 * round);
  }
  CHECK(cache.made() == 100);
}

TEST_CASE("a group without room waits until another group has been read",
          "[blob][promise:race-free-10]") {
  number_cache cache{15};
  std::atomic<bool> is_read{false};
  std::atomic<bool> was_read{false};
  std::jthread other;
  {
    const auto first = cache.get(0, 10, [] { return std::size_t{0}; });
    std::atomic<bool> is_there{false};
    other = std::jthread{[&] {
      is_there = true;
      is_there.notify_one();
      (void)cache.get(1, 10, [&] {
        was_read = is_read.load();
        return std::size_t{1};
      });
    }};
    is_there.wait(false);
    CHECK(cache.made() == 1);
    CHECK(cache.held() == 10);
    is_read = true;
  }
  other.join();
  CHECK(was_read);
  CHECK(cache.made() == 2);
  CHECK(cache.held() == 10);
}

TEST_CASE("many threads that want different groups get them all, within the limit",
          "[blob][promise:race-free-10]") {
  number_cache cache{25};
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 300; ++i) {
        const std::size_t number = (i * (t + 1)) % 7;
        try {
          const auto group = cache.get(number, 5 + number, [&] {
            if (i % 50 == 49) throw std::runtime_error{"no"};
            return number;
          });
          if (*group != number || cache.held() > 25) wrong.fetch_add(1);
        } catch (const std::runtime_error&) {  // thrown by `make` on this thread
        }
      }
    });
  }
  threads.clear();
  CHECK(wrong == 0);
}

namespace {

struct wanted_part {
  std::size_t group;
  std::uint64_t bytes;
};

}  // namespace

TEST_CASE("a thread makes another group while one that it wants is made",
          "[blob][promise:race-free-10]") {
  number_cache cache{30};
  std::atomic<bool> is_making{false};
  std::atomic<bool> is_made{false};
  std::jthread other{[&] {
    (void)cache.get(0, 10, [&] {
      is_making = true;
      is_making.notify_one();
      is_made.wait(false);  // waits until the other thread has made the next group
      return std::size_t{0};
    });
  }};
  is_making.wait(false);
  CHECK_FALSE(cache.try_get(0, 10, [] { return std::size_t{9}; }));
  std::vector<std::size_t> used;
  const auto make = [&](const wanted_part& part) {
    if (part.group == 1) {
      is_made = true;
      is_made.notify_one();
    }
    return 3 * part.group;
  };
  std::vector<std::size_t> begun;
  cache.get_each(
      std::vector<wanted_part>{{0, 10}, {1, 10}, {2, 10}},
      [&](const wanted_part& part) { begun.push_back(part.group); }, make,
      [&](const wanted_part& part, std::size_t group) {
        CHECK(group == 3 * part.group);
        used.push_back(part.group);
      });
  REQUIRE(used.size() == 3);
  CHECK(used.front() == 1);
  CHECK(begun == std::vector<std::size_t>{0, 1, 2, 0});
  CHECK(cache.made() == 3);
}

TEST_CASE(
    "of several groups that cannot be made the first error is thrown, and each is tried "
    "once",
    "[blob][fault:files-12]") {
  const auto nothing = [](const wanted_part&) {};
  std::vector<std::size_t> used;
  const auto use = [&](const wanted_part& part, std::size_t) { used.push_back(part.group); };
  {
    number_cache cache{10};
    int tries = 0;
    const auto make = [&](const wanted_part& part) -> std::size_t {
      if (part.group % 2 == 0) return part.group;
      ++tries;
      throw std::runtime_error{std::to_string(part.group)};
    };
    const std::vector<wanted_part> parts{{2, 10}, {3, 10}, {4, 10}, {5, 10}};
    CHECK_THROWS_WITH(cache.get_each(parts, nothing, make, use), "3");
    CHECK(used == std::vector<std::size_t>{2});
    CHECK(tries == 1);
  }
  // Another thread makes the first group. The call of `make` for the first group fails only after
  // `make` of the second group has failed on this thread.
  number_cache cache{30};
  std::atomic<bool> is_making{false};
  std::atomic<bool> has_failed{false};
  std::jthread other{[&] {
    try {
      (void)cache.get(0, 10, [&]() -> std::size_t {
        is_making = true;
        is_making.notify_one();
        has_failed.wait(false);
        throw std::runtime_error{"no"};
      });
    } catch (const std::runtime_error&) {  // the main thread makes this group now
    }
  }};
  is_making.wait(false);
  const auto fail = [&](const wanted_part& part) -> std::size_t {
    has_failed = true;
    has_failed.notify_one();
    throw std::runtime_error{std::to_string(part.group)};
  };
  std::string found;
  try {
    cache.get_each(std::vector<wanted_part>{{0, 10}, {1, 10}, {2, 10}}, nothing, fail, use);
  } catch (const std::runtime_error& problem) {
    found = problem.what();
  }
  other.join();
  CHECK(found == "0");
  CHECK(used == std::vector<std::size_t>{2});
}

TEST_CASE("a group is evicted even if two groups exceed the range of the byte count", "[blob]") {
  constexpr std::uint64_t half = std::uint64_t{1} << 63U;
  ps::detail::group_cache<int> cache{2 * (half - 1) + 1};
  static_cast<void>(cache.get(0, half, [] { return 0; }));
  static_cast<void>(cache.get(1, half, [] { return 1; }));
  CHECK(cache.held() == half);
}

TEST_CASE("exit() while a group is made releases a thread that waits for the group",
          "[blob][fault:hangs-8]") {
  CHECK(test::in_child([]() -> int {
          number_cache cache{30};
          (void)cache.get(0, 10,
                          [&]() -> std::size_t { test::exit_while([&] { got(cache, 0); }); });
          return 1;
        }) == 7);
}
