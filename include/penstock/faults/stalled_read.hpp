// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/support/joined.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A dataset's read, or a sampler's `order`, that has not returned for longer than it should, as
/// observed while it hangs.
struct stalled_read {
  /// The sample that is read, or in the stage "order" the first batch that needs that order.
  /// `exact` is false where a dataset reads a whole chunk in one call: then it is the chunk's first
  /// sample, and the time is the chunk's.
  failure where;
  /// The worker whose thread hangs; 0 where the consumer's own thread reads.
  std::size_t worker = 0;
  /// How long it has hung, at least.
  std::chrono::milliseconds elapsed{0};
  /// Whether the loader's destructor waits for it now: the loader does not own all that the read
  /// uses.
  bool blocks_destruction = false;

  /// The report as one line for a log.
  [[nodiscard, gnu::cold]] std::string str() const {
    return detail::joined(
        {"penstock: ", where.stage == "order" ? "an order" : "a read", " hangs for ",
         elapsed.count(), " ms in worker ", worker, ": ", where.str(),
         blocks_destruction ? "; the loader's destructor waits for it, because the loader does not "
                              "own the dataset: move the dataset in to continue without it"
                            : ""});
  }
};

/// A read, or a sampler's `order`, took longer than `loader_options::faults.timeout`. The loader
/// gives no batches any more.
class [[gnu::visibility("default")]] read_timeout : public error {
 public:
  /// For the read that hangs.
  [[gnu::cold]] explicit read_timeout(const stalled_read& what)
      : error(detail::joined({"read_timeout: worker ", what.worker, " has not returned after ",
                              what.elapsed.count(), " ms: ", what.where.str(),
                              "; check the storage, or raise loader_options::faults.timeout"})),
        read_(what) {}
  /// Which read, and how long it had taken.
  [[nodiscard]] const stalled_read& read() const noexcept { return read_; }

 private:
  stalled_read read_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
