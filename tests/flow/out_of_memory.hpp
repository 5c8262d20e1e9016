// SPDX-License-Identifier: BSL-1.0
#pragma once

// Scenarios in which a single allocation fails on the consumer or a worker thread, repeated for
// every allocation. Each scenario ends normally or with an exception, never with std::terminate or
// a hang, and later work is complete. Normal and checked builds use this header. The program must
// include counting_new.hpp.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string_view>
#include <utility>

#include <penstock/penstock.hpp>

#include "support/allocations.hpp"
#include "support/hanging.hpp"

namespace out_of_memory {

namespace ps = penstock;

/// The exception that a scenario throws if the library misbehaves.
class wrong : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A dataset in which each sample contains its index. Some samples are bad, and throwing their
/// exception allocates.
struct labels {
  using record_type = ps::record<ps::field<"label", std::uint64_t>>;
  std::uint64_t bad_in = 0;  // one in `bad_in` samples is bad; 0 means none
  [[nodiscard]] std::uint64_t size() const { return 40; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"label">(out) = index;
    if (bad_in != 0 && index % bad_in == 0) {
      throw std::runtime_error("a reason that is too long to be kept without an allocation");
    }
  }
};

/// Checks the contents and the order of all batches in a range over `samples` samples.
template <class Range>
void walk(Range&& range, std::uint64_t samples) {
  std::uint64_t next = 0;
  for (auto& batch : range) {
    for (const std::uint64_t label : ps::get<"label">(batch.view()).flat()) {
      if (label != next++ % 40) throw wrong("another sample");
    }
  }
  if (next != samples) throw wrong("another number of samples");
}

/// Runs `scenario` once for each of its allocations, with that allocation failing. Returns the
/// number of allocations.
template <class Scenario>
std::size_t sweep(Scenario scenario) {
  scenario();
  for (std::size_t k = 1; k < 10'000; ++k) {
    test::failing_allocation = k;
    try {
      scenario();
    } catch (const std::bad_alloc&) {
    } catch (...) {
      test::failing_allocation = 0;
      throw;
    }
    if (test::failing_allocation.exchange(0) != 0) return k - 1;
  }
  throw wrong("no end of allocations");
}

/// Constructs, runs and destroys a loader.
inline void whole_life(std::size_t workers) {
  ps::loader loader{
      labels{} | ps::map([](auto&&) {}), ps::sequential{}, {.batch_size = 8, .workers = workers}};
  walk(loader.epochs(0, 2), 80);
}

inline std::size_t sweep_life() {
  return sweep([] { whole_life(0); }) + sweep([] { whole_life(2); });
}

/// Runs ranges of one loader, each after a failed range. Also saves the loader's state, which
/// allocates.
inline std::size_t sweep_ranges() {
  std::size_t all = 0;
  for (const std::size_t workers : {0U, 2U}) {
    ps::loader loader{labels{}, ps::sequential{}, {.batch_size = 8, .workers = workers}};
    all += sweep([&] {
      const ps::loader_state state =
          ps::from_text<ps::loader_state>(to_text(loader.state_at({1, 0})));
      walk(loader.resume(state, 3), 80);
    });
    walk(loader.epoch(0), 40);
  }
  return all;
}

/// Skips bad samples. The loader allocates when it records them.
inline std::size_t sweep_skipping() {
  std::size_t all = 0;
  for (const std::size_t workers : {0U, 2U}) {
    ps::loader loader{
        labels{.bad_in = 8},
        ps::sequential{},
        {.batch_size = 8,
         .workers = workers,
         .faults = {.on_error = {.action = ps::error_action::skip, .max_failure_rate = 1}}}};
    all += sweep([&] {
      std::uint64_t samples = 0;
      for (auto& batch : loader.epoch(0)) samples += batch.size();
      if (samples != 35) throw wrong("another number of samples");
      if (loader.failures().samples.size() != 5) throw wrong("another ledger");
    });
  }
  return all;
}

/// Runs a scenario with a stop request, which must reach the consumer even without free memory.
inline std::size_t sweep_stop() {
  return sweep([] {
    std::stop_source source;
    ps::loader loader{
        labels{}, ps::sequential{}, {.batch_size = 8, .workers = 2, .stop = source.get_token()}};
    loader.start({0, 0}, 1);
    source.request_stop();
    try {
      while (loader.next()) {
      }
    } catch (const ps::cancelled&) {
      return;
    }
    throw wrong("not cancelled");
  });
}

/// Runs a read that exceeds its timeout. The consumer gets a `read_timeout` or a `std::bad_alloc`.
inline std::size_t sweep_timeout() {
  return sweep([] {
    const auto around = std::make_shared<hanging::outside>();
    struct opener {
      hanging::outside& around;
      ~opener() { around.release(); }
    } const at_last{*around};
    ps::loader loader{
        hanging{around, 40, {13}},
        ps::sequential{},
        {.batch_size = 8, .workers = 2, .faults = {.timeout = std::chrono::milliseconds{1}}}};
    try {
      walk(loader.epoch(0), 40);
    } catch (const ps::read_timeout&) {
      return;
    }
    throw wrong("no timeout");
  });
}

}  // namespace out_of_memory
