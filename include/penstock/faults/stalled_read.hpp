// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A dataset's read, or a sampler's order, that has not returned for longer than it should, as it
/// is found while it hangs.
struct stalled_read {
  /// What is read, or in the stage "order" the first batch that needs that order. `exact` is false
  /// where a dataset reads a whole run in one call: then it is the run's first sample, and the time
  /// is the run's.
  failure where;
  /// The worker whose thread hangs; 0 where the consumer's own thread reads.
  std::size_t worker = 0;
  /// For how long at least.
  std::chrono::milliseconds elapsed{0};
  /// Whether the loader's destructor waits for it now.
  bool blocks_destruction = false;

  /// One line for a log.
  [[nodiscard]] std::string str() const {
    return std::string{"penstock: "} + (where.stage == "order" ? "an order" : "a read") +
           " hangs for " + std::to_string(elapsed.count()) + " ms in worker " +
           std::to_string(worker) + ": " + where.str() +
           (blocks_destruction ? "; the loader's destructor waits for it, because the dataset is "
                                 "somebody else's: move the dataset in to go on without the reader"
                               : "");
  }
};

/// A read, or a sampler's order, took longer than `loader_options::timeout`. The loader gives no
/// batches any more.
class [[gnu::visibility("default")]] read_timeout : public error {
 public:
  /// For the read that hangs.
  explicit read_timeout(const stalled_read& what)
      : error("read_timeout: " + std::to_string(what.elapsed.count()) +
              " ms and not back, in worker " + std::to_string(what.worker) + ": " +
              what.where.str() + "; is its storage there? else raise timeout"),
        read_(what) {}
  /// Which read, and how long it had taken.
  [[nodiscard]] const stalled_read& read() const noexcept { return read_; }

 private:
  stalled_read read_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
