// SPDX-License-Identifier: BSL-1.0
#include "ranks/same_parameters.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "support/catch.hpp"

namespace {

/// Rank 0 of two, of which the other has these parameters.
struct first_of_two_ranks {
  std::vector<float> theirs;
  static int rank() { return 0; }
  static int size() { return 2; }
  static void all_reduce(std::span<float>) {}
  static void barrier() {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) const {
    const auto others = std::as_bytes(std::span{theirs});
    std::copy(others.begin(), others.end(), std::copy(mine.begin(), mine.end(), all.begin()));
  }
};

}  // namespace

TEST_CASE("ranks have the same parameters if they have the same bits", "[mlp]") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> mine{1.0F, nan, 0.0F};
  first_of_two_ranks ranks{mine};
  CHECK_NOTHROW(mlp::require_same_parameters(mine, ranks));
  ranks.theirs = {1.0F, nan, -0.0F};
  CHECK_THROWS_WITH(mlp::require_same_parameters(mine, ranks),
                    "rank 1 has other parameters than rank 0");
}
