// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
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

#include <penstock/core/detail/cache_line.hpp>
#include <penstock/core/error.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/faults/detail/read_watch.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/detail/host_slots.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What an engine's `error_policy` needs beside the readers: the ledger, what each batch has lost, and
/// a place to wait for a retry. With a plain policy it holds nothing and every call is one branch.
///
/// The losses of a slot go the way of its batch: `open` by the opener, `note_loss` by the workers that
/// read it, `close` by the one who finishes it, `judge` by the consumer.
class recovery {
 public:
  /// `base_sizes`: of the datasets at the bottom of the pipeline, see `base_sizes_of`.
  recovery(const error_policy& policy, std::uint64_t dataset_size, std::size_t slot_count,
           std::size_t batch_size, std::vector<std::uint64_t> base_sizes)
      : policy_(policy), dataset_size_(dataset_size), losses_(is_plain(policy) ? 0 : slot_count) {
    if (is_on()) ledger_ = std::make_unique<failure_ledger>(std::move(base_sizes));
    if (policy.action != error_action::skip) return;
    for (losses& of_batch : losses_) of_batch.is_gone.resize(batch_size);
  }

  [[nodiscard]] bool is_on() const noexcept { return !losses_.empty(); }
  [[nodiscard]] const error_policy& policy() const noexcept { return policy_; }
  [[nodiscard]] std::uint64_t dataset_size() const noexcept { return dataset_size_; }
  [[nodiscard]] failure_ledger& ledger() noexcept { return *ledger_; }

  /// What happened so far; empty with a plain policy.
  [[nodiscard]] failure_report report() const {
    return is_on() ? ledger_->report() : failure_report{};
  }

  /// A slot is bound to a new batch.
  void open(std::uint32_t slot) noexcept {
    if (!is_on() || losses_[slot].count == 0) return;
    losses& of_batch = losses_[slot];
    of_batch.count = 0;
    of_batch.error = nullptr;
    std::fill(of_batch.is_gone.begin(), of_batch.is_gone.end(), std::uint8_t{0});
  }

  /// The sample at `position` of the batch in `slot` was given up; its place was filled or is to go.
  void note_loss(std::uint32_t slot, std::uint64_t position, std::uint64_t sample,
                 const std::exception_ptr& error) noexcept {
    losses& of_batch = losses_[slot];
    const std::lock_guard lock{of_batch.mutex};
    if (!of_batch.is_gone.empty()) of_batch.is_gone[static_cast<std::size_t>(position)] = 1;
    if (of_batch.count++ != 0 && of_batch.position <= position) return;
    of_batch.error = error;
    of_batch.position = position;
    of_batch.sample = sample;
  }

  /// All samples of a batch are read: those behind a skipped one move up.
  template <record_type Record>
  void close(std::uint32_t slot, std::byte* slab, const batch_layout<Record>& layout,
             batch_info& info) noexcept {
    if (!is_on() || policy_.action != error_action::skip || losses_[slot].count == 0) return;
    const std::span<const std::uint8_t> is_gone{losses_[slot].is_gone.data(), info.size};
    [&]<std::size_t... Fields>(std::index_sequence<Fields...>) {
      (close_gaps(slab + layout.template offset<Fields>(), layout.template sample_bytes<Fields>(),
                  is_gone),
       ...);
    }
    (std::make_index_sequence<Record::size>{});
    const auto gone_of = [&](std::size_t count) {
      const auto first = is_gone.first(count);
      return static_cast<std::size_t>(std::count(first.begin(), first.end(), std::uint8_t{1}));
    };
    info.skipped = gone_of(info.size);
    info.valid -= gone_of(info.valid);
    info.size -= info.skipped;
  }

  /// The consumer gets the batch in `slot`. Where the policy's limits are passed with it: the exception
  /// of its first lost sample, and in `where` where that was and which limit; else null.
  [[nodiscard]] std::exception_ptr judge(std::uint32_t slot, const batch_info& info,
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
    where = {"read", info.epoch, info.index, of_batch.position, of_batch.sample};
    if (are_too_many) {
      const auto most = static_cast<double>(policy_.most_failures);
      where.reason = passed_limit{"on_error.most_failures", most, lost_, asked_};
    } else {
      where.reason = passed_limit{"on_error.largest_share", policy_.largest_share, lost_, asked_};
    }
    return of_batch.error;
  }

  /// Waits before retry `retry`; false as soon as `is_over()`, which is asked again at `interrupt`.
  template <class IsOver>
  bool wait(std::size_t retry, const IsOver& is_over) {
    std::unique_lock lock{waiting_};
    return !wake_.wait_for(lock, wait_before(policy_, retry), is_over);
  }

  /// Some range is over: ends the waits for retries in it.
  void interrupt() noexcept {
    if (!is_on()) return;
    { const std::lock_guard lock{waiting_}; }  // between a waiter's look and its sleep: after it
    wake_.notify_all();
  }

 private:
  struct alignas(detail::cache_line) losses {
    std::mutex mutex;
    std::uint64_t count = 0;
    std::exception_ptr error;  // of the lowest position, with the two below
    std::uint64_t position = 0;
    std::uint64_t sample = 0;
    std::vector<std::uint8_t> is_gone;  // by position; empty unless samples are skipped
  };

  /// Moves each stretch of samples that stay to the end of the one before.
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
  std::mutex waiting_;
  std::condition_variable wake_;
  std::uint64_t asked_ = 0;  // of the consumer: places of the batches that it was given
  std::uint64_t lost_ = 0;   // and how many of them lost their sample
};

/// Whether a run that fails is sure to name the sample: read one by one by `read_run` itself. Below an
/// adaptor, a dataset that reads runs names the run's first where it can't tell.
template <dataset D>
inline constexpr bool names_failed_sample = !reads_runs<D> && !reads_runs_in_context<D>;
template <dataset D>
inline constexpr bool names_failed_sample<dataset_ref<D>> = names_failed_sample<D>;

/// A `reader` that follows an error policy: what it throws is for the consumer.
template <dataset D>
class recovering_reader {
 public:
  using record_type = typename D::record_type;

  /// Reads from `data` by the rules of `shared`, seen by whoever looks at `mark` (null: nobody). All
  /// three must outlive it.
  recovering_reader(const D& data, recovery& shared, read_mark* mark)
      : data_(&data), source_(data), shared_(&shared), mark_(mark) {}

  /// Reads the run `samples` of the batch in `slot` into `out`. Once `is_over()`, nobody wants the
  /// batch any more, and it may stay unfinished.
  template <class IsOver>
  void read(std::uint32_t slot, std::span<const std::uint64_t> samples,
            const batch_view<record_type>& out, const random_key& key, const IsOver& is_over) {
    try {
      read_marked(samples, out, key);
    } catch (...) {
      failed_at_ = source_.failed_at();
      is_exact_ = failed_at_ != 0 || samples.size() == 1 || names_failed_sample<D>;
      if (failed_at_ >= samples.size()) {  // a dataset may have noted any number
        failed_at_ = 0;
        is_exact_ = false;
      }
      if (!shared_->is_on()) throw;
      mend({slot, samples, out, key}, std::current_exception(), is_over);
    }
  }

  /// After an exception out of `read`: the place in the run of the sample that it is about. Not
  /// `is_exact()`: of the run's first, nobody knows which one failed.
  [[nodiscard]] std::size_t failed_at() const noexcept { return failed_at_; }
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }

 private:
  struct run {
    std::uint32_t slot;
    std::span<const std::uint64_t> samples;
    batch_view<record_type> out;
    random_key key;
  };

  void read_marked(std::span<const std::uint64_t> samples, const batch_view<record_type>& out,
                   const random_key& key) {
    const marked_read under_way{mark_, out.first(), samples, source_.progress()};
    source_.read(samples, out, key);
  }

  /// Reads a run that has failed again, one by one: an adaptor may not have finished any of its
  /// samples. A sample that is known to have failed is not asked a second time for nothing.
  template <class IsOver>
  void mend(const run& all, const std::exception_ptr& error, const IsOver& is_over) {
    const std::size_t blamed = failed_at_;
    const bool is_sure = std::exchange(is_exact_, true);  // from here on, one by one
    for (std::size_t i = 0; i < all.samples.size() && !is_over(); ++i) {
      failed_at_ = i;
      const bool has_failed = is_sure && i == blamed;
      const auto first = has_failed ? error : try_read(all, i, all.samples[i]);
      if (first) settle(all, i, first, is_over);
    }
  }

  /// Null, or the exception of reading `sample` into place `i`.
  std::exception_ptr try_read(const run& all, std::size_t i, const std::uint64_t& sample) noexcept {
    try {
      read_marked({&sample, 1}, all.out.subrun(i, 1), all.key);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  /// Does with the sample at place `i`, which has thrown `error`, what the policy says.
  template <class IsOver>
  void settle(const run& all, std::size_t i, std::exception_ptr error, const IsOver& is_over) {
    const std::uint64_t sample = all.samples[i];
    failure_ledger& ledger = shared_->ledger();
    ledger.note_failure(sample, error, origin_of(*data_, sample));
    for (std::size_t retry = 1; retry <= shared_->policy().retries; ++retry) {
      if (!shared_->wait(retry, is_over)) return;
      error = try_read(all, i, sample);
      if (!error) return ledger.note_outcome(sample, read_outcome::recovered);
      ledger.note_failure(sample, error, origin_of(*data_, sample));
    }
    const bool is_skipped = shared_->policy().action == error_action::skip;
    if (is_skipped || (shared_->policy().action == error_action::substitute && fill(all, i))) {
      ledger.note_outcome(sample, is_skipped ? read_outcome::skipped : read_outcome::substituted);
      shared_->note_loss(all.slot, all.out.first() + i, sample, error);
      return;
    }
    ledger.note_outcome(sample, read_outcome::propagated);
    std::rethrow_exception(error);
  }

  /// Reads another sample into place `i`; false when there is none that can be read.
  bool fill(const run& all, std::size_t i) noexcept {
    if (shared_->dataset_size() < 2) return false;
    substitutes others{all.key, all.samples[i], shared_->dataset_size()};
    for (int turn = 0; turn < substitutes::most; ++turn) {
      const std::uint64_t other = others.next();
      const auto error = try_read(all, i, other);
      if (!error) return true;
      shared_->ledger().note_failure(other, error, origin_of(*data_, other));
      shared_->ledger().note_outcome(other, read_outcome::substituted, false);
    }
    return false;
  }

  const D* data_;
  reader<D> source_;
  recovery* shared_;
  read_mark* mark_;
  std::size_t failed_at_ = 0;
  bool is_exact_ = true;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
