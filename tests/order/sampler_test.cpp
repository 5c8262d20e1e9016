// SPDX-License-Identifier: BSL-1.0
#include <penstock/order/sampler.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "order/epoch_of.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

// A user-defined sampler that draws `count` samples per epoch with replacement.
struct with_replacement {
  std::uint64_t count;
  std::uint64_t seed = 0;

  struct order_type {
    std::uint64_t n;
    ps::random_key key;

    void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
      for (auto& index : out) {
        ps::sample_generator gen{key, first++};
        index = ps::uniform(gen, std::uint64_t{0}, n - 1);
      }
    }
  };

  std::uint64_t size(std::uint64_t) const { return count; }
  order_type order(std::uint64_t n, std::uint64_t epoch) const {
    return {n, {.seed = seed, .epoch = epoch}};
  }
};

struct order_that_may_throw {
  void fill(std::uint64_t, std::span<std::uint64_t>) const {}
};
struct order_that_changes {
  void fill(std::uint64_t, std::span<std::uint64_t>) noexcept {}
};
struct order_that_owns {
  indices list;
  void fill(std::uint64_t, std::span<std::uint64_t>) const noexcept {}
};
template <class Order>
struct sampler_of {
  std::uint64_t size(std::uint64_t n) const { return n; }
  Order order(std::uint64_t, std::uint64_t) const { return {}; }
};
struct sampler_without_size {
  ps::detail::identity_order order(std::uint64_t, std::uint64_t) const { return {}; }
};
struct sampler_with_state {
  std::uint64_t size(std::uint64_t n) const { return n; }
  ps::detail::identity_order order(std::uint64_t, std::uint64_t) { return {}; }
};

}  // namespace

TEST_CASE("sequential gives the order of the dataset in every epoch", "[order]") {
  const ps::sequential sampler;
  CHECK(sampler.size(5) == 5);
  CHECK(epoch_of(sampler, 5, 0) == indices{0, 1, 2, 3, 4});
  CHECK(epoch_of(sampler, 5, 7) == indices{0, 1, 2, 3, 4});
  indices run(3);
  sampler.order(100, 0).fill(40, run);
  CHECK(run == indices{40, 41, 42});
}

TEST_CASE("shuffled gives every sample once, in another order for each seed and epoch", "[order]") {
  const ps::shuffled sampler{.seed = 1};
  CHECK(sampler.size(1000) == 1000);
  const indices first = epoch_of(sampler, 1000, 0);
  CHECK(first == epoch_of(ps::shuffled{.seed = 1}, 1000, 0));
  CHECK(first != epoch_of(sampler, 1000, 1));
  CHECK(first != epoch_of(ps::shuffled{.seed = 2}, 1000, 0));
  CHECK(first != epoch_of(ps::sequential{}, 1000, 0));
  indices sorted = first;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == epoch_of(ps::sequential{}, 1000, 0));
}

TEST_CASE("shuffled uses the permutation of its seed and the epoch", "[order]") {
  const ps::detail::permutation order{300, 8, 3};
  const indices epoch = epoch_of(ps::shuffled{.seed = 8}, 300, 3);
  for (std::uint64_t k = 0; k < 300; ++k) REQUIRE(epoch[static_cast<std::size_t>(k)] == order(k));
}

TEST_CASE("an order can be resumed anywhere, and its parts together are the epoch", "[order]") {
  const ps::shuffled sampler{.seed = 4};
  const indices epoch = epoch_of(sampler, 1000, 2);
  const auto order = sampler.order(1000, 2);
  indices pieces(1000);
  for (std::size_t first = 700; first < 1000; first += 100) {
    order.fill(first, std::span{pieces}.subspan(first, 100));
  }
  for (std::size_t first = 0; first < 700; first += 7) {
    order.fill(first, std::span{pieces}.subspan(first, 7));
  }
  CHECK(pieces == epoch);
}

TEST_CASE("shuffled rejects an empty dataset", "[order]") {
  CHECK_THROWS_AS(ps::shuffled{}.order(0, 0), std::invalid_argument);
}

TEST_CASE("a user's own sampler needs only two functions", "[order]") {
  STATIC_REQUIRE(ps::sampler<with_replacement>);
  const with_replacement sampler{.count = 500, .seed = 3};
  const indices epoch = epoch_of(sampler, 100, 0);
  CHECK(epoch.size() == 500);
  CHECK(*std::max_element(epoch.begin(), epoch.end()) == 99);
  CHECK(epoch != epoch_of(sampler, 100, 1));
}

TEST_CASE("the concepts reject types that are not an order or a sampler", "[order]") {
  STATIC_REQUIRE(ps::epoch_order<ps::detail::identity_order>);
  STATIC_REQUIRE(ps::epoch_order<ps::detail::permutation>);
  STATIC_REQUIRE_FALSE(ps::epoch_order<order_that_may_throw>);
  STATIC_REQUIRE_FALSE(ps::epoch_order<order_that_changes>);
  STATIC_REQUIRE_FALSE(ps::epoch_order<order_that_owns>);
  STATIC_REQUIRE(ps::sampler<sampler_of<ps::detail::identity_order>>);
  STATIC_REQUIRE_FALSE(ps::sampler<sampler_of<order_that_may_throw>>);
  STATIC_REQUIRE_FALSE(ps::sampler<sampler_without_size>);
  STATIC_REQUIRE_FALSE(ps::sampler<sampler_with_state>);
  STATIC_REQUIRE(std::is_same_v<ps::detail::order_of<ps::shuffled>, ps::detail::permutation>);
  STATIC_REQUIRE(std::is_aggregate_v<ps::shuffled>);
}
