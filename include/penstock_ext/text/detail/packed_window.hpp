// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/text/detail/best_fit.hpp>
#include <penstock_ext/text/packing_options.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A part of a document that is in a row.
struct packed_piece {
  std::uint64_t document = 0;  ///< its index
  std::uint64_t length = 0;    ///< tokens of the document
  std::uint64_t begin = 0;     ///< the piece's first token
  std::size_t tokens = 0;      ///< tokens of the piece
};

/// The rows of one window of documents, in a random order. Takes memory for each document of the
/// window, and none for a row that one document fills. Reading is thread-safe.
class packed_window {
 public:
  /// How many rows there are.
  [[nodiscard]] std::uint64_t rows() const noexcept { return full_rows() + shared_rows_; }
  /// How many tokens they have.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }

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
  std::uint32_t shared_rows_ = 0;
  std::vector<document> documents_;
  std::vector<std::uint32_t> full_;       // documents that fill rows of their own
  std::vector<std::uint64_t> full_ends_;  // after each of them, how many rows are filled
  std::vector<std::uint32_t> begins_;     // of each shared row in `rests_`, and the end
  std::vector<std::uint32_t> rests_;      // documents whose rests are in shared rows, row by row
  std::optional<permutation> order_;      // none without rows
};

/// Packs windows of documents: a pure function of their lengths, the options and the window's
/// number. Window w has the documents that a shuffle by the seed puts at the places from
/// w * window on. Refers to the documents. Not thread-safe; make one for each thread.
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

  /// How many windows there are for `size` documents: none is smaller than asked for, unless there
  /// are no more documents.
  [[nodiscard]] static std::uint64_t windows(std::uint64_t size, std::size_t window) noexcept {
    return size == 0 ? 0 : (std::max)(size / window, std::uint64_t{1});
  }

  /// Packs window `number`. Throws `document_error` for a document that is too long, and what the
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
  // Far from what any file holds, and small enough for sums over a window.
  static constexpr std::uint64_t most_tokens = std::uint64_t{1} << 38U;

  // The orders have keys of their own, apart from that of a sampler with the same seed.
  [[nodiscard]] std::uint64_t seed_of(std::uint64_t order) const noexcept {
    word_hash hash;
    hash.add(options_.seed);
    hash.add(order);
    return hash.value();
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

  // Of the window's document `i`.
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

  // Lists the rests row by row; those of a row stay in the documents' order.
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
  std::vector<std::uint64_t> told_;     // their lengths, where they are told at once
  std::vector<std::uint32_t> lengths_;  // of the rests
  std::vector<std::uint32_t> rests_;    // whose they are
  std::vector<std::uint32_t> row_of_;   // where they are
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
