// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/run_context.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/text/detail/packed_row.hpp>
#include <penstock_ext/text/detail/packed_window.hpp>
#include <penstock_ext/text/detail/piece_hints.hpp>
#include <penstock_ext/text/detail/window_cache.hpp>
#include <penstock_ext/text/packed_record.hpp>
#include <penstock_ext/text/packing_options.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A dataset of rows of S tokens that whole documents fill, as `pack_documents` makes it: rows of a
/// model whose attention is kept within documents by "cu_seqlens".
///
/// Documents are packed in windows: those that a shuffle by the seed puts next to each other, by
/// best fit, the longest first, and the rows of a window come in a random order. Which documents
/// are in row k is a function of the lengths, the seed and the options alone, so workers, ranks and
/// resumed runs agree, and each token of each document is in exactly one row. A document that is
/// longer than a row is split: whole rows, and a rest that is packed as the others are.
///
/// The construction asks for the length of each document and packs each window once: 8 bytes a
/// window are kept. Reading packs a window anew, unless it is one of the last `kept_windows`, and
/// takes memory then. So take `sequential`, or `block_shuffled` by blocks of `window_rows()`: the
/// documents are shuffled already. `shuffled` is right too, and packs a window for nearly each row.
/// `fingerprint()` is that of the packing: a state of another one is refused.
///
/// Movable. Reading is thread-safe. @see examples/14_packed_tokens.cpp
template <token_documents Documents, std::integral Token>
class packed_documents {
 public:
  using record_type = packed_record<Token>;
  /// Whether reading needs the documents of another owner.
  static constexpr bool borrows = detail::borrows<Documents>;

  /// Packs `documents`. Throws `option_error` for options that can't work, and for tokens of
  /// another size than `Token` has; `document_error` for a document that is refused; and what
  /// `length` of the documents throws.
  explicit packed_documents(Documents documents, const packing_options& options = {})
      : options_(detail::resolved_packing(options)),
        lengths_(extents_for(options_)),
        parts_(std::make_unique<parts>(std::move(documents), options_.kept_windows)) {
    const Documents& source = parts_->documents;
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
    packer make{source, options_};
    for (std::uint64_t number = 0; number < count; ++number) {
      const detail::packed_window window = make.pack(number);
      ends_.push_back(size() + window.rows());
      tokens_ += window.tokens();
      if (ends_.back() > most_rows) {
        throw option_error("length", "the documents fill more than 2^62 rows: make them longer");
      }
    }
  }

  /// How many rows there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  /// The extents of a row's fields: the length, three times, and one more than `most_documents`.
  [[nodiscard]] const record_extents<record_type>& extents() const noexcept { return lengths_; }
  /// How many tokens the documents have.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// How many rows a window has, on average, at least 1: a `block_shuffled` with blocks of as many,
  /// or a few times as many, finds most of its windows packed.
  [[nodiscard]] std::uint64_t window_rows() const noexcept {
    return ends_.empty() ? 1 : (std::max)(size() / ends_.size(), std::uint64_t{1});
  }
  /// How much of the rows is tokens and no padding, 0 to 1; 1 where there is no row.
  [[nodiscard]] double fill() const noexcept {
    if (size() == 0) return 1;
    return static_cast<double>(tokens_) / static_cast<double>(options_.length) /
           static_cast<double>(size());
  }

  /// A hash of the packing: of its options, and of how many rows each window has.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept {
    detail::word_hash hash;
    for (const std::uint64_t word :
         {std::uint64_t{options_.length}, options_.seed, std::uint64_t{options_.window},
          std::uint64_t{options_.most_documents}, std::uint64_t{options_.padding},
          static_cast<std::uint64_t>(options_.no_label), tokens_}) {
      hash.add(word);
    }
    for (const std::uint64_t end : ends_) hash.add(end);
    return hash.value();
  }

  /// Writes the rows `indices` to `out`. Throws `index_error`, what the documents throw,
  /// `documents_changed`, and `document_error` for one that has another length than before, or a
  /// token that is no label: 2^31 or more, or below 0.
  void read_run(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                const run_context& context) const {
    blob_buffer buffer;
    std::shared_ptr<const detail::packed_window> window;
    std::uint64_t first = 0;  // the window's first row
    detail::piece_hints<Documents> hints{parts_->documents};
    std::size_t hinted = 0;  // rows whose pieces were taken by it
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      const std::uint64_t index = indices[i];
      if (index >= size()) throw index_error("packed_documents", index, size());
      if (!window || index < first || index - first >= window->rows()) {
        const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
        window = window_at(static_cast<std::uint64_t>(end - ends_.begin()));
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
  using packer = detail::window_packer<Documents>;
  static constexpr std::uint64_t most_rows = std::uint64_t{1} << 62U;

  // Where they stay when this object is moved.
  struct parts {
    parts(Documents source, std::size_t kept) : documents(std::move(source)), windows(kept) {}
    Documents documents;
    detail::window_cache<detail::packed_window> windows;
  };

  [[nodiscard]] static record_extents<record_type> extents_for(const packing_options& options) {
    return {{options.length}, {options.length}, {options.length}, {options.most_documents + 1}, {}};
  }

  [[nodiscard]] std::shared_ptr<const detail::packed_window> window_at(std::uint64_t number) const {
    return parts_->windows.get(number, [&] {
      detail::packed_window made = packer{parts_->documents, options_}.pack(number);
      const auto at = static_cast<std::size_t>(number);
      const std::uint64_t rows = ends_[at] - (at == 0 ? 0 : ends_[at - 1]);
      if (made.rows() != rows) {
        throw documents_changed("packed_documents: expected documents that fill " +
                                std::to_string(rows) + " rows in window " + std::to_string(number) +
                                ", found some that fill " + std::to_string(made.rows()) +
                                ": keep them as they are while they are in use");
      }
      return made;
    });
  }

  packing_options options_;
  record_extents<record_type> lengths_;
  std::unique_ptr<parts> parts_;
  std::vector<std::uint64_t> ends_;  // of the windows, in rows, from the first window's start
  std::uint64_t tokens_ = 0;
};

/// Packs `documents` into rows of `options.length` tokens, see `packed_documents`:
///
///     auto rows = pack_documents(megatron_documents{"pile_text_document"}, {.length = 2048});
///     block_shuffled order{.seed = 1, .block = rows.window_rows()};
///     loader feed{rows, order, {.batch_size = 8}};
///
/// An lvalue is referred to and must outlive the rows. `Token` is the documents' tokens' type:
/// integers of 1, 2 or 4 bytes. Throws what the constructor throws.
template <std::integral Token = std::uint16_t, class Documents>
  requires token_documents<std::remove_cvref_t<Documents>>
[[nodiscard]] auto pack_documents(Documents&& documents, const packing_options& options = {}) {
  static_assert(sizeof(Token) <= 4, "penstock::pack_documents: labels have 4 bytes, tokens too");
  if constexpr (std::is_lvalue_reference_v<Documents>) {
    using stored = detail::documents_ref<std::remove_cvref_t<Documents>>;
    return packed_documents<stored, Token>{stored{documents}, options};
  } else {
    return packed_documents<std::remove_cvref_t<Documents>, Token>{
        std::forward<Documents>(documents), options};
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
