// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/adaptors/detail/kept_samples.hpp>
#include <penstock_ext/adaptors/detail/sample_tester.hpp>
#include <penstock_ext/adaptors/filter_error.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/index_file.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Progress of applying a predicate to a dataset, in samples.
struct filter_progress {
  std::uint64_t done = 0;   ///< tested samples
  std::uint64_t total = 0;  ///< size of the dataset
  std::uint64_t kept = 0;   ///< samples among the tested samples that are kept
};

/// Options of `filter`.
struct filter_options {
  /// File in which the result is stored, so that later runs call no predicate. If it is empty, the
  /// result is only in memory.
  std::string path = {};
  /// Name of the predicate and of the data, such as "length > 10, crawl of May". Required with
  /// `path`. A file with another key is stale. Change the key whenever the predicate or the content
  /// of the data changes, because a program cannot detect these changes.
  std::string key = {};
  /// Number of threads that call the predicate, including the calling thread. At least 1.
  std::size_t workers = 8;
  /// Reaction to a file that is damaged, has another key, or was computed for another dataset.
  stale_index on_stale = stale_index::rebuild;
  /// Called during the pass over the samples, by one thread at a time. An exception ends the pass.
  std::function<void(const filter_progress&)> progress = {};
};

namespace detail {

/// Applies `predicate` to all samples of `data` in parallel. Returns one bit for each sample.
template <dataset D, class F>
[[nodiscard]] std::vector<std::uint64_t> tested_bits(const D& data, const F& predicate,
                                                     const filter_options& options) {
  const std::uint64_t size = data.size();
  std::vector<std::uint64_t> words(static_cast<std::size_t>(words_of_bits(size)));
  // Small enough that all threads get a share of a few samples, and large enough that threads
  // rarely synchronize.
  const std::size_t some =
      std::clamp(words.size() / options.workers / 16, std::size_t{1}, std::size_t{64});
  std::mutex guard;
  filter_progress at{.total = size};
  const std::size_t parts = words.size() / some + (words.size() % some == 0 ? 0 : 1);
  parallel_for(parts, options.workers, [&](std::size_t part) {
    const std::size_t begin = part * some;
    const std::size_t end = (std::min)(begin + some, words.size());
    sample_tester<D, F> tester{data, predicate};
    filter_progress here;
    for (std::size_t i = begin; i < end; ++i) {
      const std::uint64_t first = std::uint64_t{i} * 64;
      const std::uint64_t count = (std::min)(size - first, std::uint64_t{64});
      words[i] = tester.test(first, static_cast<std::size_t>(count));
      here.done += count;
      here.kept += static_cast<std::uint64_t>(std::popcount(words[i]));
    }
    if (!options.progress) return;
    const std::lock_guard lock{guard};
    at.done += here.done;
    at.kept += here.kept;
    options.progress(at);
  });
  return words;
}

/// Opens the filter file of the options, or applies `predicate`. Throws the same errors as
/// `filter`.
template <dataset D, class F>
[[nodiscard]] kept_samples opened_filter(const D& data, const F& predicate,
                                         const filter_options& options) {
  if (options.workers == 0) throw_option_error("workers", {"must be at least 1, but is 0"});
  if (options.path.empty()) {
    return kept_samples{std::make_shared<sample_bits>(tested_bits(data, predicate, options))};
  }
  if (options.key.empty()) {
    throw_option_error(
        "key", {"is empty: name the predicate, so that a stale ", options.path, " is detected"});
  }
  const filter_identity identity{data.size(), fingerprint_of(data), options.key};
  if (::access(options.path.c_str(), F_OK) == 0) {
    mapped_file file{options.path};
    sample_bits::require_magic(file);
    try {
      return kept_samples{std::make_shared<sample_bits>(std::move(file), identity)};
    } catch (const file_error&) {
      if (options.on_stale == stale_index::reject) throw;
    }
  }
  const new_index file{options.path, "a filter file"};
  sample_bits{tested_bits(data, predicate, options)}.write(file, identity);
  return kept_samples{std::make_shared<sample_bits>(mapped_file{options.path}, identity)};
}

/// The adaptor returned by `filter`.
template <class F>
class filter_adaptor : public adaptor<filter_adaptor<F>> {
 public:
  filter_adaptor(F predicate, filter_options options)
      : predicate_(std::move(predicate)), options_(std::move(options)) {}

  /// Returns the kept samples of `data`.
  template <class Data>
  [[nodiscard]] auto operator()(Data&& data) && {
    using base = stored_dataset_t<Data>;
    using record = typename base::record_type;
    constexpr bool is_const = predicate_form_of<const F&, record>() != predicate_form::none;
    static_assert(is_const || predicate_form_of<F&, record>() == predicate_form::none,
                  "penstock::filter: the predicate must be callable as const, because several "
                  "threads call it: remove mutable from the lambda");
    static_assert(is_const || predicate_form_of<F&, record>() != predicate_form::none,
                  "penstock::filter: the predicate must take (const_sample<Record>) of the "
                  "dataset's own record, and may take the sample's index after it, or only the "
                  "index, and must return a bool");
    if constexpr (is_const) {
      base whole(std::forward<Data>(data));
      kept_samples kept = opened_filter(whole, predicate_, options_);
      return subset_dataset<base, kept_samples>{std::move(whole), std::move(kept)};
    }
  }

 private:
  F predicate_;
  filter_options options_;
};

}  // namespace detail

/// Keeps the samples for which a predicate returns true, in their order:
///
///     const auto long_texts = texts | ps::filter(
///         [](ps::const_sample<text> one) { return ps::get<"text">(one).size() > 10; },
///         {.path = "long.filter", .key = "more than 10 bytes", .workers = 8});
///
/// The predicate is called once for each sample when the adaptor is applied. The result is one bit
/// for each sample, so the filtered dataset has a size, and its order, shuffles and states do not
/// depend on the number of threads. Uses at most 1.15 bits of memory for each sample of the
/// unfiltered dataset, and 3 bits while a file is created. Each access takes a short search.
///
/// The predicate takes `(const_sample<Record>)`, `(const_sample<Record>, std::uint64_t index)`, or
/// `(std::uint64_t index)`, for which no sample is read. Several threads call the predicate
/// concurrently through a const reference. The sample is a view if the dataset has `view`, and
/// otherwise a copy in a buffer of up to 1 MiB for each thread, or one sample if it is larger. The
/// sample is valid only during the call. Random stages below the filter have the random bits of
/// seed 0 and epoch 0 in this pass.
///
/// With `filter_options::path`, the result is stored in a file, which is written under another name
/// and renamed. Later runs map the file, which must not change while it is mapped. Several
/// processes may create the file concurrently. A file is stale if its key, its number of samples,
/// or the fingerprint of the dataset's selections (see `fingerprint_of`) differs. An existing file
/// is never overwritten unless it is a filter file.
///
/// If the result is empty, a loader throws `empty_dataset`. The size, order and fingerprint in a
/// `loader_state` depend on the result, so a state saved with another result is rejected. Applying
/// the adaptor throws
///
/// - `filter_error` for the first sample, in the order of the dataset, whose read or predicate
///   throws; `cancelled` propagates unchanged;
/// - `option_error` for 0 workers, or a path without a key;
/// - `file_unwritable` if the file cannot be written. If its folder is not writable, throws before
///   the pass;
/// - `file_unreadable`, and `file_format_error` if the existing file is not a filter file;
/// - with `stale_index::reject`, `file_format_error` or `length_mismatch` for a stale file, and
///   `file_truncated` or `file_corrupt` for a damaged file.
template <class F>
[[nodiscard]] detail::filter_adaptor<std::decay_t<F>> filter(F&& predicate,
                                                             filter_options options = {}) {
  return {std::forward<F>(predicate), std::move(options)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
