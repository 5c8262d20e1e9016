// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock_ext/ranks/world.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

TEST_CASE("a rank reads the bytes of its own share, and all ranks together each sample once",
          "[ranks][promise:exact-8]") {
  constexpr std::size_t samples = 960;
  constexpr std::size_t sample_bytes = 8 * sizeof(float) + sizeof(std::uint64_t);
  for (const int size : {1, 2, 4, 8}) {
    std::vector<int> got(samples);
    for (int rank = 0; rank < size; ++rank) {
      CAPTURE(rank, size);
      const ps::world w{.rank = rank, .size = size};
      const numbered data{.count = samples};
      const ps::sharded order{ps::shuffled{.seed = 5},
                              {.rank = w.rank, .world = w.size, .global_batch = 48}};
      ps::loader loader{data, order, {.batch_size = order.batch_size(), .workers = 2}};
      std::size_t batches = 0;
      for (auto& batch : loader.epoch(1)) {
        for (const std::uint64_t label : labels_of(batch)) ++got[label];
        ++batches;
      }
      CHECK(batches == samples / 48);
      // Checks the number of reads, which may exceed the batches of the loop.
      CHECK(data.state->reads * sample_bytes ==
            samples * sample_bytes / static_cast<std::size_t>(size));
    }
    CHECK(got == std::vector<int>(samples, 1));
  }
}
