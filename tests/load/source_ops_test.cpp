// SPDX-License-Identifier: BSL-1.0
// Tests the calls of user code between two epochs: the loader requests the order of the next epoch
// and the size of the dataset. User code may throw, be slow, or return a different result than
// before.
#include <penstock/load/detail/loader_core.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/faults/error_policy.hpp>
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/hanging.hpp"
#include "support/numbered.hpp"
#include "support/threads.hpp"

namespace ps = penstock;

namespace {

/// A sequential sampler that first calls `before(epoch)`.
struct reported {
  std::function<void(std::uint64_t)> before;
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const { return n; }
  [[nodiscard]] ps::detail::identity_order order(std::uint64_t, std::uint64_t epoch) const {
    before(epoch);
    return {};
  }
};

/// A dataset whose size is the result of calling `now`.
struct sized {
  using record_type = ps::record<ps::field<"label", std::uint64_t>>;
  std::function<std::uint64_t()> now;
  [[nodiscard]] std::uint64_t size() const { return now(); }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"label">(out) = index;
  }
};

template <class Range>
std::uint64_t count_of(Range&& range, std::uint64_t& batches) {
  for (auto& batch : range) batches += batch.size() == 10;
  return batches;
}
template <class Range>
std::uint64_t count_of(Range&& range) {
  std::uint64_t batches = 0;
  return count_of(range, batches);
}

/// A gate that blocks callers of `pass` until `open` is called.
struct turnstile {
  ps::detail::waitable_counter arrived;
  ps::detail::waitable_counter gate{1};  // threads wait while 1
  void pass() {
    arrived.advance();
    gate.wait([](std::uint32_t closed) { return closed == 0; });
  }
  void wait_until_held() {
    arrived.wait([](std::uint32_t count) { return count > 0; });
  }
  void open() { gate.store(0); }
};

// A stall threshold that only hanging reads exceed, even on a busy machine.
constexpr std::chrono::milliseconds soon{300};

}  // namespace

TEST_CASE("a sampler's exception comes at its batch's turn, and later ranges are complete",
          "[load][fault:samples-2]") {
  const std::size_t workers = GENERATE(0U, 1U, 3U);
  std::atomic<bool> is_out_of_memory{true};
  ps::loader loader{numbered{100},
                    reported{[&](std::uint64_t epoch) {
                      if (epoch == 1 && is_out_of_memory.exchange(false)) throw std::bad_alloc{};
                    }},
                    {.batch_size = 10, .workers = workers, .prefetch = 4}};
  std::uint64_t batches = 0;
  CHECK_THROWS_AS(count_of(loader.epochs(0, 3), batches), std::bad_alloc);
  CHECK(batches == 10);  // all batches of epoch 0 were delivered
  REQUIRE(loader.last_failure());
  CHECK(loader.last_failure()->str() == "stage order, epoch 1, batch 0");
  CHECK(count_of(loader.epochs(0, 3)) == 30);
}

TEST_CASE("an exception of size() comes at its batch's turn, and later ranges are complete",
          "[load][fault:samples-2]") {
  const std::size_t workers = GENERATE(0U, 1U, 3U);
  std::atomic<int> calls{0};
  ps::loader loader{sized{[&]() -> std::uint64_t {
                      if (++calls == 3) throw std::runtime_error("the index is gone");
                      return 100;
                    }},
                    ps::sequential{},
                    {.batch_size = 10, .workers = workers, .prefetch = 4}};
  calls = 1;  // the constructor has called `size` once, and each epoch calls it again
  std::uint64_t batches = 0;
  CHECK_THROWS_WITH(count_of(loader.epochs(0, 3), batches), "the index is gone");
  CHECK(batches == 10);
  CHECK(count_of(loader.epochs(0, 3)) == 30);
}

TEST_CASE("a dataset whose size has changed is rejected at the start of the epoch",
          "[load][fault:samples-2]") {
  const std::size_t workers = GENERATE(0U, 2U);
  const std::uint64_t other = GENERATE(50U, 1000U);
  std::atomic<std::uint64_t> samples{100};
  ps::loader loader{sized{[&] { return samples.load(); }},
                    ps::sequential{},
                    {.batch_size = 10, .workers = workers}};
  CHECK(count_of(loader.epoch(0)) == 10);
  samples = other;
  const auto error = test::error_of<ps::dataset_changed>([&] { count_of(loader.epoch(1)); });
  CHECK(error.planned() == 100);
  CHECK(error.found() == other);
  CHECK_THAT(error.what(), Catch::Matchers::Contains("had 100 samples when its loader was made"));
  CHECK(loader.state().dataset == 100);
  samples = 100;
  CHECK(count_of(loader.epoch(1)) == 10);
}

TEST_CASE("a dataset whose extents have changed is rejected at the start of the epoch",
          "[load][fault:samples-2]") {
  using row = ps::record<ps::field<"x", float, ps::dyn>>;
  struct rows {
    using record_type = row;
    std::shared_ptr<std::atomic<std::size_t>> width;
    [[nodiscard]] static std::uint64_t size() { return 100; }
    [[nodiscard]] ps::record_extents<row> extents() const { return {{width->load()}}; }
    void read(std::uint64_t, ps::sample<row> out) const {
      for (std::size_t i = 0; i < *width; ++i) ps::get<"x">(out).data()[i] = 1;
    }
  };
  const auto width = std::make_shared<std::atomic<std::size_t>>(4);
  ps::loader loader{rows{width}, ps::sequential{}, {.batch_size = 10, .workers = GENERATE(0U, 2U)}};
  CHECK(count_of(loader.epoch(0)) == 10);
  *width = 4096;
  const auto error = test::error_of<ps::dataset_changed>([&] { count_of(loader.epoch(1)); });
  CHECK(error.planned() == 100);
  CHECK(error.found() == 100);
  CHECK_THAT(error.what(), Catch::Matchers::Contains("(x: 4) when its loader was made") &&
                               Catch::Matchers::Contains("(x: 4096) at the start of epoch 1"));
  *width = 4;
  CHECK(count_of(loader.epoch(1)) == 10);
}

TEST_CASE("a loop may be left, and another started, while a sampler still works",
          "[load][fault:hangs-2]") {
  turnstile at_sampler;
  ps::loader loader{numbered{100},
                    reported{[&](std::uint64_t epoch) {
                      if (epoch == 1) at_sampler.pass();
                    }},
                    {.batch_size = 10, .workers = 2, .prefetch = 20}};
  for (auto& batch : loader.epochs(0, 2)) {
    CHECK(batch.number() == 0);
    at_sampler.wait_until_held();
    break;
  }
  loader.start({0, 0}, 1);  // `break` and `start` do not wait for the sampler
  at_sampler.open();
  std::uint64_t batches = 0;
  while (loader.next()) ++batches;
  CHECK(batches == 10);
}

TEST_CASE("a hanging sampler is reported while it hangs, with its epoch", "[load][fault:hangs-2]") {
  const std::size_t workers = GENERATE(0U, 2U);
  turnstile at_sampler;
  std::optional<ps::stall_report> seen;
  ps::loader loader{
      numbered{100},
      reported{[&](std::uint64_t epoch) {
        if (epoch == 5) at_sampler.pass();
      }},
      {.batch_size = 10,
       .workers = workers,
       .faults = {.stall_warning = soon, .on_stall = [&](const ps::stall_report& order) {
                    if (order.where.stage == "read") return;  // a delayed read that does not hang
                    if (!seen) seen = order;
                    at_sampler.open();
                  }}}};
  CHECK(count_of(loader.epochs(4, 6)) == 20);
  REQUIRE(seen);
  CHECK(seen->where.stage == "order");
  CHECK(seen->where.epoch == 5);
  CHECK_THAT(seen->str(),
             Catch::Matchers::StartsWith("penstock: an order has not returned after ") &&
                 Catch::Matchers::EndsWith("stage order, epoch 5, batch 0"));
}

TEST_CASE("a hanging size() is reported while it hangs", "[load][fault:hangs-2]") {
  turnstile at_size;
  std::atomic<int> calls{-100};  // negative, so that calls during construction do not count
  ps::loader loader{sized{[&]() -> std::uint64_t {
                      if (calls++ == 1) at_size.pass();
                      return 100;
                    }},
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = 1,
                     .faults = {.stall_warning = soon,
                                .on_stall = [&](const ps::stall_report&) { at_size.open(); }}}};
  calls = 1;
  CHECK(count_of(loader.epoch(0)) == 10);
}

TEST_CASE("after the timeout a sampler is abandoned, and a loader that owns it ends",
          "[load][fault:hangs-2]") {
  const auto around = std::make_shared<turnstile>();
  const auto threads = present_threads();
  {
    ps::loader loader{numbered{100},
                      reported{[around](std::uint64_t epoch) {
                        if (epoch == 1) around->pass();
                      }},
                      {.batch_size = 10, .workers = 2, .faults = {.timeout = soon}}};
    std::uint64_t batches = 0;
    CHECK_THROWS_AS(count_of(loader.epochs(0, 2), batches), ps::read_timeout);
    CHECK(batches <= 10);
    REQUIRE(loader.last_failure());
    CHECK(loader.last_failure()->str() == "stage order, epoch 1, batch 0");
    CHECK(loader.abandoned_readers() == 1);
  }
  CHECK(threads_added_become(threads, 1));
  around->open();
  CHECK(threads_added_become(threads, 0));
}

namespace {

struct borrowed_order {
  static constexpr bool borrows = true;
  turnstile* at;
  [[nodiscard]] std::uint64_t size(std::uint64_t n) const { return n; }
  [[nodiscard]] ps::detail::identity_order order(std::uint64_t, std::uint64_t) const {
    at->pass();
    return {};
  }
};

}  // namespace

TEST_CASE("a loader waits for a sampler that borrows", "[load][fault:hangs-2]") {
  turnstile at_sampler;
  const auto threads = present_threads();
  bool is_waiting = false;
  {
    ps::loader loader{
        numbered{100},
        ps::sharded{borrowed_order{&at_sampler}, {.rank = 0, .world = 1, .global_batch = 10}},
        {.batch_size = 10,
         .workers = 1,
         .faults = {.timeout = soon, .on_stall = [&](const ps::stall_report& order) {
                      is_waiting = order.blocks_destruction;
                      at_sampler.open();
                    }}}};
    CHECK_THROWS_AS(count_of(loader.epoch(0)), ps::read_timeout);
    CHECK(loader.abandoned_readers() == 0);
  }
  CHECK(is_waiting);
  CHECK(threads_added_become(threads, 0));
}
