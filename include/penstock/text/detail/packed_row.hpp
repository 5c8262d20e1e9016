// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include <penstock/blob/blob_buffer.hpp>
#include <penstock/core/batch.hpp>
#include <penstock/text/detail/packed_window.hpp>
#include <penstock/text/packed_record.hpp>
#include <penstock/text/packing_options.hpp>
#include <penstock/text/token_documents.hpp>

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
    std::int32_t all = static_cast<std::int32_t>(next);
    std::size_t i = 0;
    for (; i + block < count; i += block) {
      all |= fill_block(tokens + i, labels + i, positions + i, static_cast<std::int32_t>(i));
    }
    for (; i < count; ++i) {
      labels[i] = static_cast<std::int32_t>(i + 1 < count ? tokens[i + 1] : next);
      all |= labels[i];
      positions[i] = static_cast<std::int32_t>(i);
    }
    return (all | static_cast<std::int32_t>(tokens[0])) >= 0;
  }

  static constexpr std::size_t block = 16;

  // The labels and positions of `block` tokens, and the labels' bits. A constant length and places
  // apart from each other: what compilers make vector code of also at -O2.
  [[nodiscard]] static std::int32_t fill_block(const Token* __restrict tokens,
                                               std::int32_t* __restrict labels,
                                               std::int32_t* __restrict positions,
                                               std::int32_t first) noexcept {
    std::int32_t bits = 0;
    for (std::size_t j = 0; j < block; ++j) {
      const auto label = static_cast<std::int32_t>(tokens[j + 1]);
      labels[j] = label;
      bits |= label;
    }
    for (std::int32_t j = 0; j < static_cast<std::int32_t>(block); ++j) positions[j] = first + j;
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
