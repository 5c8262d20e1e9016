// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What to do with a sample that can't be read.
enum class error_action {
  propagate,   ///< the range ends with the dataset's exception, at that batch's turn
  substitute,  ///< another sample takes its place: every batch, and every rank, keeps its size
  skip,        ///< the batch is shorter; later samples move up, `batch_info::skipped` counts
};

/// What a loader does with an exception from a dataset or a `map` function. By default the
/// exception reaches the consumer unchanged, and `last_failure()` says where it came from.
///
///     {.faults = {.on_error = {.retries = 3, .action = ps::error_action::substitute}}}
///
/// What a deterministic failure leads to does not depend on workers, chunk or prefetch: limits are
/// judged batch by batch as the consumer gets them (by order of completion where `in_order` is
/// false). A dataset that reads chunks is asked again sample by sample after a chunk has failed; a
/// sample that is read a second time gets the same random bits. All that happened is in
/// `loader::failures()`.
struct error_policy {
  /// How often a failed read is tried again before `action` applies. At most 100.
  std::size_t retries = 0;

  /// The wait before the first retry; it doubles from one to the next, up to `longest_wait`. It
  /// ends early when the range does. The worker that waits reads nothing else meanwhile.
  std::chrono::milliseconds first_wait{10};
  /// The longest wait before a retry; at most a day.
  std::chrono::milliseconds longest_wait{10'000};

  /// What follows the last retry.
  ///
  /// `substitute` draws from the whole dataset, keyed by (seed, epoch, index of the bad sample),
  /// and reads with the random bits of the sample drawn. If that one fails too, the next draw
  /// follows, without retries; after the eighth, the first exception propagates. Indices that must
  /// never be drawn, such as those of another split, have to be left out by a `subset`.
  ///
  /// `skip` may leave a batch of size 0, which is delivered like any other. A batch that
  /// `partial_batch::pad` has filled up is not filled again.
  error_action action = error_action::propagate;

  /// How many samples may be substituted or skipped over the loader's life. The batch that passes
  /// the limit is not delivered: the exception of its first such sample propagates, and so for
  /// every later batch that has one. A read that succeeds in a retry does not count.
  std::uint64_t most_failures = 1000;

  /// The limit as a share of all samples that were asked for, in [0, 1]; checked from 100
  /// samples on.
  double largest_share = 0.05;

  /// Samples that are known to be bad, as `read_quarantine` reads them: numbered as in the dataset
  /// at the bottom of the pipeline, below `subset` and `map`, in any order. They are taken for
  /// failed without being read, and retried: `action` applies at once, and an exception is a
  /// `quarantined_sample`. So order, state and all other samples stay as they are, also in the
  /// middle of a chunk. They are in `loader::failures()` and in its quarantine list, as far as
  /// there is room beside samples that fail, and count to no limit. Over datasets that `concat`
  /// joins it is refused: take `without`. With ragged fields the length of such a sample is still
  /// asked for, before any is read: one that throws or is too long ends the range, and `without`
  /// leaves the sample out.
  std::vector<std::uint64_t> quarantined = {};
};

/// A sample of `error_policy::quarantined` was asked for, and neither skipped nor substituted.
class [[gnu::visibility("default")]] quarantined_sample : public error {
 public:
  /// For sample `index` of the dataset at the bottom of the pipeline; `has_no_substitute` where one
  /// was looked for.
  explicit quarantined_sample(std::uint64_t index, bool has_no_substitute = false)
      : error(detail::joined(
            {"quarantined_sample: sample ", index,
             " of the dataset is on the list faults.on_error.quarantined and was not read",
             has_no_substitute ? ", and none of those drawn to substitute it could be: choose "
                                 "error_action::skip, or leave it out by without(list)"
                               : ": choose error_action::skip or substitute, or leave it out by "
                                 "without(list)"})),
        index_(index) {}
  /// The sample's index in the dataset at the bottom of the pipeline.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }

 private:
  std::uint64_t index_;
};

namespace detail {

/// Throws `option_error` on a value that means nothing.
inline void require_valid(const error_policy& policy) {
  constexpr std::size_t most_retries = 100;
  constexpr std::chrono::milliseconds day = std::chrono::hours{24};
  if (policy.retries > most_retries) {
    refuse_option("faults.on_error.retries", {policy.retries, " is above ", most_retries});
  }
  if (policy.first_wait.count() < 0) {
    refuse_option("faults.on_error.first_wait",
                  {"must not be negative, is ", policy.first_wait.count(), " ms"});
  }
  if (policy.longest_wait < policy.first_wait || policy.longest_wait > day) {
    refuse_option("faults.on_error.longest_wait",
                  {"must lie between first_wait, ", policy.first_wait.count(),
                   " ms, and a day, is ", policy.longest_wait.count(), " ms"});
  }
  if (policy.action != error_action::propagate && policy.action != error_action::substitute &&
      policy.action != error_action::skip) {
    refuse_option("faults.on_error.action",
                  {"must be propagate, substitute or skip, is ", static_cast<int>(policy.action)});
  }
  if (!(policy.largest_share >= 0 && policy.largest_share <= 1)) {
    refuse_option("faults.on_error.largest_share",
                  {"must lie in [0, 1], is ", std::to_string(policy.largest_share)});
  }
}

/// Whether every exception goes to the consumer at once.
[[nodiscard]] inline bool is_plain(const error_policy& policy) noexcept {
  return policy.retries == 0 && policy.action == error_action::propagate &&
         policy.quarantined.empty();
}

/// The wait before retry `retry`, which counts from 1.
[[nodiscard]] inline std::chrono::milliseconds wait_before(const error_policy& policy,
                                                           std::size_t retry) noexcept {
  auto wait = policy.first_wait;
  for (; retry > 1 && wait < policy.longest_wait; --retry) wait *= 2;  // a day doubled still fits
  return (std::min)(wait, policy.longest_wait);
}

/// The samples that may take the place of `sample`, one after the other; for a dataset of at least
/// two.
class substitutes {
 public:
  static constexpr int most = 8;

  substitutes(const random_key& key, std::uint64_t sample, std::uint64_t dataset_size) noexcept
      : bits_(key.at_stage(substitute_stage), sample), sample_(sample), last_(dataset_size - 2) {}

  [[nodiscard]] std::uint64_t next() {
    const auto drawn = uniform(bits_, std::uint64_t{0}, last_);
    return drawn < sample_ ? drawn : drawn + 1;
  }

 private:
  sample_generator bits_;
  std::uint64_t sample_;
  std::uint64_t last_;
};

}  // namespace detail

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
