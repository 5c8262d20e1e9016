// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/faults/failure_ledger.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Identifies the dataset that a quarantine list belongs to.
struct quarantine_of {
  /// Number of samples in the dataset, before `subset` or `concat` is applied.
  std::uint64_t dataset = 0;
  /// Index of the dataset among those joined by `concat` (see `sample_origin::part`).
  std::uint64_t part = 0;
};

namespace detail {

/// Reads a quarantine list line by line. Single-use.
class quarantine_reader {
 public:
  explicit quarantine_reader(std::istream& in) : in_(&in) {}

  /// Returns the indices for `wanted`, or for the only dataset in the list.
  [[nodiscard]] std::vector<std::uint64_t> read(const std::optional<quarantine_of>& wanted) {
    bool is_wanted = !wanted;  // true if the following lines belong to `wanted`
    bool is_found = false;
    for (std::string line; std::getline(*in_, line);) {
      ++number_;
      std::string_view text = line;
      if (take(text, quarantine_head)) {
        const quarantine_of found = read_head(text);
        if (wanted && found.part == wanted->part && found.dataset != wanted->dataset) {
          fail("the list is for " + name_of(found) + ", not for " + name_of(*wanted));
        }
        if (!wanted && of_ && (of_->part != found.part || of_->dataset != found.dataset)) {
          fail("the list is for several datasets, " + name_of(*of_) + " and " + name_of(found) +
               ": specify which one to read");
        }
        of_ = found;
        is_wanted = !wanted || found.part == wanted->part;
        is_found = is_found || is_wanted;
      } else {
        read_line(text, is_wanted);
      }
    }
    if (wanted && !is_found) {
      throw error("quarantine list: expected a line \"" + std::string{quarantine_head} +
                  "...\" of " + name_of(*wanted) +
                  ", found none: read a list without such a line without naming its dataset");
    }
    std::sort(indices_.begin(), indices_.end());
    indices_.erase(std::unique(indices_.begin(), indices_.end()), indices_.end());
    return std::move(indices_);
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw error("quarantine list, line " + std::to_string(number_) + ": " + problem);
  }

  static std::string name_of(const quarantine_of& one) {
    return "part " + std::to_string(one.part) + ", a dataset of " + std::to_string(one.dataset) +
           " samples";
  }

  /// Removes `word` from the start of `text`. Returns false if `text` does not start with it.
  static bool take(std::string_view& text, std::string_view word) noexcept {
    if (!text.starts_with(word)) return false;
    text.remove_prefix(word.size());
    return true;
  }
  static bool take(std::string_view& text, std::uint64_t& value) noexcept {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{}) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return true;
  }

  [[nodiscard]] quarantine_of read_head(std::string_view text) const {
    const std::string_view whole = text;
    quarantine_of found;
    std::uint64_t parts = 1;
    bool is_right =
        !text.starts_with("part") || (take(text, "part ") && take(text, found.part) &&
                                      take(text, " of ") && take(text, parts) && take(text, ", "));
    is_right = is_right && take(text, "dataset of ") && take(text, found.dataset) &&
               take(text, " samples") && text.find_first_not_of(blanks) == std::string_view::npos;
    if (!is_right || found.part >= parts) {
      fail("expected \"dataset of <n> samples\", or \"part <p> of <n>, \" before it, found '" +
           std::string{whole.substr(0, 60)} + "'");
    }
    return found;
  }

  void read_line(std::string_view text, bool is_wanted) {
    text = text.substr(0, text.find('#'));
    const auto begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos) return;
    text = text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
    const std::string_view whole = text;
    std::uint64_t index = 0;
    if (!take(text, index) || !text.empty()) {
      fail("expected one sample index below 2^64, found '" + std::string{whole.substr(0, 40)} +
           "'");
    }
    if (of_ && index >= of_->dataset) {
      fail("sample " + std::to_string(index) + " is not in " + name_of(*of_));
    }
    if (is_wanted) indices_.push_back(index);
  }

  static constexpr std::string_view blanks = " \t\r";

  std::istream* in_;
  std::uint64_t number_ = 0;         // line number
  std::optional<quarantine_of> of_;  // dataset of the current lines
  std::vector<std::uint64_t> indices_;
};

}  // namespace detail

/// Reads the indices of a quarantine list. The result is sorted and contains each index once. The
/// list has one decimal index on each line. Blanks, empty lines, and comments from '#' to the end
/// of a line are ignored. A header, as written by `write_quarantine`, is optional. If there is a
/// header, the indices must be less than its dataset size. Throws `error` for the first malformed
/// line, and if the list is for several datasets.
[[nodiscard]] inline std::vector<std::uint64_t> read_quarantine(std::istream& in) {
  return detail::quarantine_reader{in}.read(std::nullopt);
}

/// Reads the indices in a quarantine list for the dataset `of`. The list must contain the dataset's
/// header. Throws `error` if the list belongs to another dataset or has no header.
[[nodiscard]] inline std::vector<std::uint64_t> read_quarantine(std::istream& in,
                                                                const quarantine_of& of) {
  return detail::quarantine_reader{in}.read(of);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
