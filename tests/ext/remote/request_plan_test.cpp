// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/detail/http_call.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;

namespace {

struct place_of_range {
  std::string object;
  std::uint64_t offset;
  std::size_t size;
};

std::string path_of_planned(std::string_view object) { return "http://h/" + std::string{object}; }

}  // namespace

TEST_CASE("plans deliver each byte to each range that contains it, for any pieces",
          "[remote][promise:honest-10]") {
  const std::string content = [] {
    std::string text;
    for (int i = 0; i < 600; ++i) text += static_cast<char>('!' + i * 31 % 90);
    return text;
  }();
  std::uint32_t state = 99;
  const auto below = [&](std::uint32_t limit) {
    state = state * 1664525U + 1013904223U;
    return (state >> 8U) % limit;
  };
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    std::vector<place_of_range> places;
    const std::uint32_t count = below(8);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t begin = below(500);
      places.push_back({std::string(1, static_cast<char>('a' + below(3))), begin, below(100)});
    }
    std::vector<std::string> outs;
    for (const auto& place : places) outs.emplace_back(place.size, '\0');
    std::vector<ps::byte_range> ranges;
    for (std::size_t i = 0; i < places.size(); ++i) {
      ranges.push_back(
          {places[i].object, places[i].offset, std::as_writable_bytes(std::span{outs[i]})});
    }
    const std::uint64_t gap = below(40);
    const std::uint64_t largest = 1 + below(150);
    const auto plan = ps::detail::plan_requests(ranges, gap, largest, path_of_planned);
    for (const auto& request : plan.requests) {
      REQUIRE(request.begin < request.end);
      REQUIRE(request.end - request.begin <= largest);
      // Gives each object different bytes.
      std::string sent = content.substr(request.begin, request.end - request.begin);
      for (char& c : sent) c = static_cast<char>(c + plan.objects[request.object][0] - 'a');
      for (std::size_t done = 0; done < sent.size();) {
        const std::size_t piece = (std::min)(sent.size() - done, std::size_t{1} + below(30));
        plan.deliver(request, request.begin + done,
                     std::as_bytes(std::span{sent}.subspan(done, piece)));
        done += piece;
      }
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      std::string wanted = content.substr(places[i].offset, places[i].size);
      for (char& c : wanted) c = static_cast<char>(c + places[i].object[0] - 'a');
      REQUIRE(outs[i] == wanted);
    }
  }
}

TEST_CASE("ranges are merged up to a gap and a length", "[remote][promise:honest-10]") {
  std::string out(1000, '?');
  const auto room = std::as_writable_bytes(std::span{out});
  const auto count_of = [&](std::vector<std::pair<std::uint64_t, std::size_t>> places,
                            std::uint64_t gap, std::uint64_t largest) {
    std::vector<ps::byte_range> ranges;
    for (const auto& [offset, size] : places) ranges.push_back({"x", offset, room.first(size)});
    return ps::detail::plan_requests(ranges, gap, largest, path_of_planned).requests.size();
  };
  CHECK(count_of({}, 10, 100) == 0);
  CHECK(count_of({{5, 0}}, 10, 100) == 0);
  CHECK(count_of({{0, 10}, {20, 10}}, 10, 100) == 1);
  CHECK(count_of({{0, 10}, {21, 10}}, 10, 100) == 2);
  CHECK(count_of({{20, 10}, {0, 10}}, 10, 100) == 1);
  CHECK(count_of({{0, 10}, {10, 10}}, 0, 20) == 1);
  CHECK(count_of({{0, 10}, {10, 10}}, 0, 19) == 2);
  CHECK(count_of({{0, 10}, {0, 10}, {3, 2}}, 0, 10) == 1);
  CHECK(count_of({{7, 301}}, 0, 100) == 4);
  constexpr std::uint64_t max = (std::numeric_limits<std::int64_t>::max)();
  CHECK(count_of({{max - 10, 10}}, ~std::uint64_t{0}, ~std::uint64_t{0}) == 1);
  const auto beyond =
      test::error_of<ps::file_truncated>([&] { (void)count_of({{max - 10, 11}}, 0, 100); });
  CHECK(beyond.path() == "http://h/x");
  CHECK(beyond.offset() == max - 10);
  CHECK_THROWS_AS(count_of({{~std::uint64_t{0}, 1}}, 0, 100), ps::file_truncated);
}
