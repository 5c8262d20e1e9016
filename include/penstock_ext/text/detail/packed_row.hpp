// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include <penstock/core/batch.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/text/detail/packed_window.hpp>
#include <penstock_ext/text/packed_record.hpp>
#include <penstock_ext/text/packing_options.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Writes one row, piece by piece.
template <class Token>
class packed_row {
 public:
  /// Writes to `out`.
  packed_row(const sample<packed_record<Token>>& out, const packing_options& options)
      : options_(&options),
        tokens_(out.template get<"tokens">().data()),
        labels_(out.template get<"labels">().data()),
        positions_(out.template get<"position_ids">().data()),
        ends_(out.template get<"cu_seqlens">().data()),
        sequences_(&out.template get<"sequences">()) {
    ends_[0] = 0;
  }

  /// Appends a piece. Throws what the documents throw, and `document_error`.
  template <token_documents Documents>
  void add(const Documents& documents, const packed_piece& piece, blob_buffer& buffer) {
    const std::span<const std::byte> bytes = documents.bytes(piece.document, buffer);
    if (bytes.size() / sizeof(Token) != piece.length) {
      throw document_error(documents.key(piece.document), piece.document,
                           std::to_string(piece.length) + " tokens, as when it was packed",
                           std::to_string(bytes.size()) + " bytes: pack the documents again");
    }
    const std::byte* const begin = bytes.data() + piece.begin * sizeof(Token);
    Token* const tokens = tokens_ + used_;
    std::memcpy(tokens, begin, piece.tokens * sizeof(Token));
    const bool goes_on = piece.begin + piece.tokens < piece.length;
    Token next{};
    if (goes_on) std::memcpy(&next, begin + piece.tokens * sizeof(Token), sizeof next);
    if (!fill_labels(tokens, piece.tokens, next)) {
      throw document_error(documents.key(piece.document), piece.document,
                           "tokens from 0 to 2^31 - 1", "one that is no label");
    }
    if (!goes_on) labels_[used_ + piece.tokens - 1] = options_->no_label;
    used_ += piece.tokens;
    ends_[++pieces_] = static_cast<std::int32_t>(used_);
  }

  /// Fills what is left.
  void finish() {
    const std::size_t length = options_->length;
    std::fill(tokens_ + used_, tokens_ + length, static_cast<Token>(options_->padding));
    std::fill(labels_ + used_, labels_ + length, options_->no_label);
    std::fill(positions_ + used_, positions_ + length, 0);
    std::fill(ends_ + pieces_ + 1, ends_ + options_->most_documents + 1, ends_[pieces_]);
    *sequences_ = static_cast<std::int32_t>(pieces_);
  }

 private:
  // The labels and positions of `count` tokens, the last one's label being `next`. False if one of
  // them has no room in a label.
  [[nodiscard]] bool fill_labels(const Token* tokens, std::size_t count, Token next) noexcept {
    std::int32_t* const labels = labels_ + used_;
    std::int32_t* const positions = positions_ + used_;
    const std::size_t followed = count - 1;  // tokens whose next one is here too
    std::int32_t all = static_cast<std::int32_t>(tokens[0]) | static_cast<std::int32_t>(next);
    if (followed >= block) {
      all |= fill_blocks(tokens, labels, positions, 0, followed);
      // The rest, by a block that ends with it: what it writes again stays as it is.
      const std::size_t last = followed - block;
      all |= fill_blocks(tokens + last, labels + last, positions + last, last, block);
    } else {
      for (std::size_t i = 0; i < followed; ++i) {
        labels[i] = static_cast<std::int32_t>(tokens[i + 1]);
        all |= labels[i];
        positions[i] = static_cast<std::int32_t>(i);
      }
    }
    labels[followed] = static_cast<std::int32_t>(next);
    positions[followed] = static_cast<std::int32_t>(followed);
    return all >= 0;
  }

  static constexpr std::size_t block = 16;

  // The labels, and the positions from `first` on, of as many of the `count` tokens as are whole
  // blocks, and the labels' bits. Nothing is left over and places are apart from each other, so
  // compilers make one loop of vector code of it, at -O2 too; a loop over the tokens of one block
  // inside is unrolled first, and what is left is no good vector code.
  [[nodiscard]] static std::int32_t fill_blocks(const Token* __restrict tokens,
                                                std::int32_t* __restrict labels,
                                                std::int32_t* __restrict positions,
                                                std::size_t first, std::size_t count) noexcept {
    const auto begin = static_cast<std::int32_t>(first);
    const auto whole = static_cast<std::int32_t>(count / block * block);
    std::int32_t bits = 0;
    for (std::int32_t i = 0; i < whole; ++i) {
      const auto label = static_cast<std::int32_t>(tokens[i + 1]);
      labels[i] = label;
      bits |= label;
      positions[i] = begin + i;
    }
    return bits;
  }

  const packing_options* options_;
  Token* tokens_;
  std::int32_t* labels_;
  std::int32_t* positions_;
  std::int32_t* ends_;
  std::int32_t* sequences_;
  std::size_t used_ = 0;    // tokens
  std::size_t pieces_ = 0;  // documents, or parts
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
