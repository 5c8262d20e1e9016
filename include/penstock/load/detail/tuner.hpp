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

/// The parts of a loader that a tuner observes and adjusts, and that must outlive the tuner.
struct tuned_loader {
  const loader_options& options;  ///< resolved, see `resolved`
  std::size_t slot_count;         ///< host slots
  std::size_t slot_bytes;         ///< bytes of each slot
  schedule& batches;              ///< limits how far the opener may read ahead
  active_workers& readers;        ///< sets which workers are active
  loader_observer& observer;      ///< measures the loop
};

/// Tunes a loader while its loop runs. The consumer's thread calls it once for each batch.
class tuner {
 public:
  tuner() = default;
  tuner(tuner&&) = delete;
  virtual ~tuner() = default;

  /// Records the start of a range, whose first batch is `next`.
  virtual void begin(std::uint64_t next) noexcept = 0;
  /// Records the end of the range.
  virtual void end() noexcept = 0;
  /// Records that the consumer has got a batch. The batch that it takes next is `next`.
  virtual void take(std::uint64_t next) noexcept = 0;
  /// Returns the settings that the tuner has chosen. Any thread may call this.
  [[nodiscard]] virtual tuning_history history() const = 0;
  /// Makes an inactive worker, which holds no claim, sleep until it is active. The worker calls
  /// this.
  virtual void park(std::size_t worker, claim_cursor<>& cursor,
                    worker_meters& metrics) noexcept = 0;
};

/// The code behind `loader_options::workers = automatic` and `prefetch = automatic`. Only a program
/// that names `automatic` refers to it, so only such a program compiles it.
///
/// `code` and the tuner are templates that only such a program instantiates. Otherwise a compiler
/// that guesses the target of a virtual call would compile the tuner into every program, because it
/// is the only derived class.
struct loop_tuning {
  std::unique_ptr<tuner> (*make)(const tuned_loader&);  ///< makes the tuner of a loader
  std::size_t (*usable_cpus)();                         ///< counts the cores of the process
  /// Returns the functions. Defined in `loop_tuner.hpp`.
  template <class>
  [[nodiscard]] static constexpr const loop_tuning* code() noexcept;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
