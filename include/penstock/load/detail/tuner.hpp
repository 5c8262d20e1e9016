// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <penstock/core/version.hpp>
#include <penstock/load/detail/active_workers.hpp>
#include <penstock/load/detail/claim_cursor.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/tuning_history.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

class schedule;

/// The parts of a loader that a tuner observes and adjusts. All parts must outlive the tuner.
struct tuned_loader {
  const loader_options& options;  ///< resolved (see `resolved`)
  std::size_t slot_count;         ///< number of host slots
  std::size_t slot_bytes;         ///< size of each slot in bytes
  schedule& batches;              ///< limits how far the opener may read ahead
  active_workers& readers;        ///< activates workers
  loader_observer& observer;      ///< measures the loop
};

/// Tunes a loader while its loop runs. Called by the consumer thread once for each batch.
class tuner {
 public:
  tuner() = default;
  tuner(tuner&&) = delete;
  virtual ~tuner() = default;

  /// Records the start of a range, whose first batch is `next`.
  virtual void begin(std::uint64_t next) noexcept = 0;
  /// Records the end of the range.
  virtual void end() noexcept = 0;
  /// Records that the consumer has received a batch. The next batch is `next`.
  virtual void take(std::uint64_t next) noexcept = 0;
  /// Returns the settings that the tuner has chosen. Any thread may call this.
  [[nodiscard]] virtual tuning_history history() const = 0;
  /// Puts an inactive worker without a claim to sleep until it is active. Called by the worker.
  virtual void park(std::size_t worker, claim_cursor<>& cursor,
                    worker_meters& metrics) noexcept = 0;
};

/// The code of `loader_options::workers = automatic` and `prefetch = automatic`. Only a program
/// that uses `automatic` references the code, and therefore compiles it.
///
/// `code` and the tuner are templates that only such a program instantiates. Otherwise a compiler
/// that devirtualizes speculatively would compile the tuner into every program, because the tuner
/// is the only derived class.
struct loop_tuning {
  std::unique_ptr<tuner> (*make)(const tuned_loader&);  ///< Creates the tuner of a loader.
  /// Returns the number of cores that the process may use.
  std::size_t (*usable_cpus)();
  /// Returns the functions. Defined in `loop_tuner.hpp`.
  template <class>
  [[nodiscard]] static constexpr const loop_tuning* code() noexcept;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
