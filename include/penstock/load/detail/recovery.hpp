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
#include <penstock/core/layout.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Takes the samples that are gone out of a ragged field of the batch in `slab`: the values of
/// those after them move up, and the offsets say where they are.
inline void close_ragged(std::byte* slab, const slot_layout::field& field,
                         std::span<const std::uint8_t> is_gone) noexcept {
  auto* const offsets = reinterpret_cast<std::int32_t*>(slab + field.offsets_at);
  std::byte* const values = slab + field.offset;
  std::size_t kept = 0;
  std::int32_t begin = offsets[0];  // kept apart: the entry may be overwritten by then
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

/// The question whether a batch is no longer wanted, without the type of who answers it, which must
/// outlive this.
class over_ref {
 public:
  template <std::predicate Over>
    requires(!std::same_as<Over, over_ref>)
  over_ref(const Over& over) noexcept  // NOLINT: implicit, as std::function is
      : over_(&over),
        ask_([](const void* asked) { return bool{(*static_cast<const Over*>(asked))()}; }) {}

  [[nodiscard]] bool operator()() const { return ask_(over_); }

 private:
  const void* over_;
  bool (*ask_)(const void*);
};

/// What an `error_policy` needs besides the readers: the ledger, what each batch has lost, and a
/// place to wait for a retry. With a plain policy it holds nothing and every call is one branch.
///
/// The losses of a slot follow its batch: `begin_batch` by the opener, `note_loss` by the workers
/// that read it, `end_batch` by the worker that completes it, `check_limits` by the consumer.
class recovery {
 public:
  /// `base_sizes`: of the datasets at the bottom of the pipeline, see `base_sizes_of`.
  recovery(const error_policy& policy, std::uint64_t dataset_size, std::size_t slot_count,
           std::size_t batch_size, std::vector<std::uint64_t> base_sizes)
      : policy_(policy), dataset_size_(dataset_size), losses_(is_plain(policy) ? 0 : slot_count) {
    require_known(base_sizes);
    std::sort(policy_.quarantined.begin(), policy_.quarantined.end());
    if (is_on()) ledger_ = std::make_unique<failure_ledger>(std::move(base_sizes));
    if (policy.action != error_action::skip) return;
    for (losses& of_batch : losses_) of_batch.is_gone.resize(batch_size);
  }

  /// What is read in place of bad samples, and what is left out, goes into `lists` too.
  void list_to(sample_lists& lists) noexcept { lists_ = &lists; }

  [[nodiscard]] bool is_on() const noexcept { return !losses_.empty(); }
  [[nodiscard]] const error_policy& policy() const noexcept { return policy_; }
  [[nodiscard]] std::uint64_t dataset_size() const noexcept { return dataset_size_; }
  [[nodiscard]] failure_ledger& ledger() noexcept { return *ledger_; }

  /// Whether any sample is known to be bad.
  [[nodiscard]] bool knows_bad() const noexcept { return !policy_.quarantined.empty(); }
  /// Whether the sample that comes from `origin` is.
  [[nodiscard]] bool is_known_bad(const sample_origin& origin) const noexcept {
    return std::binary_search(policy_.quarantined.begin(), policy_.quarantined.end(), origin.index);
  }

  /// What happened so far; empty with a plain policy.
  [[nodiscard]] failure_report report() const {
    return is_on() ? ledger_->report() : failure_report{};
  }

  /// Opener: a slot is bound to a new batch.
  void begin_batch(std::uint32_t slot) noexcept {
    if (!is_on() || losses_[slot].has_none()) return;
    losses& of_batch = losses_[slot];
    if (lists_ != nullptr) lists_->begin_batch(slot);
    of_batch.count = of_batch.expected = 0;
    of_batch.error = nullptr;
    std::fill(of_batch.is_gone.begin(), of_batch.is_gone.end(), std::uint8_t{0});
  }

  /// Reader: the sample at `position` of the batch in `slot` was given up. Its place was filled by
  /// another sample, or is to be closed.
  void note_loss(std::uint32_t slot, std::uint64_t position, std::uint64_t sample,
                 const std::exception_ptr& error) noexcept {
    losses& of_batch = losses_[slot];
    const std::lock_guard lock{of_batch.mutex};
    of_batch.leave_out(position);
    if (of_batch.count++ != 0 && of_batch.position <= position) return;
    of_batch.error = error;
    of_batch.position = position;
    of_batch.sample = sample;
  }

  /// Reader: the same for a sample that was known to be bad: it counts to no limit.
  void note_expected_loss(std::uint32_t slot, std::uint64_t position) noexcept {
    losses& of_batch = losses_[slot];
    const std::lock_guard lock{of_batch.mutex};
    of_batch.leave_out(position);
    ++of_batch.expected;
  }
  /// Reader: `sample` is at `position` of the batch in `slot` instead of the one that was asked
  /// for.
  void note_substitute(std::uint32_t slot, std::uint64_t position, std::uint64_t sample) noexcept {
    const std::lock_guard lock{losses_[slot].mutex};
    if (lists_ != nullptr)
      lists_->note_substitute(slot, static_cast<std::size_t>(position), sample);
  }

  /// All samples of a batch are read: those after a skipped one move up, in `slab`, and `info`
  /// counts them.
  void end_batch(std::uint32_t slot, std::byte* slab, const slot_layout& layout,
                 batch_info& info) noexcept {
    if (!is_on() || losses_[slot].has_none()) return;
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

  /// Consumer: it gets the batch in `slot`. Null, unless the policy's limits are passed with it:
  /// then the exception of its first lost sample, and in `where` its place and the limit.
  [[nodiscard]] std::exception_ptr check_limits(std::uint32_t slot, const batch_info& info,
                                                failure& where) noexcept {
    if (!is_on()) return nullptr;
    constexpr std::uint64_t least_judged = 100;
    const losses& of_batch = losses_[slot];
    asked_ += info.size + info.skipped;
    lost_ += of_batch.count;
    const bool is_too_large =
        asked_ >= least_judged &&
        static_cast<double>(lost_) > policy_.largest_share * static_cast<double>(asked_);
    const bool are_too_many = lost_ > policy_.most_failures;
    if (of_batch.count == 0 || (!are_too_many && !is_too_large)) return nullptr;
    where = {"read", info.epoch, info.batch, of_batch.position, of_batch.sample};
    if (are_too_many) {
      const auto most = static_cast<double>(policy_.most_failures);
      where.reason = passed_limit{"faults.on_error.most_failures", most, lost_, asked_};
    } else {
      where.reason =
          passed_limit{"faults.on_error.largest_share", policy_.largest_share, lost_, asked_};
    }
    return of_batch.error;
  }

  /// Waits before retry `retry`; false as soon as `is_over()`, which `interrupt` has asked again.
  bool wait(std::size_t retry, const over_ref& is_over) {
    std::unique_lock lock{waiting_};
    return !wake_.wait_for(lock, wait_before(policy_, retry), is_over);
  }

  /// Wakes all waits for retries: a range is over. From any thread.
  void interrupt() noexcept {
    if (!is_on()) return;
    { const std::lock_guard lock{waiting_}; }  // not between a waiter's check and its sleep
    wake_.notify_all();
  }

 private:
  struct alignas(cache_line) losses {
    std::mutex mutex;
    std::uint64_t count = 0;     // what counts to the limits
    std::uint64_t expected = 0;  // what does not
    std::exception_ptr error;    // of the lowest position, with the two below
    std::uint64_t position = 0;
    std::uint64_t sample = 0;
    std::vector<std::uint8_t> is_gone;  // by position; empty unless samples are skipped

    [[nodiscard]] bool has_none() const noexcept { return count == 0 && expected == 0; }
    void leave_out(std::uint64_t which) noexcept {
      if (!is_gone.empty()) is_gone[static_cast<std::size_t>(which)] = 1;
    }
  };

  /// Throws `option_error` where the list of bad samples is not of this dataset.
  void require_known(const std::vector<std::uint64_t>& base_sizes) const {
    if (!knows_bad()) return;
    if (base_sizes.size() != 1) {
      refuse_option("faults.on_error.quarantined",
                    {"a list does not say which of the ", base_sizes.size(),
                     " joined datasets it is of: leave the samples out of each one by "
                     "without(list)"});
    }
    const auto largest = *std::max_element(policy_.quarantined.begin(), policy_.quarantined.end());
    if (largest < base_sizes.front()) return;
    refuse_option("faults.on_error.quarantined",
                  {"sample ", largest, " does not lie in the dataset of ", base_sizes.front(),
                   " samples: is the list of another one?"});
  }

  /// Moves each stretch of samples that stay to the end of the stretch before.
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
  std::uint64_t dataset_size_;
  std::vector<losses> losses_;  // by slot; empty with a plain policy
  std::unique_ptr<failure_ledger> ledger_;
  sample_lists* lists_ = nullptr;
  std::mutex waiting_;
  std::condition_variable wake_;
  std::uint64_t asked_ = 0;  // by the consumer: places of the batches that it was given,
  std::uint64_t lost_ = 0;   // and how many of these lost their sample
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
