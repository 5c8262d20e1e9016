// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock/threads/support/group_cache.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/text/detail/packed_window.hpp>
#include <penstock_ext/text/packing_options.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A row of packed documents. `S` is `packing_options::length`, M `most_documents`:
/// - "tokens", S: the documents' tokens, one after the other, then padding;
/// - "labels", S: for each token the next one of its document, even if that is in another row, and
///   `no_label` at the end of a document and in the padding;
/// - "position_ids", S: positions from 0 on within each document or part of one; 0 in the padding;
/// - "cu_seqlens", M + 1: the start of each document, and the end of the last one, repeated to fill
///   the field, so that kernels see empty sequences after the last one;
/// - "sequences": the number of documents or parts.
template <class Token>
using packed_record =
    record<field<"tokens", Token, dyn>, field<"labels", std::int32_t, dyn>,
           field<"position_ids", std::int32_t, dyn>, field<"cu_seqlens", std::int32_t, dyn>,
           field<"sequences", std::int32_t>>;

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

  /// Pads the rest of the row.
  void finish() {
    const std::size_t length = options_->length;
    std::fill(tokens_ + used_, tokens_ + length, static_cast<Token>(options_->padding));
    std::fill(labels_ + used_, labels_ + length, options_->no_label);
    std::fill(positions_ + used_, positions_ + length, 0);
    std::fill(ends_ + pieces_ + 1, ends_ + options_->most_documents + 1, ends_[pieces_]);
    *sequences_ = static_cast<std::int32_t>(pieces_);
  }

 private:
  // Writes the labels and positions of `count` tokens; the label of the last is `next`. False if a
  // token does not fit into a label.
  [[nodiscard]] bool fill_labels(const Token* tokens, std::size_t count, Token next) noexcept {
    std::int32_t* const labels = labels_ + used_;
    std::int32_t* const positions = positions_ + used_;
    const std::size_t followed = count - 1;  // tokens whose successor is here too
    std::int32_t all = static_cast<std::int32_t>(tokens[0]) | static_cast<std::int32_t>(next);
    if (followed >= block) {
      all |= fill_blocks(tokens, labels, positions, 0, followed);
      // The remainder, by an overlapping last block, which rewrites equal values.
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

  // Writes the labels, and the positions from `first` on, of the whole blocks among the `count`
  // tokens; returns the union of the labels' bits. Without a remainder and aliasing, compilers
  // vectorise this single loop even at -O2. A nested loop over the tokens of a block would be
  // unrolled first, and then vectorised badly.
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

/// Gives prefetch hints for the pieces of the next rows to documents that accept them.
///
/// First one token of many pieces, so that their lookups overlap. Then each whole piece while the
/// one before is written: a processor can have only a few cache lines in flight, so hinting all
/// pieces at once would stall. Refers to the documents. Not thread-safe.
template <class Documents>
class piece_hints {
 public:
  /// For `documents`, which must outlive it.
  explicit piece_hints(const Documents& documents) noexcept : documents_(&documents) {}

  /// Takes the pieces of the rows `indices` that are in `window`, whose first row has the index
  /// `first`, while there is room. Returns the number of rows taken.
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

  /// Called before each piece is read: hints the next one.
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

/// A dataset of rows of S tokens, filled with whole documents, made by `pack_documents`: for models
/// that limit attention to documents by "cu_seqlens".
///
/// Documents are shuffled by the seed and packed window by window, by best-fit decreasing; the rows
/// of a window come in random order. The contents of row k depend only on the lengths, the seed and
/// the options, so workers, ranks and resumed trainings agree, and each token of each document is
/// in exactly one row. A document longer than a row is split into whole rows and a remainder that
/// is packed like the others.
///
/// Construction queries the length of each document and packs each window once, keeping 16 bytes
/// per window. Reading packs a window again, with allocations, unless it is among the last
/// `kept_windows`; a thread that needs one more waits until one of those is not read any more. So
/// use `sequential`, or `block_shuffled` with blocks of `window_rows()`; documents are already
/// shuffled. `shuffled` is correct, but packs a window for nearly every row.
/// `fingerprint()` identifies the packing, so that a state of another packing is refused.
///
/// Movable. Reading is thread-safe. @see examples/14_packed_tokens.cpp
template <token_documents Documents, std::integral Token>
class packed_documents {
 public:
  using record_type = packed_record<Token>;
  /// Whether reading refers to documents of another owner.
  static constexpr bool borrows = std::is_reference_v<Documents> || detail::borrows<Documents>;

  /// Packs `documents`. Throws `option_error` for invalid options and if the token size differs
  /// from that of `Token`; `document_error` for a refused document; and what `length` of the
  /// documents throws.
  explicit packed_documents(Documents documents, const packing_options& options = {})
      : options_(detail::resolved_packing(options)),
        lengths_(extents_for(options_)),
        parts_(std::make_unique<parts>(std::forward<Documents>(documents), options_.kept_windows)) {
    const source_type& source = parts_->documents;
    if (source.token_bytes() != sizeof(Token)) {
      throw option_error("Token", "has " + std::to_string(sizeof(Token)) +
                                      " bytes, and the documents' tokens have " +
                                      std::to_string(source.token_bytes()) +
                                      ": pack_documents<std::uint32_t>(...) takes those of 4");
    }
    if (!std::in_range<Token>(options_.padding)) {
      throw option_error("padding", "is " + std::to_string(options_.padding) +
                                        ", which is no token of " + std::to_string(sizeof(Token)) +
                                        " bytes");
    }
    const std::uint64_t count = packer::windows(source.size(), options_.window);
    ends_.reserve(static_cast<std::size_t>(count));
    hashes_.reserve(static_cast<std::size_t>(count));
    packer make{source, options_};
    for (std::uint64_t number = 0; number < count; ++number) {
      const detail::packed_window window = make.pack(number);
      ends_.push_back(size() + window.rows());
      hashes_.push_back(window.documents_hash());
      tokens_ += window.tokens();
      if (ends_.back() > most_rows) {
        throw option_error("length", "the documents fill more than 2^62 rows: make them longer");
      }
    }
  }

  /// The number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  /// The extents of a row's fields: the length three times, then `most_documents` + 1.
  [[nodiscard]] const record_extents<record_type>& extents() const noexcept { return lengths_; }
  /// The number of tokens of all documents.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// The mean number of rows of a window, at least 1. With `block_shuffled` and blocks of this
  /// size, or a small multiple of it, most windows are found in the cache.
  [[nodiscard]] std::uint64_t window_rows() const noexcept {
    return ends_.empty() ? 1 : (std::max)(size() / ends_.size(), std::uint64_t{1});
  }
  /// The share of the rows that is not padding, 0 to 1; 1 without rows.
  [[nodiscard]] double fill() const noexcept {
    if (size() == 0) return 1;
    return static_cast<double>(tokens_) / static_cast<double>(options_.length) /
           static_cast<double>(size());
  }

  /// A hash of the packing: of its options, and of the rows and the documents of each window, with
  /// their indices and lengths.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept {
    detail::word_hash hash;
    hash.add_all({options_.length, options_.seed, options_.window, options_.most_documents,
                  options_.padding, static_cast<std::uint64_t>(options_.no_label), tokens_});
    return hash.add_all(ends_).add_all(hashes_).value();
  }

  /// Writes the rows `indices` to `out`. Throws `index_error`, what the documents throw,
  /// `documents_changed`, and `document_error` for a document whose length has changed or which has
  /// a token that is not a valid label: negative, or 2^31 or more.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    blob_buffer buffer;
    std::optional<lease> held;
    const detail::packed_window* window = nullptr;
    std::uint64_t first = 0;  // the first row of the window
    detail::piece_hints<source_type> hints{parts_->documents};
    std::size_t hinted = 0;  // rows whose pieces were taken by the hints
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      const std::uint64_t index = indices[i];
      if (index >= size()) throw index_error("packed_documents", index, size());
      if (window == nullptr || index < first || index - first >= window->rows()) {
        const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
        held.reset();  // one at most, see `group_cache`
        held.emplace(window_at(static_cast<std::size_t>(end - ends_.begin())));
        window = &**held;
        first = *end - window->rows();
      }
      if (i >= hinted) hinted = i + hints.take(*window, first, indices.subspan(i));
      detail::packed_row<Token> row{out[i], options_};
      window->for_each_piece(index - first, [&](const detail::packed_piece& piece) {
        hints.advance();
        row.add(parts_->documents, piece, buffer);
      });
      row.finish();
    }
  }

 private:
  using source_type = std::remove_cvref_t<Documents>;
  using packer = detail::window_packer<source_type>;
  using lease = detail::group_cache<detail::packed_window>::lease;
  static constexpr std::uint64_t most_rows = std::uint64_t{1} << 62U;

  // On the heap, so that references stay valid when this object is moved.
  struct parts {
    parts(Documents source, std::size_t kept)
        : documents(std::forward<Documents>(source)), windows(kept) {}
    Documents documents;
    detail::group_cache<detail::packed_window> windows;  // each counts as 1 byte
  };

  [[nodiscard]] static record_extents<record_type> extents_for(const packing_options& options) {
    return {{options.length}, {options.length}, {options.length}, {options.most_documents + 1}, {}};
  }

  [[nodiscard]] lease window_at(std::size_t number) const {
    return parts_->windows.get(number, 1, [&] {
      detail::packed_window made = packer{parts_->documents, options_}.pack(number);
      const std::uint64_t rows = ends_[number] - (number == 0 ? 0 : ends_[number - 1]);
      if (made.rows() != rows) {
        throw documents_changed("packed_documents: expected documents that fill " +
                                std::to_string(rows) + " rows in window " + std::to_string(number) +
                                ", found some that fill " + std::to_string(made.rows()) +
                                ": keep them as they are while they are in use");
      }
      if (made.documents_hash() != hashes_[number]) {
        throw documents_changed(
            "packed_documents: expected documents of the lengths that they had "
            "when they were packed in window " +
            std::to_string(number) + ", found others: keep them as they are while they are in use");
      }
      return made;
    });
  }

  packing_options options_;
  record_extents<record_type> lengths_;
  std::unique_ptr<parts> parts_;
  std::vector<std::uint64_t> ends_;    // end of each window, in rows
  std::vector<std::uint64_t> hashes_;  // of each window's documents
  std::uint64_t tokens_ = 0;
};

/// Packs `documents` into rows of `options.length` tokens, see `packed_documents`:
///
///     auto rows = pack_documents(megatron_documents{"pile_text_document"}, {.length = 2048});
///     block_shuffled order{.seed = 1, .block = rows.window_rows()};
///     loader feed{rows, order, {.batch_size = 8}};
///
/// An lvalue is referred to and must outlive the rows. `Token` is the type of the documents'
/// tokens: an integer of 1, 2 or 4 bytes. Throws what the constructor throws.
template <std::integral Token = std::uint16_t, class Documents>
  requires token_documents<std::remove_cvref_t<Documents>>
[[nodiscard]] auto pack_documents(Documents&& documents, const packing_options& options = {}) {
  static_assert(sizeof(Token) <= 4, "penstock::pack_documents: labels have 4 bytes, tokens too");
  using source = std::remove_cvref_t<Documents>;
  using stored = std::conditional_t<std::is_lvalue_reference_v<Documents>, const source&, source>;
  return packed_documents<stored, Token>{std::forward<Documents>(documents), options};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
