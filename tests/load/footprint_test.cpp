// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/footprint.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/adaptors/exclude.hpp>
#include <penstock_ext/adaptors/with_index.hpp>
#include <penstock_ext/adaptors/zip.hpp>

#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/ledger_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using record = numbered::record_type;

// Ten samples of 8 floats and one label. Each field is rounded up to a multiple of 256 bytes.
constexpr std::size_t slot_bytes = 512 + 256;

/// Returns a loader on `device` with batches of ten samples.
auto loader_on(const ledger_device& device, ps::loader_options options) {
  options.batch_size = 10;
  return ps::loader{numbered{100}, ps::shuffled{.seed = 3}, device, options};
}

/// Returns the labels of each batch in two epochs.
template <class Loader>
std::vector<std::vector<std::uint64_t>> epochs_of(Loader& loader) {
  std::vector<std::vector<std::uint64_t>> batches;
  for (auto& batch : loader.epochs(0, 2)) batches.push_back(labels_of(batch));
  return batches;
}

}  // namespace

TEST_CASE("a loader's footprint is known before allocation and equals the allocated memory",
          "[load][promise:bounded-1]") {
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const std::size_t prefetch : {0U, 1U, 7U}) {
      for (const bool pinned : {true, false}) {
        INFO("workers " << workers << ", prefetch " << prefetch << ", pinned " << pinned);
        const ps::loader_options options{
            .batch_size = 10, .workers = workers, .prefetch = prefetch, .pinned = pinned};
        const ps::loader_footprint need = ps::footprint<record>({}, options);
        CHECK(need.slot_bytes == slot_bytes);
        CHECK(need.bytes == need.slot_count * slot_bytes);
        CHECK(need.pinned_bytes() == (pinned ? need.bytes : 0));
        CHECK(need.pageable_bytes() == (pinned ? 0 : need.bytes));
        const ledger_device device;
        const auto loader = loader_on(device, options);
        CHECK(loader.footprint() == need);
        CHECK(device.pinned_bytes() == need.pinned_bytes());
        CHECK(device.device_bytes() == 0);
      }
    }
  }
}

TEST_CASE("a footprint formats as one readable line", "[load]") {
  CHECK(to_text(
            ps::loader_footprint{.slot_count = 4,
                                 .slots_requested = 4,
                                 .slot_bytes = 768,
                                 .bytes = 3072,
                                 .pinned = true,
                                 .bookkeeping = 45056,
                                 .workers = {ps::core_binding::bound, 1, ps::cpu_list{{8, 9}}}}) ==
        "4 slots of 768 bytes, 3072 bytes pinned, at most 45056 bytes of bookkeeping; workers on "
        "node 1, "
        "cores 8-9");
  CHECK(to_text(ps::loader_footprint{
            .slot_count = 1, .slots_requested = 9, .slot_bytes = 256, .bytes = 256}) ==
        "1 slots of 256 bytes (9 were requested), 256 bytes pageable, at most 0 bytes of "
        "bookkeeping; workers anywhere: the device has no NUMA node");
  CHECK(to_text(ps::loader_footprint{.slot_count = 1,
                                     .slots_requested = 1,
                                     .slot_bytes = 256,
                                     .bytes = 256,
                                     .registration_failed = true}) ==
        "1 slots of 256 bytes, 256 bytes pageable (registration failed), at most 0 bytes of "
        "bookkeeping; workers anywhere: the device has no NUMA node");
}

TEST_CASE("extents that are known at run time are counted", "[load]") {
  using frames =
      ps::record<ps::field<"frame", std::uint8_t, ps::dyn, ps::dyn>, ps::field<"label", int>>;
  const auto need =
      ps::footprint<frames>({{640, 480}, {}}, {.batch_size = 4, .workers = 1, .prefetch = 2});
  CHECK(need.bytes == std::size_t{3} * (4 * 640 * 480 + 256));
}

TEST_CASE("a footprint rejects what a loader rejects", "[load][promise:bounded-1]") {
  CHECK_THROWS_AS(ps::footprint<record>({}, {.batch_size = 0}), ps::option_error);
  CHECK_THROWS_AS(
      ps::footprint<record>({}, {.batch_size = std::numeric_limits<std::size_t>::max() / 8}),
      ps::layout_error);
}

TEST_CASE("a footprint beyond the address space saturates", "[load]") {
  const auto need = ps::footprint<record>(
      {}, {.batch_size = std::numeric_limits<std::size_t>::max() / 128, .prefetch = 1000});
  CHECK(need.bytes == std::numeric_limits<std::size_t>::max());
}

TEST_CASE("a loader over its budget uses the slots that fit and reports their number",
          "[load][promise:bounded-3]") {
  for (const bool pinned : {true, false}) {
    const ledger_device device;
    const auto budget = ps::memory_budget::bytes(4 * slot_bytes + slot_bytes - 1);
    const auto loader = loader_on(
        device,
        {.prefetch = 9,
         .pinned = pinned,
         .memory = {.budget = budget, .on_budget_exceeded = ps::budget_action::fewer_slots}});
    CHECK(loader.footprint().slot_count == 4);
    CHECK(loader.footprint().slots_requested == 10);
    CHECK(loader.footprint().bytes == 4 * slot_bytes);
    CHECK(device.pinned_bytes() == (pinned ? 4 * slot_bytes : 0));
    CHECK(budget.used() == 4 * slot_bytes);
  }
}

TEST_CASE("a loader over its budget that may not use fewer slots allocates nothing",
          "[load][promise:bounded-3]") {
  for (const bool pinned : {true, false}) {
    const ledger_device device;
    const auto budget = ps::memory_budget::bytes(10 * slot_bytes - 1);
    CHECK_THROWS_AS(
        loader_on(device, {.prefetch = 9, .pinned = pinned, .memory = {.budget = budget}}),
        ps::pinned_budget_exceeded);
    CHECK(device.requested() == 0);
    CHECK(budget.used() == 0);
  }
}

TEST_CASE("a loader is always rejected if not even one slot fits", "[load][promise:bounded-3]") {
  const ledger_device device;
  const auto budget = ps::memory_budget::bytes(slot_bytes - 1);
  CHECK_THROWS_AS(
      loader_on(device, {.memory = {.budget = budget,
                                    .on_budget_exceeded = ps::budget_action::fewer_slots}}),
      ps::pinned_budget_exceeded);
  CHECK(device.requested() == 0);
}

TEST_CASE("a loader with a single slot delivers the same batches", "[load][promise:bounded-3]") {
  const ledger_device device;
  auto plenty = loader_on(device, {.workers = 2});
  const auto expected = epochs_of(plenty);
  REQUIRE(expected.size() == 20);
  for (const std::size_t workers : {0U, 1U, 2U, 4U}) {
    for (const bool in_order : {true, false}) {
      INFO("workers " << workers << ", in order " << in_order);
      auto loader =
          loader_on(device, {.workers = workers,
                             .prefetch = 7,
                             .in_order = in_order,
                             .memory = {.budget = ps::memory_budget::bytes(slot_bytes),
                                        .on_budget_exceeded = ps::budget_action::fewer_slots},
                             .tuning = {.chunk = 3}});
      REQUIRE(loader.footprint().slot_count == 1);
      CHECK(epochs_of(loader) == expected);  // a single slot permits only this order
      for (auto& batch : loader.epoch(0)) {
        if (batch.number() == 3) break;
      }
      CHECK(epochs_of(loader) == expected);
    }
  }
}

TEST_CASE("leases_exhausted with a single slot names the budget that had no room",
          "[load][promise:bounded-3]") {
  for (const std::size_t workers : {0U, 1U}) {
    const ledger_device device;
    auto loader =
        loader_on(device, {.workers = workers,
                           .prefetch = 7,
                           .memory = {.budget = ps::memory_budget::bytes(slot_bytes),
                                      .on_budget_exceeded = ps::budget_action::fewer_slots}});
    auto range = loader.epoch(0);
    auto it = range.begin();
    const auto kept = std::move(*it);
    CHECK_THROWS_MATCHES(++it, ps::leases_exhausted,
                         Catch::Matchers::Message(
                             "loader: all 1 host slots are held as leases: release one, or raise "
                             "memory.budget, which did not suffice for the 8 slots requested"));
  }
}

TEST_CASE("loaders with the same budget share it", "[load][promise:bounded-3]") {
  const ledger_device device;
  const auto budget = ps::memory_budget::bytes(6 * slot_bytes);
  const ps::loader_options options{
      .prefetch = 3,
      .memory = {.budget = budget, .on_budget_exceeded = ps::budget_action::fewer_slots}};
  std::optional first{loader_on(device, options)};
  const auto second = loader_on(device, options);
  CHECK(first->footprint().slot_count == 4);
  CHECK(second.footprint().slot_count == 2);
  CHECK(budget.used() == 6 * slot_bytes);
  CHECK_THROWS_AS(loader_on(device, options), ps::pinned_budget_exceeded);

  // The last lease frees the loader's memory.
  std::optional kept{std::move(*first->epoch(0).begin())};
  first.reset();
  CHECK(budget.used() == 6 * slot_bytes);
  CHECK(device.pinned_bytes() == 6 * slot_bytes);
  kept.reset();
  CHECK(budget.used() == 2 * slot_bytes);
  CHECK(device.pinned_bytes() == 2 * slot_bytes);
  CHECK(loader_on(device, options).footprint().slot_count == 4);
}

TEST_CASE("without a shared budget each loader has its own", "[load]") {
  const ledger_device device;
  const ps::loader_options options{.prefetch = 3};
  const auto first = loader_on(device, options);
  const auto second = loader_on(device, options);
  CHECK_FALSE(first.options().memory.budget.has_value());
  CHECK(first.footprint().slot_count + second.footprint().slot_count == 8);
}

TEST_CASE("slots that the device cannot allocate are returned to the budget", "[load]") {
  const gated_device device;
  device.reject_pinned();
  const auto budget = ps::memory_budget::bytes(1 << 20);
  CHECK_THROWS_AS((ps::loader{numbered{100},
                              ps::sequential{},
                              device,
                              {.batch_size = 10, .memory = {.budget = budget}}}),
                  ps::out_of_memory);
  CHECK(budget.used() == 0);
}

TEST_CASE("a footprint includes the warnings of the datasets below each adaptor",
          "[load][fault:files-7]") {
  struct warner : numbered {
    std::string text;
    [[nodiscard]] std::vector<std::string> warnings() const { return {text}; }
  };
  const warner first{numbered{10}, "first"};
  const ps::any_dataset<record> second = warner{numbered{10}, "second"};
  using flags = ps::record<ps::field<"flag", std::uint8_t>>;
  const auto third = warner{numbered{16}, "third"} |
                     ps::map<flags>([](ps::const_sample<record>, ps::sample<flags>) {});
  const auto both = ps::concat(first, second | ps::subset({1, 2, 3}) | ps::subset(0, 3),
                               second | ps::exclude({1, 2, 3, 4, 5, 6, 7}));
  const ps::loader loader{
      ps::zip(both | ps::map([](ps::sample<record>) {}) | ps::with_index(), third),
      ps::sequential{},
      {.batch_size = 4}};
  const ps::loader_footprint taken = loader.footprint();
  CHECK(taken.warnings == std::vector<std::string>{"first", "second", "second", "third"});
  const std::string text = to_text(taken);
  CHECK(text.ends_with("\nwarning: first\nwarning: second\nwarning: second\nwarning: third"));
  CHECK(
      ps::loader{numbered{100}, ps::sequential{}, {.batch_size = 4}}.footprint().warnings.empty());
}

TEST_CASE("loaders of several threads never exceed a shared budget", "[load]") {
  const ledger_device device;
  const auto budget = ps::memory_budget::bytes(9 * slot_bytes);
  std::atomic<std::size_t> made{0};
  std::atomic<std::size_t> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int turn = 0; turn < 20; ++turn) {
          try {
            auto loader = loader_on(
                device, {.workers = 1,
                         .prefetch = 3,
                         .memory = {.budget = budget,
                                    .on_budget_exceeded = ps::budget_action::fewer_slots}});
            ++made;
            if (device.pinned_bytes() > budget.limit()) ++wrong;
            std::uint64_t sum = 0;
            for (auto& batch : loader.epoch(0)) {
              for (const auto label : labels_of(batch)) sum += label;
            }
            if (sum != 99 * 100 / 2) ++wrong;
          } catch (const ps::pinned_budget_exceeded&) {
            // The other threads occupy the whole budget.
          }
        }
      });
    }
  }
  CHECK(made > 0);
  CHECK(wrong == 0);
  CHECK(budget.used() == 0);
  CHECK(device.pinned_bytes() == 0);
}
