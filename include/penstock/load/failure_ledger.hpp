#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <istream>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <penstock/core/error.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// What became of a sample whose read has failed.
enum class read_outcome {
  retrying,     ///< nothing yet: a retry is to come
  recovered,    ///< a retry has read it
  substituted,  ///< another sample stands in its place
  skipped,      ///< its batch is shorter
  propagated,   ///< the exception went to the consumer
};

/// An outcome as a word of a log.
[[nodiscard]] constexpr std::string_view name_of(read_outcome outcome) noexcept {
  switch (outcome) {
    case read_outcome::retrying:
      return "retrying";
    case read_outcome::recovered:
      return "recovered";
    case read_outcome::substituted:
      return "substituted";
    case read_outcome::skipped:
      return "skipped";
    case read_outcome::propagated:
      break;
  }
  return "propagated";
}

/// One sample that could not be read, at least once.
struct failed_sample {
  std::uint64_t sample = 0;    ///< its index in the dataset
  std::string what;            ///< of its first exception: one line, cut after 119 bytes
  std::uint64_t failures = 0;  ///< reads that failed
  std::uint64_t given_up = 0;  ///< how often no retry helped
  read_outcome last = read_outcome::retrying;  ///< what became of it the last time

  friend bool operator==(const failed_sample&, const failed_sample&) = default;
};

/// What has failed so far, and what was done about it: a copy, see `loader::failures`.
struct failure_report {
  std::vector<failed_sample> samples;  ///< in order of their indices; at most 256
  std::uint64_t failed_reads = 0;      ///< all of them, retries and drawn substitutes too
  std::uint64_t recovered = 0;         ///< samples that a retry has read
  std::uint64_t substituted = 0;       ///< places that another sample has taken
  std::uint64_t skipped = 0;           ///< places that a batch is shorter by
  std::uint64_t dropped = 0;  ///< failed reads of samples beyond the 256, in no entry of `samples`

  /// Writes the indices of the samples that were given up, each on a line of its own with the reason
  /// behind a '#', so that `read_quarantine`, or `cut -d'#' -f1`, reads them back:
  ///
  ///     4711 # skipped 3 times: png: bad checksum
  void write_quarantine(std::ostream& out) const {
    for (const failed_sample& bad : samples) {
      if (bad.given_up == 0) continue;
      out << std::to_string(bad.sample) << " # " << name_of(bad.last) << ' '
          << std::to_string(bad.given_up) << (bad.given_up == 1 ? " time: " : " times: ")
          << bad.what << '\n';
    }
    if (dropped != 0) {
      out << "# incomplete: " << std::to_string(dropped)
          << " failed reads of other samples were not kept\n";
    }
  }
};

/// Reads the indices of a quarantine list, sorted, each once: one a line in decimal; a '#' and what
/// follows it, blanks and empty lines do not count. Throws `error` with the line that is none of this.
[[nodiscard]] inline std::vector<std::uint64_t> read_quarantine(std::istream& in) {
  std::vector<std::uint64_t> indices;
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    constexpr std::string_view blanks = " \t\r";
    std::string_view text = line;
    text = text.substr(0, text.find('#'));
    const auto begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos) continue;
    text = text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
    std::uint64_t index = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (problem != std::errc{} || end != text.data() + text.size()) {
      throw error("quarantine list, line " + std::to_string(number) +
                  ": expected one sample index below 2^64, found '" +
                  std::string{text.substr(0, 40)} + "'");
    }
    indices.push_back(index);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

namespace detail {

/// Where a loader writes down what failed. All memory is taken at construction, about 40 KiB; safe
/// from any thread.
class failure_ledger {
 public:
  static constexpr std::size_t capacity = 256;

  failure_ledger() : entries_(std::make_unique<entry[]>(capacity)) {}

  /// A read of `sample` has thrown `error`.
  void note_failure(std::uint64_t sample, const std::exception_ptr& error) noexcept {
    const std::lock_guard lock{mutex_};
    ++failed_reads_;
    entry* found = find(sample);
    if (found == nullptr) {
      if (size_ == capacity) {
        ++dropped_;
        return;
      }
      found = &entries_[size_++];
      found->sample = sample;
      keep_text(error, found->what);
    }
    ++found->failures;
    found->last = read_outcome::retrying;
  }

  /// What became of the sample that was in `note_failure` just now. `is_place`: of the batch, and not
  /// a drawn substitute.
  void note_outcome(std::uint64_t sample, read_outcome outcome, bool is_place = true) noexcept {
    const std::lock_guard lock{mutex_};
    if (is_place) {
      recovered_ += outcome == read_outcome::recovered;
      substituted_ += outcome == read_outcome::substituted;
      skipped_ += outcome == read_outcome::skipped;
    }
    if (entry* found = find(sample)) {
      found->last = outcome;
      found->given_up += outcome != read_outcome::recovered;
    }
  }

  /// All of it, as it is now.
  [[nodiscard]] failure_report report() const {
    failure_report all;
    all.samples.reserve(capacity);
    const std::lock_guard lock{mutex_};
    for (std::size_t i = 0; i < size_; ++i) {
      const entry& one = entries_[i];
      all.samples.push_back(
          {one.sample, std::string{one.what.data()}, one.failures, one.given_up, one.last});
    }
    std::sort(all.samples.begin(), all.samples.end(),
              [](const failed_sample& a, const failed_sample& b) { return a.sample < b.sample; });
    all.failed_reads = failed_reads_;
    all.recovered = recovered_;
    all.substituted = substituted_;
    all.skipped = skipped_;
    all.dropped = dropped_;
    return all;
  }

 private:
  using text = std::array<char, 120>;
  struct entry {
    std::uint64_t sample;
    std::uint64_t failures;
    std::uint64_t given_up;
    read_outcome last;
    text what;
  };

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

  // One line of it: the text goes into line-based files.
  static void copy_line(std::string_view from, text& to) noexcept {
    from = from.substr(0, to.size() - 1);
    std::transform(from.begin(), from.end(), to.begin(), [](char c) {
      const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      return is_control ? ' ' : c;
    });
    to[from.size()] = '\0';
  }

  mutable std::mutex mutex_;  // guards the rest
  std::unique_ptr<entry[]> entries_;
  std::size_t size_ = 0;
  std::uint64_t failed_reads_ = 0;
  std::uint64_t recovered_ = 0;
  std::uint64_t substituted_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace detail

}  // namespace penstock::inline PENSTOCK_ABI
