// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

/// A dataset that records its prefetch hints, access plans and reads. Each sample occupies 10 bytes
/// in storage unless `sizes` specifies other sizes. Copies share one state. Destroying the last
/// copy increments `gone`.
struct planned {
  using record_type = penstock::record<penstock::field<"label", std::uint64_t>>;

  struct noted {
    std::vector<std::uint64_t> reported() const {
      const std::lock_guard lock{mutex};
      return all_reported;
    }
    /// Waits until hints have named `samples` samples.
    void wait_until_reported(std::uint64_t samples) const {
      calls.wait([&](std::uint32_t) { return reported().size() >= samples; });
    }

    mutable std::mutex mutex;
    std::vector<std::uint64_t> all_reported;
    std::map<std::uint64_t, std::uint64_t> ahead;  // number of pending hints per sample
    std::vector<std::uint64_t> foreseen;           // samples planned since the last empty plan
    std::uint64_t bytes = 0;                       // bytes that were hinted but not yet read
    std::uint64_t max = 0;                         // peak value of `bytes`
    std::map<std::uint64_t, std::uint64_t> sizes;
    std::atomic<bool> throws{false};
    penstock::detail::waitable_counter calls;  // number of recorded `prefetch_hint` calls
    // Holds back `prefetch_hint` calls, after recording, while 1.
    penstock::detail::waitable_counter gate;
    penstock::detail::waitable_counter read_gate;  // holds back reads while 1
    penstock::detail::waitable_counter gone;
  };
  struct life {
    std::shared_ptr<noted> all;
    explicit life(std::shared_ptr<noted> of) : all(std::move(of)) {}
    life(life&&) = delete;
    ~life() { all->gone.advance(); }
  };

  explicit planned(std::uint64_t samples, std::shared_ptr<noted> of = std::make_shared<noted>())
      : count(samples), seen(of), alive(std::make_shared<life>(std::move(of))) {}

  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, penstock::sample<record_type> out) const {
    seen->read_gate.wait([](std::uint32_t shut) { return shut == 0; });
    penstock::get<"label">(out) = index;
    const std::lock_guard lock{seen->mutex};
    const auto found = seen->ahead.find(index);
    if (found == seen->ahead.end()) return;
    if (--found->second == 0) seen->ahead.erase(found);
    seen->bytes -= storage_size(index);
  }
  void prefetch_hint(std::span<const std::uint64_t> indices) const {
    {
      const std::lock_guard lock{seen->mutex};
      for (const std::uint64_t index : indices) {
        seen->all_reported.push_back(index);
        ++seen->ahead[index];
        seen->bytes += storage_size(index);
      }
      seen->max = (std::max)(seen->max, seen->bytes);
    }
    seen->calls.advance();
    seen->gate.wait([](std::uint32_t shut) { return shut == 0; });
    if (seen->throws) throw std::runtime_error("not now");
  }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    const auto found = seen->sizes.find(index);
    return found == seen->sizes.end() ? 10 : found->second;
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const { return keeps; }
  void access_plan(std::span<const std::uint64_t> indices) const {
    const std::lock_guard lock{seen->mutex};
    auto& all = seen->foreseen;
    if (indices.empty()) all.clear();
    all.insert(all.end(), indices.begin(), indices.end());
    if (seen->throws) throw std::runtime_error("not now");
  }
  [[nodiscard]] std::uint64_t plan_capacity() const { return plans; }

  std::uint64_t count;
  std::uint64_t plans = 0;
  std::uint64_t keeps = (std::numeric_limits<std::uint64_t>::max)();
  std::shared_ptr<noted> seen;
  std::shared_ptr<life> alive;
};
