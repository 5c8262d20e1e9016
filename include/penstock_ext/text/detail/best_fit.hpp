// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A set of numbers in [0, bound), in which the next member above a number is found fast.
class number_set {
 public:
  /// The empty set of numbers below `bound`.
  explicit number_set(std::size_t bound)
      : words_(bound / 64 + 1), summary_(words_.size() / 64 + 1), bound_(bound) {}

  /// Puts `number` < bound in.
  void insert(std::size_t number) noexcept {
    words_[number / 64] |= std::uint64_t{1} << number % 64;
    summary_[number / 64 / 64] |= std::uint64_t{1} << number / 64 % 64;
  }
  /// Takes `number` < bound out.
  void erase(std::size_t number) noexcept {
    words_[number / 64] &= ~(std::uint64_t{1} << number % 64);
    if (words_[number / 64] != 0) return;
    summary_[number / 64 / 64] &= ~(std::uint64_t{1} << number / 64 % 64);
  }
  /// The least member that is at least `number` < bound; bound if there is none.
  [[nodiscard]] std::size_t at_least(std::size_t number) const noexcept {
    const std::size_t first = number / 64;
    const std::uint64_t in_word = words_[first] >> number % 64;
    if (in_word != 0) return number + lowest(in_word);
    // The words after the first one, by the bits of the summary.
    std::size_t at = (first + 1) / 64;
    if (at == summary_.size()) return bound_;
    std::uint64_t bits = summary_[at] >> (first + 1) % 64 << (first + 1) % 64;
    while (bits == 0) {
      if (++at == summary_.size()) return bound_;
      bits = summary_[at];
    }
    const std::size_t word = at * 64 + lowest(bits);
    return word * 64 + lowest(words_[word]);
  }

 private:
  [[nodiscard]] static std::size_t lowest(std::uint64_t bits) noexcept {
    return static_cast<std::size_t>(std::countr_zero(bits));
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> summary_;  // which words are not 0
  std::size_t bound_;
};

/// Packs lengths into rows of one capacity by best-fit decreasing: the longest first, equal ones in
/// their order, each into the row with the least room that is enough, and where rows have equally
/// much, into the one that has had it for the shortest time. Integers only, so every machine packs
/// alike.
///
/// O(n log n) time for n lengths. Source: Johnson, Demers, Ullman, Garey, Graham, "Worst-case
/// performance bounds for simple one-dimensional packing algorithms", 1974. Not thread-safe.
class best_fit {
 public:
  /// Rows of `capacity` >= 1, each of at most `most` >= 1 lengths.
  best_fit(std::size_t capacity, std::size_t most)
      : capacity_(capacity), most_(most), rooms_(capacity + 1), last_(capacity + 1, none) {}

  /// Sets `row_of[i]` to the row of `lengths[i]`, each in [1, capacity], and returns how many rows
  /// there are.
  std::uint32_t pack(std::span<const std::uint32_t> lengths, std::vector<std::uint32_t>& row_of) {
    row_of.resize(lengths.size());
    sort(lengths);
    rows_.clear();
    for (const std::uint32_t item : sorted_) {
      const std::size_t length = lengths[item];
      const std::size_t room = rooms_.at_least(length);
      row_of[item] = room > capacity_ ? open() : take(room);
      put(row_of[item], (room > capacity_ ? capacity_ : room) - length);
    }
    // Empty for the next call.
    for (std::size_t room = rooms_.at_least(0); room <= capacity_; room = rooms_.at_least(room)) {
      rooms_.erase(room);
      last_[room] = none;
    }
    return static_cast<std::uint32_t>(rows_.size());
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // A row that may take more is in the list of those with as much room.
  struct row {
    std::uint32_t before = none;  // the next one of its list
    std::uint32_t lengths = 0;
  };

  // Lists the lengths in `sorted_`: the longest first, equal ones in their order.
  void sort(std::span<const std::uint32_t> lengths) {
    sorted_.resize(lengths.size());
    if (capacity_ / 4 > lengths.size()) {  // counting all that there may be would take longer
      keys_.clear();
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        assert(lengths[i] >= 1 && lengths[i] <= capacity_);
        keys_.push_back(std::uint64_t{~lengths[i]} << 32U | i);
      }
      std::sort(keys_.begin(), keys_.end());
      for (std::size_t i = 0; i < keys_.size(); ++i) {
        sorted_[i] = static_cast<std::uint32_t>(keys_[i]);
      }
      return;
    }
    places_.assign(capacity_ + 1, 0);
    for (const std::uint32_t length : lengths) {
      assert(length >= 1 && length <= capacity_);
      ++places_[capacity_ - length + 1];
    }
    for (std::size_t i = 1; i < capacity_; ++i) places_[i] += places_[i - 1];
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      sorted_[places_[capacity_ - lengths[i]]++] = static_cast<std::uint32_t>(i);
    }
  }

  std::uint32_t open() {
    rows_.push_back({});
    return static_cast<std::uint32_t>(rows_.size() - 1);
  }

  std::uint32_t take(std::size_t room) noexcept {
    const std::uint32_t number = last_[room];
    last_[room] = rows_[number].before;
    if (last_[room] == none) rooms_.erase(room);
    return number;
  }

  // One more length is in the row, which has `room` left.
  void put(std::uint32_t number, std::size_t room) noexcept {
    row& one = rows_[number];
    if (++one.lengths == most_ || room == 0) return;
    one.before = last_[room];
    last_[room] = number;
    rooms_.insert(room);
  }

  std::size_t capacity_;
  std::size_t most_;
  number_set rooms_;                 // for which there are rows
  std::vector<std::uint32_t> last_;  // by room: the row that came last
  std::vector<row> rows_;
  std::vector<std::uint32_t> sorted_;  // which lengths, the longest first
  std::vector<std::uint64_t> keys_;    // that they are sorted by
  std::vector<std::uint32_t>
      places_;  // by how much shorter than a row: the next one's in `sorted_`
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
