// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/packed_documents.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include <penstock/order/random.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using numbers = std::vector<std::uint32_t>;

// Packs lengths with a naive scan over all rows for each length.
numbers packed_slowly(const numbers& lengths, std::size_t capacity, std::size_t max) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  struct row {
    std::size_t room, items, since;
  };
  std::vector<row> rows;
  numbers row_of(lengths.size());
  std::size_t step = 0;
  for (const std::size_t item : order) {
    std::size_t best = rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].room < lengths[item] || rows[i].items == max) continue;
      const bool is_better = best == rows.size() || rows[i].room < rows[best].room ||
                             (rows[i].room == rows[best].room && rows[i].since > rows[best].since);
      if (is_better) best = i;
    }
    if (best == rows.size()) rows.push_back({capacity, 0, 0});
    rows[best] = {rows[best].room - lengths[item], rows[best].items + 1, ++step};
    row_of[item] = static_cast<std::uint32_t>(best);
  }
  return row_of;
}

}  // namespace

TEST_CASE("the next number of a set is found across any gap", "[text]") {
  for (const std::size_t bound : {1U, 63U, 64U, 65U, 4096U, 5000U, 300'000U}) {
    CAPTURE(bound);
    ps::detail::number_set numbers{bound};
    std::set<std::size_t> same;
    ps::sample_generator draw{{.seed = bound}, 0};
    for (int i = 0; i < 3000; ++i) {
      const auto number = ps::uniform(draw, std::size_t{0}, bound - 1);
      if (ps::uniform(draw, 0, 2) == 0) {
        numbers.insert(number);
        same.insert(number);
      } else if (const auto first = same.lower_bound(number); first != same.end()) {
        numbers.erase(*first);
        same.erase(first);
      }
      const auto from = ps::uniform(draw, std::size_t{0}, bound - 1);
      const auto next = same.lower_bound(from);
      REQUIRE(numbers.at_least(from) == (next == same.end() ? bound : *next));
    }
  }
}

TEST_CASE("lengths go into the rows that best fit puts them in", "[text][promise:exact-13]") {
  numbers row_of;
  ps::sample_generator draw{{.seed = 3}, 0};
  for (const std::size_t capacity : {1U, 2U, 10U, 100U, 5000U}) {
    for (const std::size_t max : {std::size_t{1}, std::size_t{3}, capacity}) {
      CAPTURE(capacity, max);
      ps::detail::best_fit fit{capacity, max};
      for (std::size_t count = 0; count < 200;
           count += 13) {  // rows of one pass do not exist in the next pass
        numbers lengths;
        for (std::size_t i = 0; i < count; ++i) {
          const auto longest = i % 3 == 0 ? capacity : (capacity + 4) / 5;
          lengths.push_back(static_cast<std::uint32_t>(ps::uniform(draw, std::size_t{1}, longest)));
        }
        const std::uint32_t rows = fit.pack(lengths, row_of);
        REQUIRE(row_of == packed_slowly(lengths, capacity, max));
        REQUIRE(rows == (count == 0 ? 0 : 1 + *std::max_element(row_of.begin(), row_of.end())));
      }
    }
  }
}
