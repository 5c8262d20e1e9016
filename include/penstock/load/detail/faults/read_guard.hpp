// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/detail/faults/read_progress.hpp>
#include <penstock/load/detail/faults/read_watch.hpp>
#include <penstock/load/detail/faults/recovery.hpp>
#include <penstock/memory/support/sample_lists.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What has to be known of a dataset to say what went wrong with a read of it.
struct guarded_data {
  std::uint64_t size = 0;
  std::vector<std::uint64_t> base_sizes = {};  ///< see `base_sizes_of`
  bool names_failed_sample = false;            ///< each sample is read by a call of its own
  /// Where a sample comes from. Called on any thread; must not throw.
  std::function<sample_origin(std::uint64_t)> origin = {};
};

/// How much is read at once.
struct guarded_reads {
  std::size_t readers = 1;  ///< reading threads, the consumer's counted where there is no other
  std::size_t batches = 0;  ///< batches that are read or held at a time
  std::size_t batch_size = 0;
};

/// All that can go wrong with a read: exceptions and what the `error_policy` makes of them, reads
/// that hang, and the report of both. A batch's way: `begin_batch` by the opener, reads through the
/// `guarded_reader`s, `end_batch` by the worker that completes it, `verdict` by the consumer.
class read_guard {
 public:
  read_guard(const error_policy& policy, watch_settings watch, const guarded_data& data,
             const guarded_reads& reads)
      : recovery_(policy, data.size, reads.batches, reads.batch_size, data.base_sizes),
        watch_(std::move(watch), reads.readers, data.names_failed_sample, data.origin),
        origin_(data.origin) {}

  /// What is read in place of bad samples, and what is left out, goes into `lists` too.
  void list_to(sample_lists& lists) noexcept { recovery_.list_to(lists); }

  /// Starts to watch for reads that hang. `fail(exception_ptr, failure)` is called on the watch's
  /// thread when one hangs beyond the timeout or the user's report throws; it must not throw.
  template <class Fail>
  void start(Fail fail) {
    watch_.start(std::move(fail));
  }
  /// Ends the watch's thread. With `waits` the reads that were given up are reported once more: a
  /// destructor waits for them.
  void stop(bool waits) noexcept {
    watch_.stop();
    if (waits) watch_.report_blocked();
  }
  /// Whether there is a watch's thread once it has started.
  [[nodiscard]] bool has_thread() const noexcept { return watch_.is_on(); }

  /// Opener: a slot is bound to a new batch.
  void begin_batch(std::uint32_t slot) noexcept { recovery_.begin_batch(slot); }

  /// All runs of the batch in `slot` are read: samples after a skipped one move up in its memory,
  /// and `info` counts them.
  template <record_type Record>
  void end_batch(std::uint32_t slot, std::byte* slab, const batch_layout<Record>& layout,
                 batch_info& info) noexcept {
    recovery_.end_batch(slot, slab, layout, info);
  }

  /// Consumer: it is to get the batch in `slot`, for which `error` was kept with its place `where`,
  /// or null. Null, or the exception that it gets instead, with its place in `where`.
  [[nodiscard]] std::exception_ptr verdict(std::uint32_t slot, const batch_info& info,
                                           std::exception_ptr error, failure& where) noexcept {
    if (!error) error = recovery_.check_limits(slot, info, where);
    if (error && where.stage == "read") where.origin = origin_(where.sample);
    return error;
  }

  /// Has waits for a retry ask again whether their range is over. From any thread.
  void interrupt() noexcept { recovery_.interrupt(); }

  /// Whether the present read of a reader hangs and was given up.
  [[nodiscard]] bool is_given_up(std::size_t reader) const noexcept {
    return watch_.is_given_up(reader);
  }

  /// What happened so far; empty with a plain policy. From any thread.
  [[nodiscard]] failure_report report() const { return recovery_.report(); }

  /// For a `guarded_reader`: what to do with an exception.
  [[nodiscard]] detail::recovery& recovery() noexcept { return recovery_; }
  /// For a `guarded_reader`: where it notes what it reads; null where nothing is watched.
  [[nodiscard]] read_progress* progress_of(std::size_t reader) noexcept {
    return watch_.progress_of(reader);
  }

 private:
  detail::recovery recovery_;
  read_watch watch_;
  std::function<sample_origin(std::uint64_t)> origin_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
