// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/detail/read_supervisor.hpp>
#include <penstock/load/detail/recovery.hpp>
#include <penstock/load/detail/source_ops.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/order/random.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The part of a batch that a thread reads at a time, which is a run of consecutive samples.
struct chunk {
  std::uint32_t slot;
  const batch_info& info;  ///< batch that contains the chunk
  std::byte* slab;         ///< memory of the batch
  std::size_t first;       ///< position of the first sample in the batch
  std::span<const std::uint64_t> samples;
  const random_key& key;

  /// Returns the part with `count` samples, starting at sample `begin`.
  [[nodiscard]] chunk part(std::size_t begin, std::size_t count) const noexcept {
    return {slot, info, slab, first + begin, samples.subspan(begin, count), key};
  }
};

/// Reads chunks on one thread according to an error policy, and records the current read for the
/// watch. Allocates all memory at construction. Each reader is on a separate cache line, because it
/// records every sample that it reads.
class alignas(cache_line) retrying_reader {
 public:
  /// Creates reader `index` of `guard`, which reads chunks of at most `max` samples from `source`.
  /// References `source` and `guard`.
  retrying_reader(const source_ops& source, read_supervisor& guard, std::size_t index,
                  std::size_t max)
      : source_(&source),
        memory_(source.scratch_bytes()),
        supervisor_(&guard),
        shared_(guard.recovery()),
        progress_(guard.progress_of(index)),
        indices_(max) {}

  /// Returns memory for the `count` sample indices of the next chunk.
  [[nodiscard]] std::span<std::uint64_t> indices(std::size_t count) noexcept {
    return {indices_.data(), count};
  }

  /// Reads a chunk. Returns null, or the error that replaces the batch, which the caller may move
  /// from. If `is_over()` is true, the batch is no longer wanted and may remain incomplete. Samples
  /// are timed unless `times` is null.
  [[nodiscard]] failed_batch* read(const chunk& all, const stop_predicate& is_over,
                                   sample_clock* times = nullptr) noexcept {
    if (progress_ != nullptr) progress_->enter_batch(all.info.epoch, all.info.batch);
    bool is_read = false;
    if (shared_ != nullptr && shared_->knows_bad()) [[unlikely]] {
      if (times != nullptr) times->abandon();
      is_read = supervisor_->recovering()->read_good(*this, all, is_over);
    } else {
      is_read = read_stretch(all, is_over, times);
    }
    return is_read ? nullptr : &failed_;
  }

  /// Records for the watch that the order of `epoch` is being computed, until the returned object
  /// is destroyed. `batch` is the first batch that needs the order.
  [[nodiscard]] read_scope shows_order(std::uint64_t epoch, std::uint64_t batch) const noexcept {
    return {progress_, "order", epoch, batch};
  }
  /// Records for the watch that the lengths of the samples in this batch are being requested, until
  /// the returned object is destroyed.
  [[nodiscard]] read_scope shows_lengths(std::uint64_t epoch, std::uint64_t batch) const noexcept {
    return {progress_, "lengths", epoch, batch};
  }

  /// @name Functions of `recovering` @{
  [[nodiscard]] static std::shared_ptr<recovery> make_recovery(
      const error_policy& policy, std::uint64_t dataset_size, std::size_t slot_count,
      std::size_t batch_size, const std::vector<std::uint64_t>& base_sizes) {
    return std::make_shared<recovery>(policy, dataset_size, slot_count, batch_size, base_sizes);
  }
  static bool read_good_by(retrying_reader& reader, const chunk& all,
                           const stop_predicate& is_over) {
    return reader.read_good(all, is_over);
  }
  static bool reread_singly_by(retrying_reader& reader, const chunk& all, std::size_t at,
                               const std::exception_ptr& error, const stop_predicate& is_over) {
    return reader.reread_singly(all, at, error, is_over);
  }
  /// @}

 private:
  /// Reads a chunk. Returns null or the exception of the read.
  std::exception_ptr try_read(const chunk& all, sample_clock* times = nullptr) noexcept {
    const read_scope under_way{progress_, all.first, all.samples, memory_.progress()};
    try {
      source_->read(all.samples, all.slab, all.first, all.key, memory_, times);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  bool read_stretch(const chunk& all, const stop_predicate& is_over, sample_clock* times) noexcept {
    const auto error = try_read(all, times);
    if (!error) [[likely]]
      return true;
    if (times != nullptr) times->abandon();
    return recover(all, error, is_over);
  }

  /// Handles a chunk that has failed with `error` according to the policy. Returns false if the
  /// chunk remains failed.
  [[gnu::cold]] bool recover(const chunk& all, const std::exception_ptr& error,
                             const stop_predicate& is_over) noexcept {
    const std::size_t at = memory_.progress().load(std::memory_order_relaxed);
    const bool names_sample = supervisor_->names_failed_sample();
    if (at < all.samples.size()) {
      set_failure(all, at, at != 0 || all.samples.size() == 1 || names_sample);
    } else {  // The position is unknown, or the dataset stored an invalid position.
      set_failure(all, 0, all.samples.size() == 1);
    }
    if (shared_ != nullptr) {
      return supervisor_->recovering()->reread_singly(*this, all, at, error, is_over);
    }
    failed_.error = error;
    if (!names_sample) look_earlier(all, at, is_over);
    return false;
  }

  /// Searches a chunk that has failed at position `at` for an earlier failure, and reports the
  /// earlier failure instead. If samples pass through several stages, a stage that runs later may
  /// fail at an earlier position.
  [[gnu::cold]] void look_earlier(const chunk& all, std::size_t at,
                                  const stop_predicate& is_over) noexcept {
    if (at >= all.samples.size()) return;  // the position is unknown
    for (std::size_t i = 0; i < at && !is_over(); ++i) {
      if (const auto earlier = try_read(all.part(i, 1))) {
        set_failure(all, i, true);
        failed_.error = earlier;
        return;
      }
    }
  }

  [[nodiscard]] bool is_quarantined(std::uint64_t sample) const noexcept {
    return shared_->is_quarantined(supervisor_->origin(sample));
  }

  /// Reads the runs of samples between quarantined samples.
  [[gnu::noinline]] bool read_good(const chunk& all, const stop_predicate& is_over) noexcept {
    const std::size_t count = all.samples.size();
    for (std::size_t begin = 0; begin < count && !is_over();) {
      if (is_quarantined(all.samples[begin])) {
        if (!skip_quarantined(all, begin++)) return false;
        continue;
      }
      std::size_t end = begin + 1;
      while (end < count && !is_quarantined(all.samples[end])) ++end;
      if (!read_stretch(all.part(begin, end - begin), is_over, nullptr)) return false;
      begin = end;
    }
    return true;
  }

  /// Handles the quarantined sample at position `i` according to the policy. Returns false if the
  /// chunk fails.
  [[gnu::cold]] bool skip_quarantined(const chunk& all, std::size_t i) noexcept {
    const std::uint64_t sample = all.samples[i];
    const sample_origin origin = supervisor_->origin(sample);
    const error_action action = shared_->policy().action;
    const bool is_skipped = action == error_action::skip;
    set_failure(all, i, true);
    if (!is_skipped && (action != error_action::replace || !replace(all, i))) {
      shared_->ledger().record_quarantined(sample, origin, read_outcome::propagated);
      try {
        throw quarantined_sample(origin.index, action == error_action::replace);
      } catch (...) {  // `quarantined_sample` or std::bad_alloc
        failed_.error = std::current_exception();
      }
      return false;
    }
    shared_->ledger().record_quarantined(
        sample, origin, is_skipped ? read_outcome::skipped : read_outcome::replaced);
    shared_->record_expected_loss(all.slot, all.first + i);
    return true;
  }

  void set_failure(const chunk& all, std::size_t i, bool is_exact) noexcept {
    failed_.place =
        failure{"read", all.info.epoch, all.info.batch, all.first + i, all.samples[i], is_exact};
  }

  /// Reads a chunk that has failed at position `at` again, one sample at a time, because an adaptor
  /// may have left all samples incomplete. The sample that has failed is not read again before its
  /// first retry.
  [[gnu::cold]] bool reread_singly(const chunk& all, std::size_t at,
                                   const std::exception_ptr& error,
                                   const stop_predicate& is_over) noexcept {
    const bool is_sure = failed_.place->exact;
    for (std::size_t i = 0; i < all.samples.size() && !is_over(); ++i) {
      set_failure(all, i, true);
      const bool has_failed = is_sure && i == at;
      const auto first = has_failed ? error : try_read(all.part(i, 1));
      if (first && !apply_policy(all, i, first, is_over)) return false;
    }
    return true;
  }

  /// Handles the sample at position `i`, which has thrown `first`, according to the policy. Returns
  /// false if the chunk fails.
  [[gnu::cold]] bool apply_policy(const chunk& all, std::size_t i, const std::exception_ptr& first,
                                  const stop_predicate& is_over) noexcept {
    const std::uint64_t sample = all.samples[i];
    failure_ledger& ledger = shared_->ledger();
    auto error = first;
    ledger.record_failure(sample, error, supervisor_->origin(sample));
    for (std::size_t retry = 1; retry <= shared_->policy().retries; ++retry) {
      if (!shared_->wait(retry, is_over)) return true;
      error = try_read(all.part(i, 1));
      if (!error) {
        ledger.record_outcome(sample, read_outcome::recovered);
        return true;
      }
      ledger.record_failure(sample, error, supervisor_->origin(sample));
    }
    const error_action action = shared_->policy().action;
    const bool is_skipped = action == error_action::skip;
    if (is_skipped || (action == error_action::replace && replace(all, i))) {
      ledger.record_outcome(sample, is_skipped ? read_outcome::skipped : read_outcome::replaced);
      shared_->record_loss(all.slot, all.first + i, sample, error);
      return true;
    }
    ledger.record_outcome(sample, read_outcome::propagated);
    failed_.error = first;
    return false;
  }

  /// Reads another sample into position `i`. Returns false if every drawn sample fails.
  [[gnu::cold]] bool replace(const chunk& all, std::size_t i) noexcept {
    if (shared_->dataset_size() < 2) return false;
    substitutes others{all.key, all.samples[i], shared_->dataset_size()};
    for (int turn = 0; turn < substitutes::max; ++turn) {
      const std::uint64_t other = others.next();
      if (shared_->knows_bad() && is_quarantined(other)) continue;
      chunk instead = all.part(i, 1);
      instead.samples = {&other, 1};
      const auto error = try_read(instead);
      if (!error) {
        shared_->record_replacement(all.slot, all.first + i, other);
        return true;
      }
      shared_->ledger().record_failure(other, error, supervisor_->origin(other));
      shared_->ledger().record_outcome(other, read_outcome::replaced, false);
    }
    return false;
  }

  const source_ops* source_;
  chunk_memory memory_;
  read_supervisor* supervisor_;
  recovery* shared_;  // null with the default policy
  read_progress* progress_;
  std::vector<std::uint64_t> indices_;
  failed_batch failed_;  // error of the last chunk
};

inline constexpr recovering recovering::code{&retrying_reader::make_recovery,
                                             &retrying_reader::read_good_by,
                                             &retrying_reader::reread_singly_by,
                                             &recovery::list_to,
                                             &recovery::report,
                                             &recovery::begin_batch,
                                             &recovery::end_batch,
                                             &recovery::check_limits,
                                             &recovery::judged,
                                             &recovery::judge_from,
                                             &recovery::interrupt};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
