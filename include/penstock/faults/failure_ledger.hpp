// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Outcomes of a failed read.
enum class read_outcome {
  retrying,    ///< not known yet, because a retry follows
  recovered,   ///< a retry has read the sample
  replaced,    ///< another sample has replaced it
  skipped,     ///< the batch omits the sample
  propagated,  ///< the consumer has received the exception
};

/// Returns the name of an outcome for a log.
[[nodiscard]] constexpr std::string_view name_of(read_outcome outcome) noexcept {
  constexpr std::array<std::string_view, 5> names{"retrying", "recovered", "replaced", "skipped",
                                                  "propagated"};
  return names[(std::min)(static_cast<std::size_t>(outcome), names.size() - 1)];
}

/// A sample that failed to be read at least once, or that was quarantined.
struct failed_sample {
  std::uint64_t sample = 0;    ///< index in the loader's dataset
  std::string what;            ///< message of the first exception: one line, at most 119 bytes
  std::uint64_t failures = 0;  ///< number of failed reads
  std::uint64_t given_up = 0;  ///< number of failures not recovered by a retry
  read_outcome last = read_outcome::retrying;  ///< last outcome
  sample_origin origin = {};                   ///< source dataset and the sample index there

  friend bool operator==(const failed_sample&, const failed_sample&) = default;
};

namespace detail {

/// Start of the line that identifies the dataset in a quarantine list.
inline constexpr std::string_view quarantine_head = "# penstock quarantine: ";

}  // namespace detail

/// A snapshot of all failures and their outcomes (see `loader::failures`).
struct failure_report {
  /// Samples in index order, at most 256. If the list is full, a failed sample replaces the last
  /// quarantined sample.
  std::vector<failed_sample> samples;
  std::uint64_t failed_reads = 0;  ///< number of failed reads, including retries and substitutes
  std::uint64_t recovered = 0;     ///< number of samples read by a retry
  std::uint64_t replaced = 0;      ///< number of positions filled by a substitute
  std::uint64_t skipped = 0;       ///< number of positions omitted from batches
  /// Number of failed reads of samples that did not fit into `samples`.
  std::uint64_t dropped = 0;
  bool misses_known = false;  ///< true if quarantined samples did not fit into `samples`

  /// Sizes of the source datasets, indexed by `sample_origin::part`. Empty if nothing is recorded.
  std::vector<std::uint64_t> base_sizes;

  /// Writes the samples with failures that no retry recovered, one on each line, with the reason
  /// after a '#'. Indices refer to the source dataset, so the list is valid for any subset of the
  /// same data. A line that identifies the source dataset precedes its samples.
  ///
  ///     # penstock quarantine: dataset of 60000 samples
  ///     4711 # skipped 3 times: png: bad checksum
  ///
  /// With several source datasets, that line is "# penstock quarantine: part 1 of 3, dataset of
  /// 60000 samples". `read_quarantine` reads the list.
  void write_quarantine(std::ostream& out) const {
    const std::size_t parts = (std::max)(std::size_t{1}, base_sizes.size());
    for (std::size_t part = 0; part != parts; ++part) {
      if (part < base_sizes.size()) {
        out << detail::quarantine_head;
        if (parts != 1)
          out << "part " << std::to_string(part) << " of " << std::to_string(parts) << ", ";
        out << "dataset of " << std::to_string(base_sizes[part]) << " samples\n";
      }
      for (const failed_sample& bad : samples) {
        if (bad.given_up == 0 || bad.origin.part != part) continue;
        out << std::to_string(bad.origin.index) << " # " << name_of(bad.last) << ' '
            << std::to_string(bad.given_up) << (bad.given_up == 1 ? " time: " : " times: ")
            << bad.what << '\n';
      }
    }
    if (dropped != 0) {
      out << "# incomplete: " << std::to_string(dropped)
          << " failed reads of other samples were not recorded\n";
    }
    if (misses_known) {
      out << "# incomplete: samples of faults.on_error.quarantine_list are not listed here: keep "
             "that "
             "list too\n";
    }
  }
};

namespace detail {

/// Records the failures of a loader. Allocates all memory (about 40 KiB) at construction.
/// Thread-safe.
class failure_ledger {
 public:
  static constexpr std::size_t capacity = 256;

  /// Creates a ledger for source datasets with the sizes `base_sizes` (see `base_sizes_of`).
  explicit failure_ledger(std::vector<std::uint64_t> base_sizes = {})
      : base_sizes_(std::move(base_sizes)), entries_(std::make_unique<entry[]>(capacity)) {}

  /// Records that a read of `sample`, whose origin is `origin`, has thrown `error`.
  void record_failure(std::uint64_t sample, const std::exception_ptr& error,
                      const sample_origin& origin) noexcept {
    const std::lock_guard lock{mutex_};
    ++failed_reads_;
    entry* found = enter(sample, origin);
    if (found == nullptr) found = displace_known(sample, origin);
    if (found == nullptr) {
      ++dropped_;
      return;
    }
    if (found->what[0] == '\0') keep_text(error, found->what);
    ++found->failures;
    found->last = read_outcome::retrying;
  }

  /// Records that `sample`, whose origin is `origin`, was quarantined and not read, with the
  /// outcome `outcome`.
  void record_quarantined(std::uint64_t sample, const sample_origin& origin,
                          read_outcome outcome) noexcept {
    {
      const std::lock_guard lock{mutex_};
      entry* const found = enter(sample, origin);
      misses_known_ = misses_known_ || found == nullptr;
      if (found != nullptr && found->what[0] == '\0') {
        copy_line("quarantined, not read", found->what);
      }
    }
    record_outcome(sample, outcome);
  }

  /// Records the outcome for the sample passed to the last `record_failure`. `is_place` is true if
  /// the sample was requested for the batch, and false if it was drawn as a substitute.
  void record_outcome(std::uint64_t sample, read_outcome outcome, bool is_place = true) noexcept {
    const std::lock_guard lock{mutex_};
    if (is_place) {
      recovered_ += outcome == read_outcome::recovered;
      substituted_ += outcome == read_outcome::replaced;
      skipped_ += outcome == read_outcome::skipped;
    }
    if (entry* found = find(sample)) {
      found->last = outcome;
      found->given_up += outcome != read_outcome::recovered;
    }
  }

  /// Returns a copy of all records.
  [[nodiscard]] failure_report report() const {
    failure_report all;
    all.samples.reserve(capacity);
    all.base_sizes = base_sizes_;
    const std::lock_guard lock{mutex_};
    for (std::size_t i = 0; i < size_; ++i) {
      const entry& one = entries_[i];
      all.samples.push_back({one.sample, std::string{one.what.data()}, one.failures, one.given_up,
                             one.last, one.origin});
    }
    std::sort(all.samples.begin(), all.samples.end(),
              [](const failed_sample& a, const failed_sample& b) { return a.sample < b.sample; });
    all.failed_reads = failed_reads_;
    all.recovered = recovered_;
    all.replaced = substituted_;
    all.skipped = skipped_;
    all.dropped = dropped_;
    all.misses_known = misses_known_;
    return all;
  }

 private:
  using text = std::array<char, 120>;
  struct entry {
    std::uint64_t sample = 0;
    sample_origin origin = {};
    std::uint64_t failures = 0;  // 0 if quarantined
    std::uint64_t given_up = 0;
    read_outcome last = read_outcome::retrying;
    text what = {};
  };

  /// Returns the entry of `sample` or a new entry without text. Returns null if all entries are in
  /// use.
  entry* enter(std::uint64_t sample, const sample_origin& origin) noexcept {
    if (entry* const found = find(sample)) return found;
    if (size_ == capacity) return nullptr;
    entry* const added = &entries_[size_++];
    *added = {.sample = sample, .origin = origin};
    return added;
  }
  /// Returns a new entry, which overwrites the last quarantined sample. Returns null if all entries
  /// hold failed samples.
  entry* displace_known(std::uint64_t sample, const sample_origin& origin) noexcept {
    entry* last = nullptr;
    for (entry& one : std::span{entries_.get(), size_}) {
      if (one.failures == 0 && (last == nullptr || one.sample > last->sample)) last = &one;
    }
    if (last == nullptr) return nullptr;
    *last = {.sample = sample, .origin = origin};
    misses_known_ = true;
    return last;
  }
  entry* find(std::uint64_t sample) noexcept {
    for (std::size_t i = 0; i < size_; ++i) {
      if (entries_[i].sample == sample) return &entries_[i];
    }
    return nullptr;
  }

  static void keep_text(const std::exception_ptr& error, text& to) noexcept {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& problem) {
      copy_line(problem.what(), to);
    } catch (...) {
      copy_line("not a std::exception", to);
    }
  }

  // Copies the text and replaces control characters with spaces, because the text is written to
  // line-based files.
  static void copy_line(std::string_view from, text& to) noexcept {
    from = from.substr(0, to.size() - 1);
    std::transform(from.begin(), from.end(), to.begin(), [](char c) {
      const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      return is_control ? ' ' : c;
    });
    to[from.size()] = '\0';
  }

  std::vector<std::uint64_t> base_sizes_;
  mutable std::mutex mutex_;  // guards the members below
  std::unique_ptr<entry[]> entries_;
  std::size_t size_ = 0;
  std::uint64_t failed_reads_ = 0;
  std::uint64_t recovered_ = 0;
  std::uint64_t substituted_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t dropped_ = 0;
  bool misses_known_ = false;
};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
