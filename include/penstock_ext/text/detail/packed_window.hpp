// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/text/packing_options.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A set of numbers in [0, bound) with fast successor queries.
class number_set {
 public:
  /// The empty set of numbers below `bound`.
  explicit number_set(std::size_t bound)
      : words_(bound / 64 + 1), summary_(words_.size() / 64 + 1), bound_(bound) {}

  /// Inserts `number` < bound.
  void insert(std::size_t number) noexcept {
    words_[number / 64] |= std::uint64_t{1} << number % 64;
    summary_[number / 64 / 64] |= std::uint64_t{1} << number / 64 % 64;
  }
  /// Removes `number` < bound.
  void erase(std::size_t number) noexcept {
    words_[number / 64] &= ~(std::uint64_t{1} << number % 64);
    if (words_[number / 64] != 0) return;
    summary_[number / 64 / 64] &= ~(std::uint64_t{1} << number / 64 % 64);
  }
  /// The smallest member >= `number` < bound; bound if there is none.
  [[nodiscard]] std::size_t at_least(std::size_t number) const noexcept {
    const std::size_t first = number / 64;
    const std::uint64_t in_word = words_[first] >> number % 64;
    if (in_word != 0) return number + lowest(in_word);
    // The following words, by the bits of the summary.
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

/// Packs lengths into rows of equal capacity by best-fit decreasing: longest first, equal ones in
/// order, each into the row with the least sufficient room; ties go to the most recently changed
/// row. In integers only, so that every machine packs alike.
///
/// O(n log n) time for n lengths. Source: Johnson, Demers, Ullman, Garey, Graham, "Worst-case
/// performance bounds for simple one-dimensional packing algorithms", 1974. Not thread-safe.
class best_fit {
 public:
  /// Rows of `capacity` >= 1, each of at most `most` >= 1 lengths.
  best_fit(std::size_t capacity, std::size_t most)
      : capacity_(capacity), most_(most), rooms_(capacity + 1), last_(capacity + 1, none) {}

  /// Sets `row_of[i]` to the row of `lengths[i]`, each in [1, capacity]. Returns the number of
  /// rows.
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

  // A row that may take more is in a list of rows with equal room.
  struct row {
    std::uint32_t before = none;  // the next one of its list
    std::uint32_t lengths = 0;
  };

  // Lists the lengths in `sorted_`: the longest first, equal ones in their order.
  void sort(std::span<const std::uint32_t> lengths) {
    sorted_.resize(lengths.size());
    if (capacity_ / 4 > lengths.size()) {  // counting sort would take longer
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

  // Adds a length to the row, which has `room` left.
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
  std::vector<std::uint32_t> places_;  // by room left in a row of one: next position in `sorted_`
};

/// A part of a document in a row.
struct packed_piece {
  std::uint64_t document = 0;  ///< its index
  std::uint64_t length = 0;    ///< tokens of the document
  std::uint64_t begin = 0;     ///< the piece's first token
  std::size_t tokens = 0;      ///< tokens of the piece
};

/// The rows of one window of documents, in random order. Takes memory per document of the window,
/// but none for rows that one document fills. Reading is thread-safe.
class packed_window {
 public:
  /// The number of rows.
  [[nodiscard]] std::uint64_t rows() const noexcept { return full_rows() + shared_rows_; }
  /// The number of tokens.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// A hash of the documents that are packed, in their order: their indices and lengths.
  [[nodiscard]] std::uint64_t documents_hash() const noexcept { return documents_hash_.value(); }

  /// Calls `use(piece)` for the pieces of row `row` < rows(), in their order.
  template <class Use>
  void for_each_piece(std::uint64_t row, const Use& use) const {
    assert(row < rows());
    const std::uint64_t place = (*order_)(row);
    if (place < full_rows()) {
      const auto end = std::upper_bound(full_ends_.begin(), full_ends_.end(), place);
      const auto of = static_cast<std::size_t>(end - full_ends_.begin());
      const std::uint64_t first = of == 0 ? 0 : full_ends_[of - 1];
      const document& one = documents_[full_[of]];
      use(packed_piece{one.index, one.length, (place - first) * row_length_, row_length_});
      return;
    }
    const auto shared = static_cast<std::size_t>(place - full_rows());
    for (std::uint32_t i = begins_[shared]; i < begins_[shared + 1]; ++i) {
      const document& one = documents_[rests_[i]];
      const std::uint64_t rest = one.length % row_length_;
      use(packed_piece{one.index, one.length, one.length - rest, static_cast<std::size_t>(rest)});
    }
  }

 private:
  template <token_documents Documents>
  friend class window_packer;

  struct document {
    std::uint64_t index;
    std::uint64_t length;
  };

  [[nodiscard]] std::uint64_t full_rows() const noexcept {
    return full_ends_.empty() ? 0 : full_ends_.back();
  }

  std::size_t row_length_ = 1;
  std::uint64_t tokens_ = 0;
  word_hash documents_hash_;
  std::uint32_t shared_rows_ = 0;
  std::vector<document> documents_;
  std::vector<std::uint32_t> full_;       // documents that fill whole rows
  std::vector<std::uint64_t> full_ends_;  // the number of rows filled up to each of them
  std::vector<std::uint32_t> begins_;     // of each shared row in `rests_`, and the end
  std::vector<std::uint32_t> rests_;      // documents with remainders, by shared row
  std::optional<permutation> order_;      // none without rows
};

/// Packs windows of documents: a pure function of their lengths, the options and the window's
/// number. Window w has the documents at positions w * window and following of a shuffle by the
/// seed. Refers to the documents. Not thread-safe; make one for each thread.
template <token_documents Documents>
class window_packer {
 public:
  /// Packs `documents`, which must outlive it; `options` are checked.
  window_packer(const Documents& documents, const packing_options& options)
      : documents_(&documents),
        options_(options),
        size_(documents.size()),
        fit_(options.length, options.most_documents) {
    if (size_ > 0) order_.emplace(size_, seed_of(documents_order), 0);
  }

  /// The number of windows for `size` documents: no window is smaller than requested, unless there
  /// are too few documents.
  [[nodiscard]] static std::uint64_t windows(std::uint64_t size, std::size_t window) noexcept {
    return size == 0 ? 0 : (std::max)(size / window, std::uint64_t{1});
  }

  /// Packs window `number`. Throws `document_error` if a document is too long, and what the
  /// documents throw.
  [[nodiscard]] packed_window pack(std::uint64_t number) {
    packed_window made;
    made.row_length_ = options_.length;
    collect(number, made);
    made.shared_rows_ = fit_.pack(lengths_, row_of_);
    sort_by_row(made);
    if (made.rows() > 0) made.order_.emplace(made.rows(), seed_of(rows_order), number);
    return made;
  }

 private:
  static constexpr std::uint64_t documents_order = 1;
  static constexpr std::uint64_t rows_order = 2;
  // Beyond any file, and small enough for sums over a window.
  static constexpr std::uint64_t most_tokens = std::uint64_t{1} << 38U;

  // The orders use other keys than a sampler with the same seed.
  [[nodiscard]] std::uint64_t seed_of(std::uint64_t order) const noexcept {
    return word_hash{}.add_all({options_.seed, order}).value();
  }

  void collect(std::uint64_t number, packed_window& made) {
    const std::uint64_t first = number * options_.window;
    const bool is_last = number + 1 == windows(size_, options_.window);
    const std::uint64_t count = is_last ? size_ - first : options_.window;
    indices_.resize(static_cast<std::size_t>(count));
    order_->fill(first, indices_);
    made.documents_.reserve(indices_.size());
    lengths_.clear();
    rests_.clear();
    std::uint64_t full = 0;
    if constexpr (tells_document_lengths<Documents>) {
      told_.resize(indices_.size());
      documents_->lengths(indices_, told_);
    }
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      const std::uint64_t index = indices_[i];
      const std::uint64_t length = length_of(i);
      if (length == 0) continue;
      require_length(index, length);
      const auto place = static_cast<std::uint32_t>(made.documents_.size());
      made.documents_.push_back({index, length});
      made.tokens_ += length;
      made.documents_hash_.add_all({index, length});
      if (length >= options_.length) {
        full += length / options_.length;
        made.full_.push_back(place);
        made.full_ends_.push_back(full);
      }
      if (const std::uint64_t rest = length % options_.length; rest != 0) {
        lengths_.push_back(static_cast<std::uint32_t>(rest));
        rests_.push_back(place);
      }
    }
  }

  // The length of the window's document `i`.
  [[nodiscard]] std::uint64_t length_of(std::size_t i) const {
    if constexpr (tells_document_lengths<Documents>) {
      return told_[i];
    } else {
      return documents_->length(indices_[i]);
    }
  }

  void require_length(std::uint64_t index, std::uint64_t length) const {
    if (length > options_.length && options_.longer == long_documents::refuse) {
      throw document_error(
          documents_->key(index), index,
          "at most " + std::to_string(options_.length) + " tokens (length)",
          std::to_string(length) + ": split it (long_documents::split), or make rows longer");
    }
    if (length > most_tokens) {
      throw document_error(documents_->key(index), index, "at most 2^38 tokens",
                           std::to_string(length));
    }
  }

  // Lists the remainders row by row, within a row in the documents' order.
  void sort_by_row(packed_window& made) const {
    made.begins_.assign(std::size_t{made.shared_rows_} + 1, 0);
    for (const std::uint32_t row : row_of_) ++made.begins_[row + 1];
    for (std::size_t row = 0; row < made.shared_rows_; ++row) {
      made.begins_[row + 1] += made.begins_[row];
    }
    std::vector<std::uint32_t> next{made.begins_.begin(), made.begins_.end() - 1};
    made.rests_.resize(row_of_.size());
    for (std::size_t i = 0; i < row_of_.size(); ++i) made.rests_[next[row_of_[i]]++] = rests_[i];
  }

  const Documents* documents_;
  packing_options options_;
  std::uint64_t size_;
  std::optional<permutation> order_;  // of all documents; none without any
  best_fit fit_;
  std::vector<std::uint64_t> indices_;  // of the window's documents
  std::vector<std::uint64_t> told_;     // their lengths, if queried together
  std::vector<std::uint32_t> lengths_;  // of the remainders
  std::vector<std::uint32_t> rests_;    // their documents
  std::vector<std::uint32_t> row_of_;   // their rows
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
