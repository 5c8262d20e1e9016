// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock_ext/text/detail/packed_window.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Names the pieces of the next rows to their documents, where those want to know.
///
/// First one token of many pieces: their places are looked up together, so memory is waited for
/// once. Then each piece as a whole, while the one before it is written: a processor has few lines
/// under way at once, and all pieces together would be waited for. Refers to the documents. Not
/// thread-safe.
template <class Documents>
class piece_hints {
 public:
  /// For `documents`, which must outlive it.
  explicit piece_hints(const Documents& documents) noexcept : documents_(&documents) {}

  /// Takes the pieces of rows `indices` of `window`, whose first row has the index `first`, as far
  /// as they are in it and there is room. Returns of how many rows.
  std::size_t take(const packed_window& window, std::uint64_t first,
                   std::span<const std::uint64_t> indices) {
    if constexpr (is_used) {
      at_ = 0;
      count_ = 0;
      std::size_t rows = 0;
      while (rows < indices.size() && count_ < most / 2) {
        const std::uint64_t index = indices[rows];
        if (index < first || index - first >= window.rows()) break;
        window.for_each_piece(index - first, [&](const packed_piece& piece) {
          if (count_ == most) return;
          whole_[count_] = {piece.document, piece.begin, piece.tokens};
          starts_[count_++] = {piece.document, piece.begin, 1};
        });
        ++rows;
      }
      documents_->prefetch(std::span<const document_part>{starts_}.first(count_));
      name();
      return rows;
    } else {
      return indices.size();
    }
  }

  /// Called before each piece is read: names the one after it.
  void advance() noexcept {
    if constexpr (is_used) {
      ++at_;
      name();
    }
  }

 private:
  static constexpr bool is_used = prefetches_documents<Documents>;
  static constexpr std::size_t most = is_used ? 24 : 0;

  void name() const noexcept {
    if (at_ >= count_) return;
    documents_->prefetch(std::span<const document_part>{whole_}.subspan(at_, 1));
  }

  const Documents* documents_;
  std::array<document_part, most> whole_;
  std::array<document_part, most> starts_;
  std::size_t count_ = 0;
  std::size_t at_ = 0;  // the piece that is read next
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
