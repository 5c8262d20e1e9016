// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

struct recovering;

}  // namespace detail

/// The action for a sample that cannot be read.
enum class error_action {
  rethrow,  ///< rethrows the dataset's exception with that batch, which ends the range
  replace,  ///< replaces the sample by another, so every batch, on every rank, keeps its size
  skip,     ///< leaves the sample out, so the batch is shorter; `batch_info::skipped` counts
};

/// The value of a member of `error_policy`. Setting a value compiles in the code that retries,
/// replaces and skips samples. A program that sets no value does not compile that code.
template <class T>
class policy_value {
 public:
  /// Represents a policy that the program does not set. It is the default of `T`, and no code is
  /// compiled for it.
  constexpr policy_value() = default;
  /// Sets a value.
  template <class From, class Recovering = detail::recovering>
    requires(std::convertible_to<From, T> && !std::derived_from<From, policy_value>)
  constexpr policy_value(From value)  // NOLINT: implicit, as the value is written
      : policy_value(code_of<Recovering>(), static_cast<T>(std::move(value))) {}
  /// Sets a list.
  template <class Element, class Recovering = detail::recovering>
    requires(!std::convertible_to<Element, T>)
  policy_value(std::initializer_list<Element> values)
      : policy_value(code_of<Recovering>(), T(values.begin(), values.end())) {}

  /// Converts to the value.
  constexpr operator const T&() const noexcept { return value_; }  // NOLINT: implicit
  /// Returns the value.
  [[nodiscard]] constexpr const T& value() const noexcept { return value_; }

  /// @cond internal
  // Returns the code, or null for a value that was not set.
  [[nodiscard]] constexpr const detail::recovering* code() const noexcept { return code_; }
  /// @endcond

 private:
  constexpr policy_value(const detail::recovering* code, T value)
      : value_(std::move(value)), code_(code) {}

  template <class Recovering>
  [[nodiscard]] static constexpr const Recovering* code_of() noexcept {
    static_assert(
        requires { sizeof(Recovering); },
        "penstock: an error policy needs its implementation: include "
        "<penstock/load/loader.hpp>");
    return &Recovering::code;
  }

  T value_{};
  const detail::recovering* code_ = nullptr;
};

/// The reaction of a loader to an exception from a dataset or a `map` function. By default the
/// exception reaches the consumer unchanged, and `last_failure()` returns its origin.
///
///     {.faults = {.on_error = {.retries = 3, .action = ps::error_action::replace}}}
///
/// The outcome of a deterministic failure does not depend on workers, chunk, prefetch or depth.
/// Limits are checked for each batch when the loop gets it, in order of completion if `in_order` is
/// false. A batch that a feed has prefetched counts when the loop gets it, and does not count if
/// the loop ends before. If a chunk fails, its samples are read again one by one. A sample that is
/// read a second time gets the same random bits. `loader::failures()` reports all failures and
/// their outcomes.
struct error_policy {
  /// The number of retries of a failed read before `action` applies. At most 100.
  policy_value<std::size_t> retries = {};

  /// The wait before the first retry, at most a day. The wait doubles with each retry, up to ten
  /// seconds. If the range ends, the wait ends early. The waiting worker reads nothing else.
  std::chrono::milliseconds initial_backoff{10};

  /// The action after the last retry.
  ///
  /// `replace` draws another sample from the whole dataset, keyed by (seed, epoch, index of the bad
  /// sample), and reads it with its own random bits. If the drawn sample fails too, it is not
  /// retried, and another sample is drawn. After the eighth draw, the first exception propagates.
  /// Use a `subset` to exclude indices that must never be drawn, such as the samples of another
  /// split.
  ///
  /// `skip` may leave a batch of size 0, which is delivered like any other. A batch that
  /// `last_batch::pad` has filled up is not filled again.
  policy_value<error_action> action = {};

  /// Maximum number of samples that may be replaced or skipped during the loader's life. A batch
  /// that exceeds the limit is not delivered: the exception of its first such sample propagates.
  /// The same holds for every later batch that has such a sample. A read that succeeds in a retry
  /// does not count.
  std::uint64_t max_failures = 1000;

  /// The maximum share of the requested samples that may be replaced or skipped, in [0, 1]. Not
  /// checked before 100 samples are requested.
  double max_failure_rate = 0.05;

  /// Samples that are known to be bad, as returned by `read_quarantine`, in any order. Indices
  /// refer to the source dataset, which `subset` and `map` wrap. The loader treats these samples as
  /// failed without reading or retrying them: `action` applies immediately, and the exception is a
  /// `quarantined_sample`. Therefore order, state and all other samples do not change, even in the
  /// middle of a chunk. `loader::failures()` and its quarantine list contain these samples if
  /// samples that fail leave room for them. Known bad samples do not count towards a limit. If
  /// `concat` joins datasets, the option is rejected: use `exclude`. With ragged fields, the loader
  /// still calls the length function of such a sample, before it reads any sample. If that call
  /// throws or the length is too large, the range ends; `exclude` omits the sample completely.
  policy_value<std::vector<std::uint64_t>> quarantine_list = {};
};

/// Thrown if a sample of `error_policy::quarantine_list` was requested and could not be skipped or
/// replaced.
class [[gnu::visibility("default")]] quarantined_sample : public error {
 public:
  /// Reports sample `index` of the source dataset. `has_no_substitute` means that a search for a
  /// substitute failed.
  explicit quarantined_sample(std::uint64_t index, bool has_no_substitute = false)
      : error(detail::str_cat(
            {"quarantined_sample: sample ", index,
             " of the dataset is in faults.on_error.quarantine_list and was not read",
             has_no_substitute
                 ? ", and none of the replacements drawn for it could be read: choose "
                   "error_action::skip, or exclude the sample with exclude(list)"
                 : ": choose error_action::skip or replace, or exclude the sample with "
                   "exclude(list)"})),
        index_(index) {}
  /// Returns the sample's index in the source dataset.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }

 private:
  std::uint64_t index_;
};

namespace detail {

/// The counts that the limits of an `error_policy` apply to.
struct judged_samples {
  std::uint64_t requested = 0;  ///< positions of the batches that the consumer got
  std::uint64_t lost = 0;       ///< positions whose sample was replaced or skipped
};

/// Throws `option_error` for an invalid value.
inline void require_valid(const error_policy& policy) {
  constexpr std::size_t max_retries = 100;
  constexpr std::chrono::milliseconds day = std::chrono::hours{24};
  if (policy.retries > max_retries) {
    refuse_option("faults.on_error.retries", {policy.retries.value(), " is above ", max_retries});
  }
  if (policy.initial_backoff.count() < 0 || policy.initial_backoff > day) {
    refuse_option("faults.on_error.initial_backoff", {"must lie between 0 ms and a day, but is ",
                                                      policy.initial_backoff.count(), " ms"});
  }
  if (policy.action != error_action::rethrow && policy.action != error_action::replace &&
      policy.action != error_action::skip) {
    refuse_option("faults.on_error.action", {"must be rethrow, replace or skip, but is ",
                                             static_cast<int>(policy.action.value())});
  }
  if (!(policy.max_failure_rate >= 0 && policy.max_failure_rate <= 1)) {
    refuse_option("faults.on_error.max_failure_rate",
                  {"must lie in [0, 1], but is ", std::to_string(policy.max_failure_rate)});
  }
}

/// Returns true if every exception goes directly to the consumer.
[[nodiscard]] inline bool is_plain(const error_policy& policy) noexcept {
  return policy.retries == 0 && policy.action == error_action::rethrow &&
         policy.quarantine_list.value().empty();
}

/// Returns the code that `policy` needs, or null for a plain policy.
[[nodiscard]] inline const recovering* recovering_of(const error_policy& policy) noexcept {
  if (is_plain(policy)) return nullptr;
  if (policy.retries.code() != nullptr) return policy.retries.code();
  return policy.action.code() != nullptr ? policy.action.code() : policy.quarantine_list.code();
}

/// Returns the wait before retry `retry`, which counts from 1.
[[nodiscard]] inline std::chrono::milliseconds wait_before(const error_policy& policy,
                                                           std::size_t retry) noexcept {
  constexpr std::chrono::milliseconds max_backoff{10'000};
  auto wait = policy.initial_backoff;
  for (; retry > 1 && wait < max_backoff; --retry) wait = (std::min)(2 * wait, max_backoff);
  return wait;
}

/// The sequence of samples that may replace `sample`, for a dataset of at least two samples.
class substitutes {
 public:
  static constexpr int max = 8;

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

/// Report of a dataset's read, a sampler's `order`, or a request for the lengths of a batch of
/// ragged samples that takes too long. The report is made while the call hangs.
struct stall_report {
  /// The sample that is being read. In the stage "order", this is the first batch that needs the
  /// order. In the stage "lengths", this is the batch that needs the lengths, and the time is the
  /// time for all its lengths. If a dataset reads a whole chunk in one call, `exact` is false, the
  /// sample is the chunk's first sample, and the time is the time for the chunk.
  failure where;
  /// The worker whose thread hangs; 0 if the consumer's own thread reads.
  std::size_t worker = 0;
  /// A lower bound of the time that the call has hung so far.
  std::chrono::milliseconds elapsed{0};
  /// True if the loader's destructor is now waiting for the call, because the loader does not own
  /// all memory that the read uses.
  bool blocks_destruction = false;

  /// Returns the report as one line for a log.
  [[nodiscard, gnu::cold]] std::string str() const {
    return detail::str_cat(
        {"penstock: ", what(), " has not returned after ", elapsed.count(), " ms in worker ",
         worker, ": ", where.str(),
         blocks_destruction
             ? "; the loader's destructor waits for it, because the loader does not own the "
               "dataset; move the dataset into the loader to continue without waiting"
             : ""});
  }

 private:
  [[nodiscard]] std::string_view what() const noexcept {
    if (where.stage == "order") return "an order";
    return where.stage == "lengths" ? "the length() of a sample" : "a read";
  }
};

/// Thrown if a read, a sampler's `order`, or the lengths of a batch took longer than
/// `loader_options::faults.timeout`. The loader delivers no more batches.
class [[gnu::visibility("default")]] read_timeout : public error {
 public:
  /// Reports the call that hangs.
  [[gnu::cold]] explicit read_timeout(const stall_report& what)
      : error(detail::str_cat({"read_timeout: worker ", what.worker, " has not returned after ",
                               what.elapsed.count(), " ms: ", what.where.str(),
                               "; check the storage, or raise loader_options::faults.timeout"})),
        read_(what) {}
  /// Returns the call that hangs and its time.
  [[nodiscard]] const stall_report& read() const noexcept { return read_; }

 private:
  stall_report read_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
