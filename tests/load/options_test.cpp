// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/options.hpp>

#include <chrono>
#include <cstddef>
#include <string>

#include <penstock/load/detail/loop_tuner.hpp>
#include <penstock/load/support/plan.hpp>

#include "support/catch.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;

namespace {

/// Returns the option that the error names, or "none" if no error is thrown.
std::string rejected(const ps::loader_options& options) {
  return test::rejection_of([&] { ps::detail::require_valid(options); }).option;
}

std::size_t slots_for(std::size_t workers, ps::count_or_automatic prefetch,
                      std::size_t slot_bytes = std::size_t{1} << 20) {
  return ps::detail::wanted_slots({.batch_size = 1, .workers = workers, .prefetch = prefetch},
                                  slot_bytes);
}

constexpr std::size_t max_slots = ps::detail::max_slots;
constexpr std::size_t max_chunks = ps::detail::max_chunks;

/// Returns the number of chunks in a batch.
std::size_t runs(std::size_t batch_size, std::size_t run) { return (batch_size + run - 1) / run; }

}  // namespace

TEST_CASE("the default options work", "[load]") {
  CHECK(rejected({}) == "none");
  CHECK(rejected({.batch_size = 64, .workers = 0}) == "none");
}

TEST_CASE("max_workers requires workers = automatic and at least one worker",
          "[load][promise:bounded-4]") {
  using ps::automatic;
  CHECK(rejected({.workers = automatic}) == "none");
  CHECK(rejected({.workers = automatic, .prefetch = automatic}) == "none");
  CHECK(rejected({.workers = 0, .prefetch = automatic}) == "none");
  CHECK(rejected({.workers = automatic, .tuning = {.max_workers = 1}}) == "none");
  CHECK(rejected({.workers = automatic, .tuning = {.max_workers = 4096}}) == "none");
  CHECK(rejected({.workers = automatic, .tuning = {.max_workers = 0}}) == "tuning.max_workers");
  CHECK(rejected({.workers = automatic, .tuning = {.max_workers = 4097}}) == "tuning.max_workers");
  CHECK(rejected({.workers = 4, .tuning = {.max_workers = 4}}) == "tuning.max_workers");
  CHECK(rejected({.workers = 4, .tuning = {.max_workers = 0}}) == "tuning.max_workers");
}

TEST_CASE("automatic workers are the cores that may be used, less one for the step",
          "[load][promise:bounded-4]") {
  using ps::automatic;
  using ps::detail::resolved;
  const auto workers = [](std::size_t usable) {
    return resolved({.workers = automatic}, usable).workers;
  };
  CHECK(workers(8) == 7);
  CHECK(workers(2) == 1);
  CHECK(workers(1) == 1);
  CHECK(workers(100'000) == 4096);
  CHECK(resolved({.workers = automatic, .tuning = {.max_workers = 5}}, 2).workers == 5);
  CHECK(resolved({.workers = 3}, 2).workers == 3);
  CHECK(resolved({.workers = automatic}).workers.value() >= 1);

  const ps::loader_options tuned = resolved({.workers = automatic}, 8);
  CHECK(ps::detail::has_automatic(tuned));
  CHECK(ps::detail::first_workers(tuned) == 1);
  CHECK(ps::detail::has_automatic({.workers = 2, .prefetch = automatic}));
  CHECK(ps::detail::first_workers({.workers = 2, .prefetch = automatic}) == 2);
  CHECK_FALSE(ps::detail::has_automatic({.workers = 0, .prefetch = automatic}));
  CHECK_FALSE(ps::detail::has_automatic({.workers = 2, .prefetch = 2}));
}

TEST_CASE("automatic prefetch allocates slots for twice the default", "[load]") {
  using ps::automatic;
  CHECK(slots_for(16, 0) == 17);
  CHECK(slots_for(16, automatic) == 33);
  CHECK(slots_for(1, automatic, 16) == 17);
  CHECK(slots_for(1, automatic) == 5);
  CHECK(slots_for(4096, automatic) == max_slots);
  CHECK(slots_for(0, automatic) == 2);
}

TEST_CASE("the error policy is an option like the others", "[load]") {
  CHECK(rejected({.faults = {.on_error = {.retries = 3, .action = ps::error_action::skip}}}) ==
        "none");
  CHECK(rejected({.faults = {.on_error = {.retries = 1000}}}) == "faults.on_error.retries");
  CHECK(rejected({.faults = {.on_error = {.max_failure_rate = -1}}}) ==
        "faults.on_error.max_failure_rate");
}

TEST_CASE("a read limit is a positive time, and a timeout needs a worker thread", "[load]") {
  using std::chrono::milliseconds;
  CHECK(rejected({.workers = 0, .faults = {.stall_warning = milliseconds{1}}}) == "none");
  CHECK(rejected({.workers = 1, .faults = {.timeout = milliseconds{1}}}) == "none");
  CHECK(rejected({.faults = {.stall_warning = milliseconds{-1}}}) == "faults.stall_warning");
  CHECK(rejected({.faults = {.timeout = milliseconds{-1}}}) == "faults.timeout");
  CHECK(rejected({.workers = 0, .faults = {.timeout = milliseconds{1}}}) == "faults.timeout");
  CHECK(rejected({.faults = {.stall_warning = milliseconds{2}, .timeout = milliseconds{3}}}) ==
        "none");
  CHECK(rejected({.faults = {.stall_warning = milliseconds{3}, .timeout = milliseconds{3}}}) ==
        "faults.stall_warning");
  const auto ignore = [](const ps::stall_report&) {};
  CHECK(rejected({.faults = {.timeout = milliseconds{3}, .on_stall = ignore}}) == "none");
  CHECK(rejected({.faults = {.on_stall = ignore}}) == "faults.on_stall");
}

TEST_CASE("an invalid option is rejected by name", "[load][promise:honest-7]") {
  CHECK(rejected({.batch_size = 0}) == "batch_size");
  CHECK(rejected({.workers = 4096}) == "none");
  CHECK(rejected({.workers = 4097}) == "workers");
  CHECK(rejected({.prefetch = max_slots - 1}) == "none");
  CHECK(rejected({.prefetch = max_slots}) == "prefetch");
  CHECK_THROWS_MATCHES(ps::detail::require_valid({.batch_size = 0}), ps::option_error,
                       Catch::Matchers::Message("batch_size: must be at least 1, but is 0"));
  CHECK_THROWS_MATCHES(ps::detail::require_valid({.workers = 5000}), ps::option_error,
                       Catch::Matchers::Message("workers: 5000 is above 4096"));
  CHECK_THROWS_MATCHES(ps::detail::require_valid({.prefetch = 5000}), ps::option_error,
                       Catch::Matchers::Message("prefetch: 5000 is above 4095"));
}

TEST_CASE("a negative count is rejected at run time, and is never automatic",
          "[load][promise:honest-7]") {
  CHECK_THROWS_MATCHES(ps::detail::require_valid({.workers = -1}), ps::option_error,
                       Catch::Matchers::Message("workers: must not be negative, but is -1"));
  int few = -2;  // not a constant, because the compiler checks constants
  CHECK(rejected({.workers = few}) == "workers");
  CHECK(rejected({.prefetch = -1}) == "prefetch");
  CHECK(rejected({.workers = ps::automatic, .tuning = {.max_workers = -1}}) ==
        "tuning.max_workers");
  few = 4;
  CHECK(rejected({.workers = few == 4 ? ps::automatic : few, .tuning = {.max_workers = {few}}}) ==
        "none");
}

TEST_CASE("slots are pinned by default, and pageable after a failure only if allowed", "[load]") {
  CHECK(ps::detail::slot_memory({}) == ps::detail::memory_kind::pinned);
  CHECK(ps::detail::slot_memory({.memory = {.pageable_fallback = true}}) ==
        ps::detail::memory_kind::pinned_or_pageable);
  CHECK(ps::detail::slot_memory({.pinned = false}) == ps::detail::memory_kind::pageable);
  CHECK(ps::detail::slot_memory({.pinned = false, .memory = {.pageable_fallback = true}}) ==
        ps::detail::memory_kind::pageable);
}

TEST_CASE("there is a slot for each batch ahead and one for the consumer", "[load]") {
  CHECK(slots_for(0, 0) == 2);
  CHECK(slots_for(1, 0) == 3);
  CHECK(slots_for(2, 0) == 3);
  CHECK(slots_for(8, 0) == 9);
  CHECK(slots_for(8, 1) == 2);
  CHECK(slots_for(0, 5) == 6);
  CHECK(slots_for(1, 1, 1) == 2);  // an explicit prefetch also applies to small slots
}

TEST_CASE("there are more small slots as long as they fit into the cache", "[load]") {
  CHECK(slots_for(1, 0, 1) == 9);
  CHECK(slots_for(1, 0, 50'000) == 9);
  CHECK(slots_for(1, 0, 100'000) == 5);
  CHECK(slots_for(1, 0, std::size_t{1} << 18) == 3);
  CHECK(slots_for(12, 0, 1) == 13);
  CHECK(slots_for(0, 0, 1) == 2);
  CHECK(slots_for(1, 0, 0) == 9);
}

TEST_CASE("valid options never need more slots than a claim can represent", "[load]") {
  CHECK(slots_for(1, max_slots - 1) == max_slots);
  CHECK(slots_for(4095, 0) == max_slots);
  CHECK(slots_for(4096, 0) == max_slots);
  CHECK(slots_for(4096, 0, 1) == max_slots);
}

TEST_CASE("a single worker, or inline reading, claims a whole batch at a time", "[load]") {
  CHECK(ps::detail::chunk_size_of({.batch_size = 64, .workers = 0}, 1 << 20) == 64);
  CHECK(ps::detail::chunk_size_of({.batch_size = 64, .workers = 1}, 1 << 20) == 64);
}

TEST_CASE("several workers get two chunks each in a batch of large samples", "[load]") {
  CHECK(ps::detail::chunk_size_of({.batch_size = 64, .workers = 4}, 1 << 20) == 8);
  CHECK(ps::detail::chunk_size_of({.batch_size = 65, .workers = 4}, 1 << 20) == 9);
  CHECK(ps::detail::chunk_size_of({.batch_size = 3, .workers = 8}, 1 << 20) == 1);
}

TEST_CASE("a chunk of small samples is at least a page", "[load]") {
  CHECK(ps::detail::chunk_size_of({.batch_size = 1000, .workers = 100}, 4096) == 5);
  CHECK(ps::detail::chunk_size_of({.batch_size = 1000, .workers = 100}, 100) == 41);
  CHECK(ps::detail::chunk_size_of({.batch_size = 1000, .workers = 100}, 1) == 1000);
}

TEST_CASE("a requested chunk length is used up to the batch size", "[load]") {
  CHECK(ps::detail::chunk_size_of({.batch_size = 64, .workers = 4, .tuning = {.chunk = 3}}, 1) ==
        3);
  CHECK(ps::detail::chunk_size_of({.batch_size = 64, .workers = 0, .tuning = {.chunk = 3}}, 1) ==
        3);
  CHECK(ps::detail::chunk_size_of({.batch_size = 64, .workers = 4, .tuning = {.chunk = 1000}}, 1) ==
        64);
}

TEST_CASE("no batch has more chunks than a claim can count", "[load]") {
  for (const std::size_t batch :
       {max_chunks, max_chunks + 1, 10 * max_chunks, 10 * max_chunks + 7}) {
    const auto run =
        ps::detail::chunk_size_of({.batch_size = batch, .workers = 4, .tuning = {.chunk = 1}}, 1);
    INFO("batch_size " << batch << ", run " << run);
    CHECK(runs(batch, run) <= max_chunks);
    CHECK(run <= batch / max_chunks + 1);  // a chunk is as short as possible
  }
}
