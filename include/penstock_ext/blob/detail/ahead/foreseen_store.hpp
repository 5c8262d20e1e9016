// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Tells a store which blobs are read far ahead, and takes it back in the end. `Blob` is a
/// `stored_blob`. From any thread.
template <byte_store Store, class Blob>
class foreseen_store {
 public:
  /// Both must outlive it.
  foreseen_store(const Store& store, const std::vector<Blob>& blobs) noexcept
      : store_(store), blobs_(blobs) {}
  foreseen_store(const foreseen_store&) = delete;
  foreseen_store& operator=(const foreseen_store&) = delete;
  ~foreseen_store() {
    try {
      forget();
    } catch (...) {
      // What the store knows in excess costs speed at most.
    }
  }

  /// As `stored_blobs::foresee`.
  void foresee(std::span<const std::uint64_t> indices) requires foreseeing_store<Store> {
    if (indices.empty()) return forget();
    std::vector<upcoming_range> ranges;
    for (const std::uint64_t index : indices) {
      if (index >= blobs_.size()) continue;
      const Blob& one = blobs_[static_cast<std::size_t>(index)];
      ranges.push_back({one.object, one.offset, one.length});
    }
    process_.store(::getpid(), std::memory_order_relaxed);
    store_.foresee(this, ranges);
  }
  /// As `stored_blobs::most_foreseen`.
  [[nodiscard]] std::uint64_t most() const requires foreseeing_store<Store> {
    std::uint64_t bytes = 0;
    std::uint64_t known = 0;
    for (const Blob& one : blobs_) {
      if (one.length == Blob::to_end) continue;
      bytes += one.length;
      ++known;
    }
    const std::uint64_t most = store_.most_foreseen();
    if (known == 0) return most;
    const std::uint64_t mean = (std::max)(std::uint64_t{1}, bytes / known);
    return mean > most / most_blobs ? most : mean * most_blobs;
  }

 private:
  static constexpr std::uint64_t most_blobs = std::uint64_t{1} << 19;

  // In a child made by fork() the store's lock may be held.
  void forget() {
    if constexpr (foreseeing_store<Store>) {
      if (process_.load(std::memory_order_relaxed) == ::getpid()) store_.forget(this);
    }
  }

  const Store& store_;
  const std::vector<Blob>& blobs_;
  // Of the last `foresee`, or 0. Relaxed: a child has what was stored before the fork.
  std::atomic<::pid_t> process_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
