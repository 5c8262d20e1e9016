// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A dataset's read, a sampler's `order`, or the lengths of a batch of ragged samples, that have
/// not come for longer than they should, as observed while that hangs.
struct stalled_read {
  /// The sample that is read; in the stage "order" the first batch that needs that order, in the
  /// stage "lengths" the batch that needs them, and the time is that of all its lengths. `exact` is
  /// false where a dataset reads a whole chunk in one call: then it is the chunk's first sample,
  /// and the time is the chunk's.
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
        {"penstock: ", what(), " hangs for ", elapsed.count(), " ms in worker ", worker, ": ",
         where.str(),
         blocks_destruction ? "; the loader's destructor waits for it, because the loader does not "
                              "own the dataset: move the dataset in to continue without it"
                            : ""});
  }

 private:
  [[nodiscard]] std::string_view what() const noexcept {
    if (where.stage == "order") return "an order";
    return where.stage == "lengths" ? "the length() of a sample" : "a read";
  }
};

/// A read, a sampler's `order`, or the lengths of a batch took longer than
/// `loader_options::faults.timeout`. The loader gives no batches any more.
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
