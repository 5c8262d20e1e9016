// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/cache_line.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/dataset_members.hpp>
#include <penstock/data/support/dataset_ref.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/detail/faults/read_guard.hpp>
#include <penstock/load/detail/faults/read_progress.hpp>
#include <penstock/load/detail/faults/recovery.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether a run that fails is sure to name the sample: read one by one by `read_run` itself. Below
/// an adaptor, a dataset that reads runs names the run's first where it can't tell.
template <dataset D>
inline constexpr bool names_failed_sample = !reads_runs<D> && !reads_runs_in_context<D>;
template <dataset D>
inline constexpr bool names_failed_sample<dataset_ref<D>> = names_failed_sample<D>;

/// What a `read_guard` has to know of `data`, which has `size` samples and must outlive it.
template <dataset D>
[[nodiscard]] guarded_data facts_of(const D& data, std::uint64_t size) {
  return {.size = size,
          .base_sizes = base_sizes_of(data),
          .names_failed_sample = names_failed_sample<D>,
          .origin = [&data](std::uint64_t sample) { return origin_of(data, sample); }};
}

/// The way of one thread to the dataset: a `reader` that follows an error policy and shows what it
/// reads. All its memory is taken at construction. On a cache line of its own, since a reader notes
/// every sample that it works on.
template <dataset D>
class alignas(cache_line) guarded_reader {
 public:
  using record_type = typename D::record_type;

  /// Reader `index` of `guard`, for runs of at most `most` samples of `data`; refers to both.
  guarded_reader(const D& data, read_guard& guard, std::size_t index, std::size_t most)
      : data_(&data),
        source_(data),
        shared_(&guard.recovery()),
        progress_(guard.progress_of(index)),
        indices_(most) {}

  /// Memory for the indices of a run of `count` samples, to be read next.
  [[nodiscard]] std::span<std::uint64_t> indices(std::size_t count) noexcept {
    return {indices_.data(), count};
  }

  /// Reads the run `samples` of the batch `info` in `slot` into `out`, a view of that run. What it
  /// throws is for the consumer; `where()` is its place then. Once `is_over()`, the batch is no
  /// longer wanted and may stay unfinished. `times` times the samples, unless null.
  template <class IsOver>
  void read(std::uint32_t slot, const batch_info& info, std::span<const std::uint64_t> samples,
            const batch_view<record_type>& out, const random_key& key, const IsOver& is_over,
            sample_clock* times = nullptr) {
    if (progress_ != nullptr) progress_->enter_batch(info.epoch, info.batch);
    const run all{slot, info, samples, out, key};
    if (shared_->knows_bad()) [[unlikely]] {
      if (times != nullptr) times->abandon();
      return read_good(all, is_over);
    }
    read_stretch(all, is_over, times);
  }

  /// After an exception out of `read`: the place of the sample that it is about; not `exact` where
  /// it may be about any sample of the run.
  [[nodiscard]] const failure& where() const noexcept { return failed_; }

  /// Shows that the order of `epoch` is being made, of which batch `batch` is the first one that
  /// needs it, for as long as the result lives.
  [[nodiscard]] order_scope shows_order(std::uint64_t epoch, std::uint64_t batch) const noexcept {
    return {progress_, epoch, batch};
  }

 private:
  struct run {
    std::uint32_t slot;
    const batch_info& info;
    std::span<const std::uint64_t> samples;
    batch_view<record_type> out;
    const random_key& key;
  };

  void read_shown(std::span<const std::uint64_t> samples, const batch_view<record_type>& out,
                  const random_key& key, sample_clock* times = nullptr) {
    const read_scope under_way{progress_, out.first(), samples, source_.progress()};
    source_.read(samples, out, key, times);
  }

  template <class IsOver>
  void read_stretch(const run& all, const IsOver& is_over, sample_clock* times) {
    try {
      read_shown(all.samples, all.out, all.key, times);
    } catch (...) {
      if (times != nullptr) times->abandon();
      const std::size_t at = source_.failed_at();
      if (at < all.samples.size()) {
        blame(all, at, at != 0 || all.samples.size() == 1 || names_failed_sample<D>);
      } else {  // it is not known; or a dataset has noted any number
        blame(all, 0, all.samples.size() == 1);
      }
      if (!shared_->is_on()) {
        if constexpr (!names_failed_sample<D>) rethrow_earlier(all, at, is_over);
        throw;
      }
      reread_singly(all, at, std::current_exception(), is_over);
    }
  }

  /// A run has failed at place `at`. Where samples pass through several stages a later one may fail
  /// at an earlier place: throws that, if there is one.
  template <class IsOver>
  void rethrow_earlier(const run& all, std::size_t at, const IsOver& is_over) {
    if (at >= all.samples.size()) return;  // it is not known
    for (std::size_t i = 0; i < at && !is_over(); ++i) {
      if (const auto earlier = try_read(all, i, all.samples[i])) {
        blame(all, i, true);
        std::rethrow_exception(earlier);
      }
    }
  }

  [[nodiscard]] bool is_known_bad(std::uint64_t sample) const noexcept {
    return shared_->is_known_bad(origin_of(*data_, sample));
  }

  /// Reads the stretches between the samples that are known to be bad.
  template <class IsOver>
  void read_good(const run& all, const IsOver& is_over) {
    const std::size_t count = all.samples.size();
    for (std::size_t begin = 0; begin < count && !is_over();) {
      if (is_known_bad(all.samples[begin])) {
        pass_over(all, begin++);
        continue;
      }
      std::size_t end = begin + 1;
      while (end < count && !is_known_bad(all.samples[end])) ++end;
      read_stretch({all.slot, all.info, all.samples.subspan(begin, end - begin),
                    all.out.subrun(begin, end - begin), all.key},
                   is_over, nullptr);
      begin = end;
    }
  }

  /// Does with the sample at place `i`, which is known to be bad, what the policy says.
  void pass_over(const run& all, std::size_t i) {
    const std::uint64_t sample = all.samples[i];
    const sample_origin origin = origin_of(*data_, sample);
    const error_action action = shared_->policy().action;
    const bool is_skipped = action == error_action::skip;
    blame(all, i, true);
    if (!is_skipped && (action != error_action::substitute || !substitute(all, i))) {
      shared_->ledger().note_known_bad(sample, origin, read_outcome::propagated);
      throw known_bad_sample(origin.index, action == error_action::substitute);
    }
    shared_->ledger().note_known_bad(
        sample, origin, is_skipped ? read_outcome::skipped : read_outcome::substituted);
    shared_->note_expected_loss(all.slot, all.out.first() + i);
  }

  void blame(const run& all, std::size_t i, bool is_exact) noexcept {
    failed_ = {"read",         all.info.epoch, all.info.batch, all.out.first() + i,
               all.samples[i], is_exact};
  }

  /// Reads a run that has failed at place `at` again, one by one: an adaptor may not have finished
  /// any of its samples. A sample that is known to have failed is not read again before its first
  /// retry.
  template <class IsOver>
  void reread_singly(const run& all, std::size_t at, const std::exception_ptr& error,
                     const IsOver& is_over) {
    const bool is_sure = failed_.exact;
    for (std::size_t i = 0; i < all.samples.size() && !is_over(); ++i) {
      blame(all, i, true);
      const bool has_failed = is_sure && i == at;
      const auto first = has_failed ? error : try_read(all, i, all.samples[i]);
      if (first) apply_policy(all, i, first, is_over);
    }
  }

  /// Null, or the exception of reading `sample` into place `i`.
  std::exception_ptr try_read(const run& all, std::size_t i, const std::uint64_t& sample) noexcept {
    try {
      read_shown({&sample, 1}, all.out.subrun(i, 1), all.key);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  /// Does with the sample at place `i`, which has thrown `error`, what the policy says.
  template <class IsOver>
  void apply_policy(const run& all, std::size_t i, std::exception_ptr error,
                    const IsOver& is_over) {
    const std::uint64_t sample = all.samples[i];
    failure_ledger& ledger = shared_->ledger();
    const auto first = error;
    ledger.note_failure(sample, error, origin_of(*data_, sample));
    for (std::size_t retry = 1; retry <= shared_->policy().retries; ++retry) {
      if (!shared_->wait(retry, is_over)) return;
      error = try_read(all, i, sample);
      if (!error) return ledger.note_outcome(sample, read_outcome::recovered);
      ledger.note_failure(sample, error, origin_of(*data_, sample));
    }
    const error_action action = shared_->policy().action;
    const bool is_skipped = action == error_action::skip;
    if (is_skipped || (action == error_action::substitute && substitute(all, i))) {
      ledger.note_outcome(sample, is_skipped ? read_outcome::skipped : read_outcome::substituted);
      shared_->note_loss(all.slot, all.out.first() + i, sample, error);
      return;
    }
    ledger.note_outcome(sample, read_outcome::propagated);
    std::rethrow_exception(first);
  }

  /// Reads another sample into place `i`; false when none of those drawn can be read.
  bool substitute(const run& all, std::size_t i) noexcept {
    if (shared_->dataset_size() < 2) return false;
    substitutes others{all.key, all.samples[i], shared_->dataset_size()};
    for (int turn = 0; turn < substitutes::most; ++turn) {
      const std::uint64_t other = others.next();
      if (shared_->knows_bad() && is_known_bad(other)) continue;
      const auto error = try_read(all, i, other);
      if (!error) {
        shared_->note_substitute(all.slot, all.out.first() + i, other);
        return true;
      }
      shared_->ledger().note_failure(other, error, origin_of(*data_, other));
      shared_->ledger().note_outcome(other, read_outcome::substituted, false);
    }
    return false;
  }

  const D* data_;
  reader<D> source_;
  recovery* shared_;
  read_progress* progress_;
  std::vector<std::uint64_t> indices_;
  failure failed_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
