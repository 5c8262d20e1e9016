// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Removes the samples marked in `is_gone` from a ragged field of the batch in `slab`. Moves the
/// values of later samples, and updates the offsets.
inline void close_ragged(std::byte* slab, const slot_layout::field& field,
                         std::span<const std::uint8_t> is_gone) noexcept {
  auto* const offsets = reinterpret_cast<std::int32_t*>(slab + field.offsets_at);
  std::byte* const values = slab + field.offset;
  std::size_t kept = 0;
  std::int32_t begin = offsets[0];  // a copy, because the element may be overwritten
  for (std::size_t i = 0; i < is_gone.size(); ++i) {
    const std::int32_t end = offsets[i + 1];
    if (is_gone[i] == 0) {
      const auto bytes = [&](std::int32_t count) {
        return static_cast<std::size_t>(count) * field.sample_bytes;
      };
      std::memmove(values + bytes(offsets[kept]), values + bytes(begin), bytes(end - begin));
      offsets[kept + 1] = offsets[kept] + (end - begin);
      ++kept;
    }
    begin = end;
  }
}

/// A non-owning, type-erased reference to a predicate that returns true if a batch is no longer
/// wanted. The predicate must outlive this object.
class stop_predicate {
 public:
  template <std::predicate Over>
    requires(!std::same_as<Over, stop_predicate>)
  stop_predicate(const Over& over) noexcept  // NOLINT: implicit, as std::function is
      : over_(&over),
        ask_([](const void* predicate) { return bool{(*static_cast<const Over*>(predicate))()}; }) {
  }

  [[nodiscard]] bool operator()() const { return ask_(over_); }

 private:
  const void* over_;
  bool (*ask_)(const void*);
};

/// The state of an `error_policy` that the readers share: the ledger, the losses of each batch, and
/// the waits for retries. A loader creates this object through `recovering`, unless the policy is
/// the default.
///
/// For the batch in a slot, the opener calls `begin_batch`, the workers that read it call
/// `record_loss`, the worker that completes it calls `end_batch`, and the consumer calls
/// `check_limits`.
class recovery {
 public:
  /// Creates the state. `base_sizes` contains the sizes of the source datasets (see
  /// `base_sizes_of`). Throws `option_error` if the quarantine list of the policy does not belong
  /// to this dataset.
  recovery(const error_policy& policy, std::uint64_t dataset_size, std::size_t slot_count,
           std::size_t batch_size, const std::vector<std::uint64_t>& base_sizes)
      : policy_(policy),
        quarantined_(policy.quarantine_list),
        dataset_size_(dataset_size),
        losses_(slot_count),
        ledger_(base_sizes) {
    require_known(base_sizes);
    std::sort(quarantined_.begin(), quarantined_.end());
    policy_.quarantine_list = {};
    if (policy.action != error_action::skip) return;
    for (losses& of_batch : losses_) of_batch.is_gone.resize(batch_size);
  }

  /// Makes this object also record replaced and skipped samples in `lists`.
  void list_to(sample_lists& lists) noexcept { lists_ = &lists; }

  [[nodiscard]] const error_policy& policy() const noexcept { return policy_; }
  [[nodiscard]] std::uint64_t dataset_size() const noexcept { return dataset_size_; }
  [[nodiscard]] failure_ledger& ledger() noexcept { return ledger_; }

  /// Returns true if any sample is quarantined.
  [[nodiscard]] bool knows_bad() const noexcept { return !quarantined_.empty(); }
  /// Returns true if the sample with the origin `origin` is quarantined.
  [[nodiscard]] bool is_quarantined(const sample_origin& origin) const noexcept {
    return std::binary_search(quarantined_.begin(), quarantined_.end(), origin.index);
  }

  /// Returns the failures so far.
  [[nodiscard]] failure_report report() const { return ledger_.report(); }

  /// Resets the losses of `slot`, which is bound to a new batch. Called by the opener.
  void begin_batch(std::uint32_t slot) noexcept {
    if (losses_[slot].has_none()) return;
    losses& of_batch = losses_[slot];
    if (lists_ != nullptr) lists_->begin_batch(slot);
    of_batch.count = of_batch.expected = 0;
    of_batch.error = nullptr;
    std::fill(of_batch.is_gone.begin(), of_batch.is_gone.end(), std::uint8_t{0});
  }

  /// Records that the sample at `position` of the batch in `slot` is lost. Either another sample
  /// has replaced it, or `end_batch` closes the gap. Called by the readers.
  void record_loss(std::uint32_t slot, std::uint64_t position, std::uint64_t sample,
                   const std::exception_ptr& error) noexcept {
    losses& of_batch = losses_[slot];
    const std::lock_guard lock{of_batch.mutex};
    of_batch.leave_out(position);
    if (of_batch.count++ != 0 && of_batch.position <= position) return;
    of_batch.error = error;
    of_batch.position = position;
    of_batch.sample = sample;
  }

  /// Records the loss of a quarantined sample, which does not count towards a limit. Called by the
  /// readers.
  void record_expected_loss(std::uint32_t slot, std::uint64_t position) noexcept {
    losses& of_batch = losses_[slot];
    const std::lock_guard lock{of_batch.mutex};
    of_batch.leave_out(position);
    ++of_batch.expected;
  }
  /// Records that `sample` replaces the requested sample at `position` of the batch in `slot`.
  /// Called by the readers.
  void record_replacement(std::uint32_t slot, std::uint64_t position,
                          std::uint64_t sample) noexcept {
    const std::lock_guard lock{losses_[slot].mutex};
    if (lists_ != nullptr)
      lists_->record_replacement(slot, static_cast<std::size_t>(position), sample);
  }

  /// Completes a batch after all its samples were read. Closes the gaps of skipped samples in
  /// `slab`, and updates `info`.
  void end_batch(std::uint32_t slot, std::byte* slab, const slot_layout& layout,
                 batch_info& info) noexcept {
    if (losses_[slot].has_none()) return;
    if (lists_ != nullptr) lists_->end_batch(slot);
    if (policy_.action != error_action::skip) return;
    const std::span<const std::uint8_t> is_gone{losses_[slot].is_gone.data(), info.size};
    for (const slot_layout::field& field : layout.fields()) {
      if (field.is_ragged) {
        close_ragged(slab, field, is_gone);
      } else {
        close_gaps(slab + field.offset, field.sample_bytes, is_gone);
      }
    }
    if (lists_ != nullptr) lists_->close_gaps(slot, is_gone);
    const auto gone_of = [&](std::size_t count) {
      const auto first = is_gone.first(count);
      return static_cast<std::size_t>(std::count(first.begin(), first.end(), std::uint8_t{1}));
    };
    info.skipped = gone_of(info.size);
    info.valid_size -= gone_of(info.valid_size);
    info.size -= info.skipped;
  }

  /// Counts the losses of the batch in `slot` before the consumer receives it. If this batch
  /// exceeds a limit of the policy, returns the exception of its first lost sample, and sets
  /// `where` to the sample position and the limit. Otherwise returns null. Called by the consumer.
  [[nodiscard]] std::exception_ptr check_limits(std::uint32_t slot, const batch_info& info,
                                                failure& where) noexcept {
    constexpr std::uint64_t min_judged = 100;
    const losses& of_batch = losses_[slot];
    auto& [requested, lost] = judged_;
    requested += info.size + info.skipped;
    lost += of_batch.count;
    const bool is_too_large =
        requested >= min_judged &&
        static_cast<double>(lost) > policy_.max_failure_rate * static_cast<double>(requested);
    const bool are_too_many = lost > policy_.max_failures;
    if (of_batch.count == 0 || (!are_too_many && !is_too_large)) return nullptr;
    where = {"read", info.epoch, info.batch, of_batch.position, of_batch.sample};
    if (are_too_many) {
      const auto max = static_cast<double>(policy_.max_failures);
      where.reason = limit_exceeded{"faults.on_error.max_failures", max, lost, requested};
    } else {
      where.reason = limit_exceeded{"faults.on_error.max_failure_rate", policy_.max_failure_rate,
                                    lost, requested};
    }
    return of_batch.error;
  }

  /// Returns the counts for the limits. Only the consumer thread may call this.
  [[nodiscard]] const judged_samples& judged() const noexcept { return judged_; }
  void judge_from(const judged_samples& judged) noexcept { judged_ = judged; }

  /// Waits for the backoff of retry `retry`. Returns false as soon as `is_over()` is true.
  /// `interrupt` makes a waiting thread check `is_over` again.
  bool wait(std::size_t retry, const stop_predicate& is_over) {
    std::unique_lock lock{waiting_};
    return !wake_.wait_for(lock, wait_before(policy_, retry), is_over);
  }

  /// Wakes all threads that wait for a retry, because a range is over. Any thread may call this.
  void interrupt() noexcept {
    // Once this thread holds the lock, all threads that have checked the condition are asleep.
    { const std::lock_guard lock{waiting_}; }
    wake_.notify_all();
  }

 private:
  struct alignas(cache_line) losses {
    std::mutex mutex;
    std::uint64_t count = 0;     // number of losses that count towards the limits
    std::uint64_t expected = 0;  // number of losses that do not count towards the limits
    std::exception_ptr error;    // error of the sample at the lowest position
    std::uint64_t position = 0;
    std::uint64_t sample = 0;
    std::vector<std::uint8_t> is_gone;  // indexed by position; empty unless samples are skipped

    [[nodiscard]] bool has_none() const noexcept { return count == 0 && expected == 0; }
    void leave_out(std::uint64_t which) noexcept {
      if (!is_gone.empty()) is_gone[static_cast<std::size_t>(which)] = 1;
    }
  };

  /// Throws `option_error` if the quarantine list does not belong to this dataset.
  void require_known(const std::vector<std::uint64_t>& base_sizes) const {
    if (!knows_bad()) return;
    if (base_sizes.size() != 1) {
      throw_option_error(
          "faults.on_error.quarantine_list",
          {"the list does not specify which of the ", base_sizes.size(),
           " concatenated datasets it belongs to: exclude the samples from each dataset "
           "with exclude(list)"});
    }
    const auto largest = *std::max_element(quarantined_.begin(), quarantined_.end());
    if (largest < base_sizes.front()) return;
    throw_option_error("faults.on_error.quarantine_list",
                       {"sample ", largest, " is not in the dataset of ", base_sizes.front(),
                        " samples: check that the list belongs to this dataset"});
  }

  /// Moves each run of remaining samples to the end of the previous run.
  static void close_gaps(std::byte* field, std::size_t sample_bytes,
                         std::span<const std::uint8_t> is_gone) noexcept {
    std::byte* to = field;
    for (std::size_t begin = 0; begin != is_gone.size();) {
      std::size_t end = begin;
      while (end != is_gone.size() && is_gone[end] == is_gone[begin]) ++end;
      if (is_gone[begin] == 0) {
        std::memmove(to, field + begin * sample_bytes, (end - begin) * sample_bytes);
        to += (end - begin) * sample_bytes;
      }
      begin = end;
    }
  }

  error_policy policy_;
  std::vector<std::uint64_t> quarantined_;  // sorted
  std::uint64_t dataset_size_;
  std::vector<losses> losses_;  // indexed by slot
  failure_ledger ledger_;
  sample_lists* lists_ = nullptr;
  std::mutex waiting_;
  std::condition_variable wake_;
  judged_samples judged_;
};

struct chunk;
class retrying_reader;

/// The code of an `error_policy`. Only a program that sets a member of an `error_policy` references
/// the code, and therefore compiles it.
struct recovering {
  /// Creates a `recovery` (see its constructor).
  std::shared_ptr<recovery> (*make)(const error_policy& policy, std::uint64_t dataset_size,
                                    std::size_t slot_count, std::size_t batch_size,
                                    const std::vector<std::uint64_t>& base_sizes);
  /// Reads the runs of samples in a chunk between quarantined samples. Returns false if the chunk
  /// fails.
  bool (*read_good)(retrying_reader&, const chunk&, const stop_predicate& is_over);
  /// Handles a chunk that has failed with `error` at position `at` according to the policy. Returns
  /// false if the chunk remains failed.
  bool (*reread_singly)(retrying_reader&, const chunk&, std::size_t at,
                        const std::exception_ptr& error, const stop_predicate& is_over);
  /// Pointers to member functions of `recovery`.
  void (recovery::*list_to)(sample_lists&) noexcept;
  failure_report (recovery::*report)() const;
  void (recovery::*begin_batch)(std::uint32_t slot) noexcept;
  void (recovery::*end_batch)(std::uint32_t slot, std::byte* slab, const slot_layout&,
                              batch_info&) noexcept;
  std::exception_ptr (recovery::*check_limits)(std::uint32_t slot, const batch_info&,
                                               failure& where) noexcept;
  const judged_samples& (recovery::*judged)() const noexcept;
  void (recovery::*judge_from)(const judged_samples&) noexcept;
  void (recovery::*interrupt)() noexcept;

  static const recovering code;  ///< defined in `retrying_reader.hpp`
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
