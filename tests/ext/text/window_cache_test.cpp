// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/packed_documents.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using cache = ps::detail::window_cache<std::uint64_t>;

// What is made, and how often.
struct counted {
  cache& in;
  std::vector<std::uint64_t> made = {};

  std::uint64_t operator()(std::uint64_t number) {
    return *in.get(number, [&] {
      made.push_back(number);
      return number * 10;
    });
  }
};

}  // namespace

TEST_CASE("the windows that were asked for last are kept", "[text]") {
  cache kept{2};
  counted get{kept};
  for (const std::uint64_t number : {1U, 1U, 2U, 1U, 3U, 1U, 2U, 2U, 0U}) {
    CHECK(get(number) == number * 10);
  }
  CHECK(get.made == std::vector<std::uint64_t>{1, 2, 3, 2, 0});
}

TEST_CASE("a window that is held stays when another one takes its place", "[text]") {
  cache kept{1};
  const auto first = kept.get(1, [] { return std::uint64_t{10}; });
  const auto second = kept.get(2, [] { return std::uint64_t{20}; });
  CHECK(*first == 10);
  CHECK(*second == 20);
}

TEST_CASE("a window that could not be made is made by the next call", "[text]") {
  cache kept{4};
  CHECK_THROWS_AS(kept.get(1, []() -> std::uint64_t { throw std::runtime_error("no"); }),
                  std::runtime_error);
  CHECK(*kept.get(1, [] { return std::uint64_t{10}; }) == 10);
}

TEST_CASE("a window is made once, however many threads ask for it", "[text]") {
  cache kept{3};
  std::atomic<int> made{0};
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (std::uint64_t i = 0; i < 300; ++i) {
          const std::uint64_t number = i / 100;
          const auto value = kept.get(number, [&] {
            ++made;
            return number + 1;
          });
          if (*value != number + 1) ++wrong;
        }
      });
    }
  }
  CHECK(made == 3);
  CHECK(wrong == 0);
}
