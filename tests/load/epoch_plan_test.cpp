// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/support/plan.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;

namespace {

struct plan_case {
  std::uint64_t samples;
  std::size_t batch_size;
  ps::last_batch last;
  std::uint64_t batches;
  std::size_t last_size;
  std::size_t last_valid;
};

constexpr auto keep = ps::last_batch::keep;
constexpr auto drop = ps::last_batch::drop;
constexpr auto pad = ps::last_batch::pad;

constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();

}  // namespace

TEST_CASE("an epoch is divided into batches as the option specifies", "[load]") {
  constexpr plan_case cases[] = {
      // A multiple of the batch size, so the option makes no difference.
      {12, 4, keep, 3, 4, 4},
      {12, 4, drop, 3, 4, 4},
      {12, 4, pad, 3, 4, 4},
      // One sample more or less than a multiple of the batch size.
      {13, 4, keep, 4, 1, 1},
      {13, 4, drop, 3, 4, 4},
      {13, 4, pad, 4, 4, 1},
      {11, 4, keep, 3, 3, 3},
      {11, 4, drop, 2, 4, 4},
      {11, 4, pad, 3, 4, 3},
      // A batch larger than the epoch, then batches of size 1.
      {3, 4, keep, 1, 3, 3},
      {3, 4, pad, 1, 4, 3},
      {3, 1, keep, 3, 1, 1},
      {3, 1, drop, 3, 1, 1},
      {1, 1, drop, 1, 1, 1},
      {1, 1000, pad, 1, 1000, 1},
      // The size of MNIST.
      {60'000, 64, keep, 938, 32, 32},
      {60'000, 64, drop, 937, 64, 64},
      // The plan allocates nothing, so only the integer range limits the epoch size.
      {std::uint64_t{1} << 63, 1000, keep, 9'223'372'036'854'776, 808, 808},
      {max, 2, keep, (std::uint64_t{1} << 63), 1, 1},
      {max, 1, keep, max, 1, 1},
  };
  for (const auto& one : cases) {
    INFO(one.samples << " samples by " << one.batch_size);
    const ps::detail::epoch_plan plan{one.samples, one.batch_size, one.last};
    CHECK(plan.samples() == one.samples);
    CHECK(plan.batch_size() == one.batch_size);
    CHECK(plan.batches() == one.batches);
    const auto last = plan.at({5, one.batches - 1});
    CHECK(last.epoch == 5);
    CHECK(last.batch == one.batches - 1);
    CHECK(last.size == one.last_size);
    CHECK(last.valid_size == one.last_valid);
    if (one.batches > 1) {
      CHECK(plan.at({0, 0}).size == one.batch_size);
      CHECK(plan.at({0, one.batches - 2}).valid_size == one.batch_size);
    }
  }
}

TEST_CASE("the batches of an epoch contain each sample once", "[load]") {
  for (std::uint64_t samples = 1; samples < 40; ++samples) {
    for (std::size_t size = 1; size < 12; ++size) {
      const ps::detail::epoch_plan kept{samples, size, keep};
      const ps::detail::epoch_plan padded{samples, size, pad};
      std::uint64_t all = 0;
      std::uint64_t valid = 0;
      for (std::uint64_t batch = 0; batch < kept.batches(); ++batch) {
        all += kept.at({0, batch}).size;
        valid += padded.at({0, batch}).valid_size;
        REQUIRE(padded.at({0, batch}).size == size);
      }
      REQUIRE(all == samples);
      REQUIRE(valid == samples);
      REQUIRE(padded.batches() == kept.batches());
    }
  }
}

TEST_CASE("an epoch without samples, or without batches, is rejected", "[load]") {
  CHECK_THROWS_AS((ps::detail::epoch_plan{0, 4, keep}), ps::empty_dataset);
  CHECK_THROWS_AS((ps::detail::epoch_plan{0, 4, drop}), ps::empty_dataset);
  CHECK_THROWS_MATCHES(
      (ps::detail::epoch_plan{3, 4, drop}), ps::option_error,
      Catch::Matchers::Message(
          "batch_size: 4 is above the 3 samples of an epoch, and last_batch::drop leaves no "
          "batch: lower batch_size, or choose last_batch::keep"));
}

TEST_CASE("batches are counted from any batch to the start of an epoch", "[load]") {
  const ps::detail::epoch_plan plan{11, 4, keep};  // three batches per epoch
  CHECK(plan.count({0, 0}, 1) == 3);
  CHECK(plan.count({0, 0}, 5) == 15);
  CHECK(plan.count({3, 0}, 5) == 6);
  CHECK(plan.count({3, 2}, 5) == 4);
  CHECK(plan.count({4, 2}, 5) == 1);
  CHECK(plan.count({5, 0}, 5) == 0);
  CHECK(plan.count({0, 0}, 0) == 0);
  CHECK(plan.count({0, 0}, std::uint64_t{1} << 32) == std::uint64_t{3} << 32);
}

TEST_CASE("the end of an epoch is the start of the next epoch", "[load]") {
  const ps::detail::epoch_plan plan{11, 4, keep};  // three batches per epoch
  using at = ps::batch_position;
  CHECK(plan.normal({5, 3}) == at{6, 0});
  CHECK(plan.normal({5, 2}) == at{5, 2});
  CHECK(plan.normal({5, 4}) == at{5, 4});  // not a valid position: `count` rejects it
  CHECK(plan.normal({max, 3}) == at{max, 3});
}

TEST_CASE("a position without a batch or beyond the end is rejected", "[load][promise:exact-7]") {
  const ps::detail::epoch_plan plan{11, 4, keep};
  const auto problem = [&](const ps::batch_position& from, std::uint64_t last) {
    return test::rejection_of([&] { (void)plan.count(from, last); }).text;
  };
  CHECK(problem({0, 3}, 1) == "epochs: there is no batch 3: an epoch has 3, counted from 0");
  CHECK(problem({0, max}, 1) ==
        "epochs: there is no batch 18446744073709551615: an epoch has 3, counted from 0");
  CHECK(problem({2, 0}, 1) ==
        "epochs: cannot start at batch 0 of epoch 2: the range ends before epoch 1");
  CHECK(problem({1, 1}, 1) ==
        "epochs: cannot start at batch 1 of epoch 1: the range ends before epoch 1");
  CHECK(problem({0, 0}, (std::uint64_t{1} << 32) + 1) ==
        "epochs: the end, epoch 4294967297, is above 2^32");
  CHECK(problem({0, 2}, 1) == "none");
}

TEST_CASE("more batches than 64 bits can count are rejected", "[load]") {
  const ps::detail::epoch_plan plan{max, 1, keep};
  CHECK(plan.count({0, 0}, 1) == max);
  CHECK(plan.count({0, max - 1}, 1) == 1);
  CHECK_THROWS_MATCHES(
      plan.count({0, 0}, 2), ps::option_error,
      Catch::Matchers::Message("epochs: 2 epochs of 18446744073709551615 batches exceed 64 bits"));
}

TEST_CASE("positions are compared by epoch and batch", "[load]") {
  CHECK(ps::batch_position{1, 2} == ps::batch_position{1, 2});
  CHECK_FALSE(ps::batch_position{1, 2} == ps::batch_position{2, 1});
}
