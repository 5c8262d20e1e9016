// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/lookahead_thread.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock_ext/samplers/prioritized.hpp>

#include "support/catch.hpp"
#include "support/planned.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;
using hinted_samples = std::vector<std::uint64_t>;

namespace {

constexpr std::uint64_t unbounded = (std::numeric_limits<std::uint64_t>::max)();

// A sampler that throws when it computes the order of epoch 1.
struct fails_once {
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const { return n; }
  [[nodiscard]] ps::detail::identity_order order(std::uint64_t, std::uint64_t epoch) const {
    if (epoch == 1) throw std::runtime_error("no order");
    return {};
  }
};

// Runs a `lookahead_thread` on the calling thread, for ten samples in batches of four.
template <class Sampler = ps::sequential>
struct telling {
  explicit telling(std::uint64_t read_ahead, ps::last_batch last = ps::last_batch::keep,
                   std::uint64_t keeps = unbounded, std::uint64_t plans = 0)
      : batches(ps::detail::epoch_plan{10, 4, last}) {
    data.keeps = keeps;
    data.plans = plans;
    options.lookahead_bytes = read_ahead;
    options.workers = 0;
    lookahead_thread.emplace(data, 10, sampler, batches, layout, options, observer);
  }

  // Opens the next batch, as a worker would.
  std::uint64_t open() {
    const auto next = batches.next().value();
    REQUIRE(batches.bind(next));
    lookahead_thread->record_opened(next.number);
    return next.number;
  }
  // Returns the samples hinted since the last call.
  hinted_samples reported() {
    const auto all = data.seen->reported();
    hinted_samples more{all.begin() + static_cast<std::ptrdiff_t>(seen), all.end()};
    seen = all.size();
    return more;
  }

  planned data{10};
  Sampler sampler;
  ps::detail::schedule batches;
  ps::batch_layout<planned::record_type> layout{{}, 4};
  ps::loader_options options;
  ps::detail::loader_observer observer{0, 4, 8};
  std::optional<ps::detail::lookahead_thread<planned, Sampler>> lookahead_thread;
  std::size_t seen = 0;
};

}  // namespace

TEST_CASE("hints come in order, across epochs, and stay inside the range",
          "[load][promise:bounded-12]") {
  telling<> of{unbounded};
  of.batches.begin({0, 1}, 2);
  of.open();  // batch 1 of epoch 0; a hint for it would be too late
  CHECK(of.reported() == hinted_samples{8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  of.open();
  CHECK(of.reported().empty());
  const auto seen = of.observer.snapshot().ahead;
  CHECK(seen.max_bytes == unbounded);
  CHECK(seen.samples == 12);
  CHECK(seen.bytes == 120);
  CHECK(seen.bytes_now == 120);
  CHECK(seen.late == 0);
}

TEST_CASE("padding samples are announced with their batch", "[load]") {
  telling<> of{unbounded, ps::last_batch::pad};
  of.batches.begin({0, 0}, 1);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8, 9, 0, 1});
}

TEST_CASE("hints stay within the limit, and reads make room", "[load][promise:bounded-12]") {
  telling<> of{59};
  of.batches.begin({0, 0}, 2);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8});
  of.open();  // opens batch 1, which includes four hinted samples
  CHECK(of.reported().empty());
  of.lookahead_thread->record_read(1);
  of.open();
  // The hints concern batch 3, because batch 2 is already open.
  CHECK(of.reported() == hinted_samples{0, 1, 2, 3});
  CHECK(of.observer.snapshot().ahead.late == 1);
  CHECK(of.observer.snapshot().ahead.bytes_now == 50);
}

TEST_CASE("the capacity of a dataset limits its hints", "[load][promise:bounded-12]") {
  telling<> of{59, ps::last_batch::keep, 20};
  of.batches.begin({0, 0}, 2);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 5});
  CHECK(of.observer.snapshot().ahead.max_bytes == 20);
  telling<> none{59, ps::last_batch::keep, 0};
  CHECK_FALSE(none.lookahead_thread->is_on());
  telling<> off{0, ps::last_batch::keep, 20};
  CHECK_FALSE(off.lookahead_thread->is_on());
  CHECK(off.observer.snapshot().ahead.source_bytes == 20);
}

TEST_CASE("a sample above the limit is not announced, and later samples are",
          "[load][promise:bounded-12]") {
  telling<> of{30};
  // Sample 6 has no known size, so it counts 8 bytes, its size in a batch.
  of.data.seen->sizes = {{5, 31}, {6, 0}};
  of.batches.begin({0, 0}, 1);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 6, 7});
  CHECK(of.observer.snapshot().ahead.bytes == 28);
}

TEST_CASE("samples of unknown bytes count as the mean of those that were read",
          "[load][promise:bounded-12]") {
  telling<> of{40};
  for (std::uint64_t i = 0; i < 10; ++i) of.data.seen->sizes[i] = 0;
  of.batches.begin({0, 0}, 3);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8});  // 8 bytes per sample, the size in a batch
  of.lookahead_thread->record_values(4, 50);              // 12 bytes per sample from now
  of.open();
  of.lookahead_thread->record_read(1);
  of.open();
  CHECK(of.reported() == hinted_samples{0, 1});
  CHECK(of.observer.snapshot().ahead.bytes == 40 + 24);
  of.lookahead_thread->record_values(100, 0);  // a sample counts as at least 1 byte
  of.lookahead_thread->record_read(2);
  of.lookahead_thread->record_read(3);
  of.open();
  CHECK(of.reported().size() == 16);
  CHECK(of.observer.snapshot().ahead.bytes == 40 + 24 + 16);
}

TEST_CASE("hints of an ended range take no room from the next range",
          "[load][promise:bounded-12]") {
  telling<> of{50};
  of.batches.begin({0, 0}, 1);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8});
  of.batches.cancel();
  of.batches.begin({3, 0}, 4);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8});
}

TEST_CASE("a second range in the same epoch gets hints like the first",
          "[load][promise:bounded-12]") {
  telling<> of{50};
  telling<fails_once> failing{unbounded};
  of.batches.begin({0, 0}, 1);
  of.open();
  failing.batches.begin({1, 0}, 2);
  failing.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8});
  CHECK(failing.observer.snapshot().ahead.failed == 1);
  of.batches.cancel();
  of.batches.begin({0, 0}, 1);
  of.open();
  failing.batches.cancel();
  failing.batches.begin({1, 0}, 2);
  failing.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8});
  CHECK(failing.observer.snapshot().ahead.failed == 2);  // the thread requested the order twice
}

TEST_CASE("a dataset that throws on a hint still receives later hints", "[load][fault:hangs-5]") {
  telling<> of{unbounded};
  of.data.seen->throws = true;
  of.batches.begin({0, 0}, 2);
  of.open();
  CHECK(of.reported() == hinted_samples{4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(of.observer.snapshot().ahead.failed == 5);  // number of failed calls
}

TEST_CASE("announced plans have a separate limit and begin with the opened batches",
          "[load][promise:bounded-11]") {
  telling<> of{unbounded, ps::last_batch::keep, 20, 120};
  of.batches.begin({0, 1}, 3);
  of.open();
  CHECK(of.reported() == hinted_samples{8, 9});
  // The plan consists of the four samples of the open batch, which do not count against the limit,
  // and twelve more samples.
  CHECK(of.data.seen->foreseen == hinted_samples{4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  of.open();
  of.lookahead_thread->record_read(0);
  of.lookahead_thread->record_read(1);
  of.open();
  CHECK(of.data.seen->foreseen.size() == 18);
  CHECK(of.data.seen->foreseen.back() == 1);
  CHECK(of.observer.snapshot().ahead.max_bytes == 20);
  // A new range cancels the previous plan, but not the bytes of samples that are currently being
  // read.
  of.batches.cancel();
  of.batches.begin({0, 2}, 2);
  of.open();
  CHECK(of.data.seen->foreseen == hinted_samples{8, 9, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(of.observer.snapshot().ahead.failed == 0);
}

TEST_CASE("without workers a batch waits for a part of the announcements",
          "[load][promise:bounded-11]") {
  telling<> of{unbounded, ps::last_batch::keep, 20, unbounded};
  of.batches.begin({0, 0}, 100);
  of.open();
  const auto& foreseen = of.data.seen->foreseen;
  CHECK(foreseen.size() >= 64);
  CHECK(foreseen.size() <= 256);  // even though the dataset accepts 1000 samples
  const auto first = foreseen.size();
  of.open();
  CHECK(foreseen.size() > first);
  for (std::size_t i = 0; i < foreseen.size(); ++i) REQUIRE(foreseen[i] == i % 10);
}

TEST_CASE("a dataset that accepts only plans receives plans and no hints",
          "[load][promise:bounded-11]") {
  telling<fails_once> of{unbounded, ps::last_batch::keep, 0, 1000};
  of.batches.begin({0, 2}, 3);
  of.open();
  CHECK(of.data.seen->foreseen == hinted_samples{8, 9});  // epoch 1 has no order
  for (int batch = 0; batch < 3; ++batch) of.open();
  CHECK(of.data.seen->foreseen.size() == 12);
  CHECK(of.reported().empty());
  const auto seen = of.observer.snapshot().ahead;
  CHECK(seen.max_bytes == 0);
  CHECK(seen.samples == 0);
  CHECK(seen.late == 0);
  CHECK(seen.failed == 1);
}

TEST_CASE("an epoch whose order fails is not announced, and the next epoch is",
          "[load][fault:hangs-5]") {
  telling<fails_once> of{unbounded};
  of.batches.begin({0, 2}, 3);
  of.open();
  CHECK(of.reported().empty());
  for (int batch = 0; batch < 3; ++batch) of.open();  // opens batches of epoch 1
  CHECK(of.reported() == hinted_samples{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(of.observer.snapshot().ahead.failed == 1);
}

TEST_CASE("a loader rejects hints for prioritized and sends none by itself",
          "[load][fault:hangs-5][promise:exact-25]") {
  const planned data{80};
  const std::vector<float> weights(80, 1.0F);
  const ps::prioritized order{weights, {.seed = 4, .batch_size = 8, .lag = 6}};
  const ps::sharded share{order, {.rank = 1, .world = 2, .global_batch = 8}};
  const auto rejection_of = [&](const auto& sampler, std::size_t batch_size) {
    return test::rejection_of([&] {
             ps::loader{
                 data, sampler, {.batch_size = batch_size, .workers = 1, .lookahead_bytes = 900}};
           })
        .text;
  };
  const std::string expected =
      "lookahead_bytes: must be 0, but is 900: hints would draw steps of the sampler before their "
      "weights are set";
  CHECK(rejection_of(order, 8) == expected);
  CHECK(rejection_of(share, 4) == expected);
  ps::loader loader{
      data,
      order,
      {.batch_size = 8, .workers = 1, .prefetch = 5, .instrumentation = {.indices = true}}};
  const std::vector<float> set(8, 2.0F);
  for (const auto& batch : loader.epochs(0, 2)) {
    REQUIRE_NOTHROW(order.set({batch.epoch(), batch.number()}, batch.indices(), set));
  }
  CHECK(data.seen->reported().empty());
}
