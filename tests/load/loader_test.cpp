// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/last_words.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using numbered_loader = ps::loader<numbered, ps::sequential>;
static_assert(std::ranges::input_range<numbered_loader::range_type>);
static_assert(std::movable<numbered_loader>);
static_assert(!std::copyable<numbered_loader::batch_type>);

struct shape {
  std::uint64_t index;
  std::size_t size;
  std::size_t valid;
  bool operator==(const shape&) const = default;
};

template <class Range>
std::vector<shape> shapes_of(Range&& range) {
  std::vector<shape> all;
  for (const auto& batch : range) all.push_back({batch.number(), batch.size(), batch.valid()});
  return all;
}

template <class Range>
std::vector<std::uint64_t> all_labels(Range&& range) {
  std::vector<std::uint64_t> all;
  for (const auto& batch : range) {
    const auto labels = labels_of(batch);
    all.insert(all.end(), labels.begin(), labels.end());
  }
  return all;
}

}  // namespace

TEST_CASE("the last batch is kept, dropped or padded from the epoch's start", "[load]") {
  const auto last = GENERATE(ps::last_batch::keep, ps::last_batch::drop, ps::last_batch::pad);
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  ps::loader loader{
      numbered{10}, ps::sequential{}, {.batch_size = 4, .workers = workers, .last_batch = last}};
  const auto shapes = shapes_of(loader.epoch(0));
  const auto labels = all_labels(loader.epoch(0));
  if (last == ps::last_batch::keep) {
    CHECK(shapes == std::vector<shape>{{0, 4, 4}, {1, 4, 4}, {2, 2, 2}});
    CHECK(labels == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  } else if (last == ps::last_batch::drop) {
    CHECK(shapes == std::vector<shape>{{0, 4, 4}, {1, 4, 4}});
    CHECK(labels == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  } else {
    CHECK(shapes == std::vector<shape>{{0, 4, 4}, {1, 4, 4}, {2, 4, 2}});
    CHECK(labels == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1});
  }
  CHECK(loader.batches_per_epoch() == shapes.size());
  CHECK(loader.samples_per_epoch() == 10);
}

TEST_CASE("a batch larger than the dataset is padded by wrapping around repeatedly", "[load]") {
  ps::loader loader{numbered{3},
                    ps::sequential{},
                    {.batch_size = 8, .last_batch = ps::last_batch::pad, .tuning = {.chunk = 2}}};
  CHECK(all_labels(loader.epoch(0)) == std::vector<std::uint64_t>{0, 1, 2, 0, 1, 2, 0, 1});
}

TEST_CASE("every epoch of a shuffled loader has every sample once, in another order", "[load]") {
  ps::loader loader{numbered{1000}, ps::shuffled{.seed = 7}, {.batch_size = 64, .workers = 3}};
  auto first = all_labels(loader.epoch(0));
  auto second = all_labels(loader.epoch(1));
  CHECK(first != second);
  CHECK(!std::is_sorted(first.begin(), first.end()));
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  std::vector<std::uint64_t> expected(1000);
  std::iota(expected.begin(), expected.end(), std::uint64_t{0});
  CHECK(first == expected);
  CHECK(second == expected);
}

TEST_CASE("bad options are rejected by name, before a thread starts",
          "[load][promise:honest-7][fault:consumers-5]") {
  const auto option = [](const ps::loader_options& options) {
    return test::error_of<ps::option_error>(
               [&] { ps::loader{numbered{10}, ps::sequential{}, options}; })
        .option();
  };
  CHECK(option({.batch_size = 0}) == "batch_size");
  CHECK(option({.batch_size = 1, .workers = 1'000'000}) == "workers");
  CHECK(option({.batch_size = 1, .prefetch = 1'000'000}) == "prefetch");
  CHECK(option({.batch_size = 11, .last_batch = ps::last_batch::drop}) == "batch_size");
}

TEST_CASE("an empty dataset is rejected", "[load][fault:consumers-5]") {
  CHECK_THROWS_AS((ps::loader{numbered{0}, ps::sequential{}, {.batch_size = 1}}),
                  ps::empty_dataset);
  struct hollow : numbered {
    [[nodiscard]] std::vector<std::string> warnings() const { return {"a.tar: left out 2 files"}; }
  };
  const auto explained = test::error_of<ps::empty_dataset>(
      [] { ps::loader{hollow{{0}}, ps::sequential{}, {.batch_size = 1}}; });
  CHECK(
      std::string{explained.what()} ==
      "loader: the dataset has 0 samples; a.tar: left out 2 files: check the files that it reads");
}

TEST_CASE("slots beyond the budget are rejected before allocation with need, limit and remedy",
          "[load][promise:bounded-3]") {
  const auto error = test::error_of<ps::pinned_budget_exceeded>([] {
    ps::loader{numbered{10},
               ps::sequential{},
               {.batch_size = 1024,
                .workers = 1,
                .prefetch = 9,
                .memory = {.budget = ps::memory_budget::bytes(100'000)}}};
  });
  CHECK(error.need() == 10 * 1024 * 40);
  CHECK(error.limit() == 100'000);
  CHECK(std::string{error.what()}.find("lower prefetch or batch_size") != std::string::npos);
}

TEST_CASE("a batch beyond the address space is a layout error", "[load][fault:memory-2]") {
  CHECK_THROWS_AS((ps::loader{numbered{10},
                              ps::sequential{},
                              {.batch_size = std::numeric_limits<std::size_t>::max() / 8}}),
                  ps::layout_error);
}

TEST_CASE("the footprint is prefetch + 1 slots of the layout size", "[load][promise:bounded-1]") {
  ps::loader loader{
      numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 5}};
  const auto footprint = loader.footprint();
  CHECK(footprint.slot_count == 6);
  // 10 x 8 floats and 10 labels, each rounded up to a multiple of 256 bytes.
  CHECK(footprint.slot_bytes == 512 + 256);
  CHECK(footprint.bytes == 6 * footprint.slot_bytes);
  ps::loader pageable{numbered{100}, ps::sequential{}, {.batch_size = 10, .pinned = false}};
  CHECK_FALSE(pageable.footprint().pinned);
}

TEST_CASE("memory that can't be page-locked throws, or is visibly pageable where allowed",
          "[load][fault:memory-3]") {
  const gated_device device;
  device.reject_pinned();
  CHECK_THROWS_MATCHES(
      (ps::loader{numbered{100}, ps::sequential{}, device, {.batch_size = 10, .prefetch = 9}}),
      ps::out_of_memory,
      Catch::Matchers::Message(
          "pinned memory: 7680 bytes could not be allocated: not on this machine"));
  ps::loader loader{numbered{100},
                    ps::sequential{},
                    device,
                    {.batch_size = 10, .prefetch = 9, .memory = {.pageable_fallback = true}}};
  CHECK_FALSE(loader.footprint().pinned);
  CHECK(loader.footprint().bytes == 7680);
  CHECK(all_labels(loader.epoch(0)).size() == 100);
}

TEST_CASE("two live ranges over one loader are a logic error", "[load][fault:consumers-3]") {
  ps::loader loader{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 1}};
  {
    auto first = loader.epoch(0);
    auto it = first.begin();
    CHECK(it->number() == 0);
    auto second = loader.epoch(1);
    CHECK_THROWS_AS(second.begin(), std::logic_error);
    ++it;
    CHECK(it->number() == 1);  // the first range continues
  }
  CHECK(shapes_of(loader.epoch(1)).size() == 10);
}

TEST_CASE("a second begin starts the range again", "[load]") {
  ps::loader loader{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  auto range = loader.epoch(0);
  auto it = range.begin();
  ++it;
  ++it;
  CHECK(shapes_of(range).size() == 10);
  CHECK(shapes_of(range).front().index == 0);
}

TEST_CASE("a loader may be moved while a range over it is live", "[load]") {
  ps::loader first{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  auto range = first.epoch(0);
  auto it = range.begin();
  ps::loader second{std::move(first)};
  std::uint64_t seen = 0;
  for (; it != range.end(); ++it) CHECK(it->number() == seen++);
  CHECK(seen == 10);
  CHECK(second.batches_per_epoch() == 10);
}

TEST_CASE("assigning to a loader cancels its loop, and continues the other's",
          "[load][fault:consumers-12]") {
  ps::loader first{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  ps::loader second{numbered{50}, ps::sequential{}, {.batch_size = 10, .workers = 1}};
  auto range = first.epoch(0);
  auto it = range.begin();
  auto other_range = second.epoch(0);
  auto other = other_range.begin();
  first = std::move(second);
  CHECK_THROWS_AS(++it, ps::cancelled);
  CHECK(it == range.end());
  CHECK(first.batches_per_epoch() == 5);
  std::uint64_t seen = 0;
  for (; other != other_range.end(); ++other) CHECK(other->number() == seen++);
  CHECK(seen == 5);
  auto& itself = first;
  first = std::move(itself);
  CHECK(first.batches_per_epoch() == 5);
}

TEST_CASE("epochs that end before they start, or do not fit the random key, are rejected",
          "[load]") {
  ps::loader loader{numbered{100}, ps::sequential{}, {.batch_size = 10}};
  CHECK(shapes_of(loader.epochs(3, 3)).empty());
  CHECK(shapes_of(loader.batches({3, 0}, ps::until_epoch{3})).empty());
  CHECK_THROWS_MATCHES(loader.batches({4, 0}, ps::until_epoch{3}).begin(), ps::option_error,
                       Catch::Matchers::Message("epochs: cannot start at batch 0 of epoch 4: the "
                                                "range ends before epoch 3"));
  ps::transfer feed{loader};
  CHECK(shapes_of(feed.batches({3, 0}, ps::until_epoch{3})).empty());
  CHECK_THROWS_AS(feed.batches({4, 0}, ps::until_epoch{3}).begin(), ps::option_error);
  CHECK_THROWS_AS(feed.batches({3, 1}, ps::until_epoch{3}).begin(), ps::option_error);
  CHECK_THROWS_AS(loader.epochs(3, 2).begin(), ps::option_error);
  CHECK(shapes_of(loader.batches({0, 10}, ps::until_epoch{1})).empty());
  CHECK_THROWS_AS(loader.batches({0, 11}, ps::until_epoch{1}).begin(), ps::option_error);
  CHECK_THROWS_AS(loader.epochs(0, std::uint64_t{1} << 33).begin(), ps::option_error);
  CHECK(shapes_of(loader.batches({0, 9}, ps::until_epoch{1})).size() == 1);
}

TEST_CASE("a consumer that holds every lease gets an exception, not a hang",
          "[load][fault:consumers-2]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3});
  ps::loader loader{
      numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = workers, .prefetch = 2}};
  std::vector<numbered_loader::batch_type> held;
  const auto hoard = [&] {
    for (auto& batch : loader.epoch(0)) held.push_back(std::move(batch));
  };
  CHECK_THROWS_AS(hoard(), ps::leases_exhausted);
  CHECK(held.size() == 3);
  CHECK(loader.held() == loader.footprint().slot_count);
  for (std::size_t i = 0; i < held.size(); ++i) CHECK(labels_of(held[i]).front() == i * 10);
  held.clear();
  CHECK(loader.held() == 0);
  CHECK(shapes_of(loader.epoch(0)).size() == 10);
}

TEST_CASE("delivery in completion order gives every batch once", "[load]") {
  ps::loader loader{numbered{1000},
                    ps::shuffled{.seed = 1},
                    {.batch_size = 7, .workers = 4, .prefetch = 8, .in_order = false}};
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::uint64_t> indices;
    std::uint64_t sum = 0;
    for (auto& batch : loader.epoch(epoch)) {
      indices.push_back(batch.number());
      for (const auto label : labels_of(batch)) sum += label;
    }
    std::sort(indices.begin(), indices.end());
    CHECK(indices.size() == 143);
    CHECK(std::adjacent_find(indices.begin(), indices.end()) == indices.end());
    CHECK(sum == 999 * 1000 / 2);
  }
}

TEST_CASE("the error of the lowest position counts when several samples of a batch fail",
          "[load][promise:honest-1][fault:samples-1]") {
  struct all_bad {
    using record_type = numbered::record_type;
    [[nodiscard]] std::uint64_t size() const { return 64; }
    void read(std::uint64_t index, ps::sample<record_type>) const {
      if (index % 8 == 3) throw bad_sample(index);
    }
  };
  ps::loader loader{
      all_bad{}, ps::sequential{}, {.batch_size = 64, .workers = 4, .tuning = {.chunk = 1}}};
  for (int round = 0; round < 50; ++round) {
    const auto error = test::error_of<bad_sample>([&] { shapes_of(loader.epoch(0)); });
    CHECK(error.index == 3);
    CHECK(loader.last_failure()->position == 3);
    CHECK(loader.last_failure()->exact);
  }
}

TEST_CASE("states of any position may be queried by several threads at once", "[load]") {
  const ps::loader loader{numbered{100}, ps::shuffled{.seed = 3}, {.batch_size = 10}};
  ps::loader_state elsewhere;
  std::thread other{[&] { elsewhere = loader.state_at({2, 3}); }};
  const ps::loader_state here = loader.state_at({2, 3});
  other.join();
  CHECK(here == elsewhere);
}

TEST_CASE("last_failure names what was read, and is reset by the next range",
          "[load][promise:honest-1][fault:samples-1]") {
  const numbered data{100};
  data.state->bad = 57;
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  CHECK_FALSE(loader.last_failure().has_value());
  CHECK_THROWS_AS(shapes_of(loader.epochs(2, 3)), bad_sample);
  CHECK(loader.last_failure()->str() ==
        "stage read, epoch 2, batch 5, sample 57 (position 7 of the batch)");
  data.state->bad = numbered::none;
  CHECK(shapes_of(loader.epoch(0)).size() == 10);
  CHECK_FALSE(loader.last_failure().has_value());
}

TEST_CASE("a loader stores an lvalue dataset by reference and an rvalue by value", "[load]") {
  numbered data{100};
  ps::loader by_reference{data, ps::sequential{}, {.batch_size = 10}};
  ps::loader by_value{numbered{100}, ps::sequential{}, {.batch_size = 10}};
  static_assert(std::is_same_v<decltype(by_reference),
                               ps::loader<ps::detail::dataset_ref<numbered>, ps::sequential>>);
  static_assert(std::is_same_v<decltype(by_value), ps::loader<numbered, ps::sequential>>);
  CHECK(all_labels(by_reference.epoch(0)) == all_labels(by_value.epoch(0)));
}

TEST_CASE("a const lease provides const views, and a mutable lease mutable views", "[load]") {
  ps::loader loader{numbered{10}, ps::sequential{}, {.batch_size = 10}};
  for (auto& batch : loader.epoch(0)) {
    static_assert(
        std::is_same_v<decltype(ps::get<"values">(batch)), ps::tensor_view<float, ps::dyn, 8>>);
    static_assert(std::is_same_v<decltype(ps::get<"values">(std::as_const(batch))),
                                 ps::tensor_view<const float, ps::dyn, 8>>);
    CHECK(ps::get<"values">(batch).extent(0) == 10);
    ps::get<"label">(batch)[3] = 77;
    CHECK(ps::get<"label">(std::as_const(batch))(3) == 77);
  }
}

TEST_CASE("a range that was read to its end is over even while its object exists", "[load]") {
  const std::size_t workers = GENERATE(0U, 2U);
  ps::loader loader{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = workers}};
  std::optional first{loader.epoch(0)};
  std::uint64_t batches = 0;
  for (auto& batch : *first) batches += batch.size() == 10;
  for (auto& batch : loader.epoch(1)) {
    batches += batch.epoch() == 1;
    if (batches == 12) first.reset();  // ending the old range does not end the new range
  }
  CHECK(batches == 20);
}

TEST_CASE("the end of a failed range does not end a later transfer", "[load]") {
  const numbered data{100};
  data.state->bad = 25;
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10, .workers = 1, .prefetch = 1}};
  std::optional old{loader.epoch(0)};
  const auto consume = [&] {
    for (auto& batch : *old) (void)batch;
  };
  CHECK_THROWS_AS(consume(), bad_sample);
  data.state->bad = numbered::none;
  ps::transfer feed{loader, ps::cpu_device{}.inline_stream(), {.depth = 1}};
  std::uint64_t batches = 0;
  for (auto& batch : feed.epochs(0, 4)) {
    (void)batch;
    if (++batches == 3) old.reset();
  }
  CHECK(batches == 40);
}

namespace {

/// Returns a device that throws when a worker makes it current.
gated_device unusable_device() {
  gated_device device;
  device.reject_threads();
  return device;
}

}  // namespace

TEST_CASE("workers that fail while others still start end the first step",
          "[load][fault:devices-3]") {
  for (int turn = 0; turn < 20; ++turn) {
    ps::loader loader{
        numbered{100}, ps::sequential{}, unusable_device(), {.batch_size = 10, .workers = 8}};
    CHECK_THROWS_AS(loader.epoch(0).begin(), device_fault);
  }
}

TEST_CASE("an exception of a worker that the consumer received is not printed",
          "[load][fault:devices-3]") {
  for (const bool asks : {false, true}) {
    const std::string said = last_words([asks] {
      {
        ps::loader loader{
            numbered{100}, ps::sequential{}, unusable_device(), {.batch_size = 10, .workers = 1}};
        try {
          if (asks) static_cast<void>(loader.epoch(0).begin());
        } catch (const device_fault&) {
          std::fputs("thrown; ", stderr);
        }
      }
      std::fputs("gone", stderr);
      std::abort();
    });
    CHECK(said == (asks ? "thrown; gone"
                        : "penstock: worker_pool: a worker's exception, never retrieved: no thread "
                          "may use this device\ngone"));
  }
}
