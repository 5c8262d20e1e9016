// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

/// A dataset in which reads of some samples block until `release` is called. `gone` is incremented
/// when the last copy is destroyed, possibly on a thread that a loader has abandoned.
struct hanging {
  using record_type = penstock::record<penstock::field<"label", std::uint64_t>>;

  struct outside {                            // state shared by the test and all copies
    penstock::detail::waitable_counter hung;  // incremented when a read blocks
    penstock::detail::waitable_counter gone;
    penstock::detail::waitable_counter gate{1};  // holds back the reads while 1
    std::atomic<std::uint64_t> reads{0};
    std::atomic<std::thread::id> last_reader{};
    std::atomic<std::thread::id> destroyer{};  // thread that destroyed the last copy

    void release() { gate.store(0); }
    void wait_until_hung(std::uint32_t readers) {
      hung.wait([readers](std::uint32_t now) { return now >= readers; });
    }
    void wait_until_gone() {
      gone.wait([](std::uint32_t now) { return now > 0; });
    }
  };

  hanging(std::shared_ptr<outside> around, std::uint64_t samples, std::vector<std::uint64_t> which)
      : count(samples), bad(std::move(which)), life(std::make_shared<life_of>(std::move(around))) {}

  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, penstock::sample<record_type> out) const {
    if (std::find(bad.begin(), bad.end(), index) != bad.end()) {
      life->around->hung.advance();
      life->around->gate.wait([](std::uint32_t closed) { return closed == 0; });
    }
    penstock::get<"label">(out) = index;
    life->around->last_reader = std::this_thread::get_id();
    ++life->around->reads;
  }

  struct life_of {
    std::shared_ptr<outside> around;
    explicit life_of(std::shared_ptr<outside> all) : around(std::move(all)) {}
    life_of(life_of&&) = delete;
    ~life_of() {
      around->destroyer = std::this_thread::get_id();
      around->gone.advance();
    }
  };

  std::uint64_t count;
  std::vector<std::uint64_t> bad;
  std::shared_ptr<life_of> life;
};
