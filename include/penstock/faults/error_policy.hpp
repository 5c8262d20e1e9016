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

/// The actions that a loader can take if a sample cannot be read.
enum class error_action {
  rethrow,  ///< rethrows the dataset's exception with the affected batch, which ends the range
  /// Replaces the sample with another sample, so that batch sizes do not change on any rank.
  replace,
  skip,  ///< omits the sample, so that the batch is shorter; counted in `batch_info::skipped`
};

/// The value of an `error_policy` member. Setting a value instantiates the code that retries,
/// replaces and skips samples. Programs that set no value do not compile that code.
template <class T>
class policy_value {
 public:
  /// Creates an unset value, which is the default of `T`. No code is compiled for it.
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
  // Returns the recovery code, or null if the value was not set.
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

/// The reaction of a loader to an exception from a dataset or a `map` function. By default, the
/// exception reaches the consumer unchanged, and `last_failure()` returns its origin.
///
///     {.faults = {.on_error = {.retries = 3, .action = ps::error_action::replace}}}
///
/// The outcome of a deterministic failure does not depend on workers, chunk, prefetch or depth.
/// Limits are checked when the loop receives a batch, in order of completion if `in_order` is
/// false. A prefetched batch counts only when the loop receives it. If a chunk fails, its samples
/// are read again one by one, with the same random bits. `loader::failures()` reports all failures
/// and their outcomes.
struct error_policy {
  /// Number of retries of a failed read before `action` applies, at most 100.
  policy_value<std::size_t> retries = {};

  /// Delay before the first retry, at most a day. The delay doubles with each retry, up to ten
  /// seconds, and ends early if the range ends. The waiting worker does not read other samples.
  std::chrono::milliseconds initial_backoff{10};

  /// The action for a sample that still cannot be read after the last retry.
  ///
  /// `replace` draws a substitute from the whole dataset, keyed by seed, epoch, and the index of
  /// the failed sample. The substitute is read with its own random bits. If it fails too, another
  /// substitute is drawn without a retry. After the eighth draw, the first exception propagates.
  /// Use `subset` to exclude indices that must never be drawn, such as the samples of another
  /// split.
  ///
  /// `skip` may leave a batch of size 0, which is delivered like any other batch. A batch already
  /// padded by `last_batch::pad` is not padded again.
  policy_value<error_action> action = {};

  /// Maximum number of samples that may be replaced or skipped during the lifetime of the loader. A
  /// batch that exceeds the limit is not delivered, and the exception of its first such sample
  /// propagates. The same applies to each later batch with such a sample. Samples that were read in
  /// a retry do not count.
  std::uint64_t max_failures = 1000;

  /// Maximum fraction of requested samples that may be replaced or skipped, in [0, 1]. Not checked
  /// before 100 samples have been requested.
  double max_failure_rate = 0.05;

  /// Quarantined samples, as returned by `read_quarantine`, in any order. Indices refer to the
  /// source dataset, which `subset` and `map` wrap. The loader treats these samples as failed
  /// without reading or retrying them: `action` applies immediately, and the exception is a
  /// `quarantined_sample`. Therefore the order, the state and all other samples do not change.
  /// `loader::failures()` and its quarantine list contain these samples if there is room after
  /// other failures. Quarantined samples do not count towards a limit. If `concat` joins datasets,
  /// this option is rejected. Use `exclude` instead. With ragged fields, the loader still queries
  /// the lengths of quarantined samples. If a length query throws or the length is too large, the
  /// range ends. `exclude` omits the sample completely.
  policy_value<std::vector<std::uint64_t>> quarantine_list = {};
};

/// Thrown if a sample in `error_policy::quarantine_list` was requested and could not be skipped or
/// replaced.
class [[gnu::visibility("default")]] quarantined_sample : public error {
 public:
  /// Describes sample `index` of the source dataset. `has_no_substitute` is true if no substitute
  /// could be found.
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
  /// Returns the sample index in the source dataset.
  [[nodiscard]] std::uint64_t index() const noexcept { return index_; }

 private:
  std::uint64_t index_;
};

namespace detail {

/// Counts to which the limits of an `error_policy` apply.
struct judged_samples {
  /// Number of sample positions in batches that the consumer received.
  std::uint64_t requested = 0;
  std::uint64_t lost = 0;  ///< number of those positions whose sample was replaced or skipped
};

/// Throws `option_error` for an invalid value.
inline void require_valid(const error_policy& policy) {
  constexpr std::size_t max_retries = 100;
  constexpr std::chrono::milliseconds day = std::chrono::hours{24};
  if (policy.retries > max_retries) {
    throw_option_error("faults.on_error.retries",
                       {policy.retries.value(), " is above ", max_retries});
  }
  if (policy.initial_backoff.count() < 0 || policy.initial_backoff > day) {
    throw_option_error(
        "faults.on_error.initial_backoff",
        {"must lie between 0 ms and a day, but is ", policy.initial_backoff.count(), " ms"});
  }
  if (policy.action != error_action::rethrow && policy.action != error_action::replace &&
      policy.action != error_action::skip) {
    throw_option_error("faults.on_error.action", {"must be rethrow, replace or skip, but is ",
                                                  static_cast<int>(policy.action.value())});
  }
  if (!(policy.max_failure_rate >= 0 && policy.max_failure_rate <= 1)) {
    throw_option_error("faults.on_error.max_failure_rate",
                       {"must lie in [0, 1], but is ", std::to_string(policy.max_failure_rate)});
  }
}

/// Returns true if all exceptions propagate directly to the consumer.
[[nodiscard]] inline bool is_plain(const error_policy& policy) noexcept {
  return policy.retries == 0 && policy.action == error_action::rethrow &&
         policy.quarantine_list.value().empty();
}

/// Returns the recovery code for `policy`, or null if all exceptions propagate.
[[nodiscard]] inline const recovering* recovering_of(const error_policy& policy) noexcept {
  if (is_plain(policy)) return nullptr;
  if (policy.retries.code() != nullptr) return policy.retries.code();
  return policy.action.code() != nullptr ? policy.action.code() : policy.quarantine_list.code();
}

/// Returns the delay before retry number `retry`, counted from 1.
[[nodiscard]] inline std::chrono::milliseconds wait_before(const error_policy& policy,
                                                           std::size_t retry) noexcept {
  constexpr std::chrono::milliseconds max_backoff{10'000};
  auto wait = policy.initial_backoff;
  for (; retry > 1 && wait < max_backoff; --retry) wait = (std::min)(2 * wait, max_backoff);
  return wait;
}

/// The sequence of substitutes for `sample` in a dataset of at least two samples.
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

/// Report of a call that takes too long: a read, a sampler's `order`, or a query for the lengths of
/// ragged samples. The report is made while the call hangs.
struct stall_report {
  /// The sample that is being read. In the stage "order", the first batch that needs the order. In
  /// the stage "lengths", the batch that needs the lengths, and the time of all its length queries.
  /// If the dataset reads a whole chunk in one call, `exact` is false, and the sample and time are
  /// those of the chunk.
  failure where;
  /// Index of the worker whose thread hangs, or 0 if the consumer thread reads.
  std::size_t worker = 0;
  /// Lower bound on the time that the call has hung so far.
  std::chrono::milliseconds elapsed{0};
  /// True if the loader's destructor is waiting for the call, because the loader does not own all
  /// memory used by the read.
  bool blocks_destruction = false;

  /// Formats the report as one line for a log.
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

/// Thrown if a read, a sampler's `order`, or the length queries of a batch took longer than
/// `loader_options::faults.timeout`. The loader delivers no more batches.
class [[gnu::visibility("default")]] read_timeout : public error {
 public:
  /// Describes the call that hangs.
  [[gnu::cold]] explicit read_timeout(const stall_report& what)
      : error(detail::str_cat({"read_timeout: worker ", what.worker, " has not returned after ",
                               what.elapsed.count(), " ms: ", what.where.str(),
                               "; check the storage, or raise loader_options::faults.timeout"})),
        read_(what) {}
  /// Returns the report of the call that hangs.
  [[nodiscard]] const stall_report& read() const noexcept { return read_; }

 private:
  stall_report read_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
