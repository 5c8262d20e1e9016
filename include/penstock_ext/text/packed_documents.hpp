// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
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
#include <penstock/order/support/permutation.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/support/group_cache.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Handling of documents that are longer than a row.
enum class long_documents {
  split,  ///< splits a document into whole rows and a remainder, which is packed like a document
  reject  ///< throws `document_error` at construction
};

/// Options of `pack_documents`.
struct packing_options {
  /// Number of tokens in a row, from 1 to 2^31 - 2.
  std::size_t length = 2048;
  /// Seed that determines the packing and row order, together with the document lengths. Use a
  /// different seed for each epoch to repack.
  std::uint64_t seed = 0;
  /// Number of documents in a window, from 1 to 2^24. An incomplete last window is merged with the
  /// previous window. Larger windows fill rows better, but need more memory and time for each
  /// window.
  std::size_t window = 4096;
  /// Maximum number of documents or parts in a row. 0 means length / 8, at least 1. Determines the
  /// extent of "cu_seqlens".
  std::size_t max_documents = 0;
  /// Handling of documents that are longer than a row.
  long_documents longer = long_documents::split;
  /// The padding token.
  std::uint32_t padding = 0;
  /// Label of tokens without a successor. The default is the `ignore_index` of PyTorch's
  /// cross_entropy.
  std::int32_t no_label = -100;
  /// Number of packed windows in the cache, at least 1. Each window occupies about 20 bytes for
  /// each document. If workers read more windows concurrently than the cache holds, they wait for
  /// each other.
  std::size_t cached_windows = 16;
};

namespace detail {

/// Returns the options with defaults filled in. Throws `option_error` for invalid values.
[[nodiscard]] inline packing_options resolved_packing(packing_options options) {
  const auto require = [](const char* option, std::size_t value, std::size_t max) {
    if (value >= 1 && value <= max) return;
    throw_option_error(option, {"must be 1 to ", max, ", but is ", value});
  };
  // Positions and their end must fit into int32.
  constexpr std::size_t longest = (std::size_t{1} << 31U) - 2;
  require("length", options.length, longest);
  require("window", options.window, std::size_t{1} << 24U);
  if (options.max_documents == 0) {
    options.max_documents = options.length < 8 ? 1 : options.length / 8;
  }
  require("max_documents", options.max_documents, options.length);
  require("cached_windows", options.cached_windows, std::size_t{1} << 20U);
  return options;
}

/// A set of integers in [0, bound) with fast successor queries.
class number_set {
 public:
  /// Creates an empty set of integers less than `bound`.
  explicit number_set(std::size_t bound)
      : words_(bound / 64 + 1), summary_(words_.size() / 64 + 1), bound_(bound) {}

  /// Inserts `number`, which must be less than `bound`.
  void insert(std::size_t number) noexcept {
    words_[number / 64] |= std::uint64_t{1} << number % 64;
    summary_[number / 64 / 64] |= std::uint64_t{1} << number / 64 % 64;
  }
  /// Removes `number`, which must be less than `bound`.
  void erase(std::size_t number) noexcept {
    words_[number / 64] &= ~(std::uint64_t{1} << number % 64);
    if (words_[number / 64] != 0) return;
    summary_[number / 64 / 64] &= ~(std::uint64_t{1} << number / 64 % 64);
  }
  /// Returns the smallest member that is at least `number`, or `bound` without such a member.
  /// `number` must be less than `bound`.
  [[nodiscard]] std::size_t at_least(std::size_t number) const noexcept {
    const std::size_t first = number / 64;
    const std::uint64_t in_word = words_[first] >> number % 64;
    if (in_word != 0) return number + lowest(in_word);
    // Searches the following words through the summary bits.
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
  std::vector<std::uint64_t> summary_;  // one bit for each nonzero word
  std::size_t bound_;
};

/// Packs lengths into rows of equal capacity by best-fit decreasing: longest first, and equal
/// lengths in input order. Assigns each length to the row with the least sufficient room. Ties go
/// to the most recently changed row. Uses only integers, so that the packing is the same on every
/// machine.
///
/// Takes O(n log n) time for n lengths. Source: Johnson, Demers, Ullman, Garey, Graham, "Worst-case
/// performance bounds for simple one-dimensional packing algorithms", 1974. Not thread-safe.
class best_fit {
 public:
  /// Packs into rows of `capacity` tokens with at most `max` lengths each. Both must be at least 1.
  best_fit(std::size_t capacity, std::size_t max)
      : capacity_(capacity), max_(max), rooms_(capacity + 1), last_(capacity + 1, none) {}

  /// Sets `row_of[i]` to the row of `lengths[i]`. All lengths must be in [1, capacity]. Returns the
  /// number of rows.
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
    // Clears the set for the next call.
    for (std::size_t room = rooms_.at_least(0); room <= capacity_; room = rooms_.at_least(room)) {
      rooms_.erase(room);
      last_[room] = none;
    }
    return static_cast<std::uint32_t>(rows_.size());
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // A row that can hold more lengths, in a list of rows with equal room.
  struct row {
    std::uint32_t before = none;  // next row in its list
    std::uint32_t lengths = 0;
  };

  // Sorts the lengths into `sorted_`: longest first, and equal lengths in input order.
  void sort(std::span<const std::uint32_t> lengths) {
    sorted_.resize(lengths.size());
    if (capacity_ / 4 > lengths.size()) {  // a counting sort would take longer
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

  // Adds a length to the row, which leaves `room`.
  void put(std::uint32_t number, std::size_t room) noexcept {
    row& one = rows_[number];
    if (++one.lengths == max_ || room == 0) return;
    one.before = last_[room];
    last_[room] = number;
    rooms_.insert(room);
  }

  std::size_t capacity_;
  std::size_t max_;
  number_set rooms_;                 // the distinct amounts of room
  std::vector<std::uint32_t> last_;  // last row of each list, indexed by room
  std::vector<row> rows_;
  std::vector<std::uint32_t> sorted_;  // indices of lengths, longest first
  std::vector<std::uint64_t> keys_;
  std::vector<std::uint32_t> places_;  // next position in `sorted_`, indexed by capacity - length
};

/// A part of a document in a row.
struct packed_piece {
  std::uint64_t document = 0;  ///< document index
  std::uint64_t length = 0;    ///< number of tokens in the document
  std::uint64_t begin = 0;     ///< first token of the piece
  std::size_t tokens = 0;      ///< number of tokens in the piece
};

/// The rows of a window of documents, in random order. Memory use grows with the number of
/// documents in the window, but not with the rows that a single document fills. Reading is
/// thread-safe.
class packed_window {
 public:
  /// Returns the number of rows.
  [[nodiscard]] std::uint64_t rows() const noexcept { return full_rows() + shared_rows_; }
  /// Returns the number of tokens.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// Returns a hash of the packed documents' indices and lengths, in order.
  [[nodiscard]] std::uint64_t documents_hash() const noexcept { return documents_hash_.value(); }

  /// Calls `use(piece)` for the pieces of row `row`, in order. `row` must be less than rows().
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
  std::vector<std::uint64_t> full_ends_;  // cumulative number of whole rows up to each document
  // Start of each shared row in `rests_`, followed by the end.
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> rests_;  // documents with remainders, ordered by shared row
  std::optional<permutation> order_;  // empty without rows
};

/// Packs windows of documents. The result depends only on the document lengths, the options and the
/// window index. Window w contains the documents starting at position w * window of a shuffle with
/// the seed. References the documents. Not thread-safe. Each thread needs its own packer.
template <token_documents Documents>
class window_packer {
 public:
  /// Packs `documents`, which must outlive the packer. `options` must be resolved
  /// (`resolved_packing`).
  window_packer(const Documents& documents, const packing_options& options)
      : documents_(&documents),
        options_(options),
        size_(documents.size()),
        fit_(options.length, options.max_documents) {
    if (size_ > 0) order_.emplace(size_, seed_of(documents_order), 0);
  }

  /// Returns the number of windows for `size` documents. No window is smaller than `window`, unless
  /// there are too few documents.
  [[nodiscard]] static std::uint64_t windows(std::uint64_t size, std::size_t window) noexcept {
    return size == 0 ? 0 : (std::max)(size / window, std::uint64_t{1});
  }

  /// Packs window `number`. Throws `document_error` if a document is too long, and errors from the
  /// documents.
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
  // More tokens than any file has, but few enough that sums over a window cannot overflow.
  static constexpr std::uint64_t max_tokens = std::uint64_t{1} << 38U;

  // Derives keys that differ from those of a sampler with the same seed.
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
    document_lengths_.resize(indices_.size());
    if constexpr (reports_document_lengths<Documents>)
      documents_->lengths(indices_, document_lengths_);
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      const std::uint64_t index = indices_[i];
      if constexpr (!reports_document_lengths<Documents>)
        document_lengths_[i] = documents_->length(index);
      const std::uint64_t length = document_lengths_[i];
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

  void require_length(std::uint64_t index, std::uint64_t length) const {
    if (length > options_.length && options_.longer == long_documents::reject) {
      throw document_error(
          documents_->key(index), index,
          "at most " + std::to_string(options_.length) + " tokens (length)",
          std::to_string(length) +
              ": split the document (long_documents::split), or raise the length of rows");
    }
    if (length > max_tokens) {
      throw document_error(documents_->key(index), index, "at most 2^38 tokens",
                           std::to_string(length));
    }
  }

  // Sorts the remainders by row, and within a row by document order.
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
  std::optional<permutation> order_;  // order of all documents; empty without documents
  best_fit fit_;
  std::vector<std::uint64_t> indices_;           // document indices of the window
  std::vector<std::uint64_t> document_lengths_;  // document lengths of the window
  std::vector<std::uint32_t> lengths_;           // remainder lengths
  std::vector<std::uint32_t> rests_;             // documents with remainders
  std::vector<std::uint32_t> row_of_;            // row of each remainder
};

}  // namespace detail

/// A row of packed documents. S is `packing_options::length` and M is `max_documents`.
/// - "tokens" (S): the tokens of consecutive documents, then padding.
/// - "labels" (S): for each token, the next token of its document, even if that token is in another
///   row. `no_label` at the end of a document and in the padding.
/// - "position_ids" (S): positions within each document or part, starting at 0. 0 in the padding.
/// - "cu_seqlens" (M + 1): the start of each document, then the end of the last document, repeated
///   to fill the field. Kernels therefore see empty sequences after the last document.
/// - "sequences": the number of documents or parts.
template <class Token>
using packed_record =
    record<field<"tokens", Token, dyn>, field<"labels", std::int32_t, dyn>,
           field<"position_ids", std::int32_t, dyn>, field<"cu_seqlens", std::int32_t, dyn>,
           field<"sequences", std::int32_t>>;

namespace detail {

/// Writes a row, one piece at a time.
template <class Token>
class packed_row {
 public:
  packed_row(const sample<packed_record<Token>>& out, const packing_options& options)
      : options_(&options),
        tokens_(out.template get<"tokens">().data()),
        labels_(out.template get<"labels">().data()),
        positions_(out.template get<"position_ids">().data()),
        ends_(out.template get<"cu_seqlens">().data()),
        sequences_(&out.template get<"sequences">()) {
    ends_[0] = 0;
  }

  /// Appends a piece. Propagates errors from the documents. Throws `document_error`.
  template <token_documents Documents>
  void add(const Documents& documents, const packed_piece& piece, blob_buffer& buffer) {
    const std::span<const std::byte> bytes = documents.bytes(piece.document, buffer);
    if (bytes.size() / sizeof(Token) != piece.length) {
      throw document_error(documents.key(piece.document), piece.document,
                           std::to_string(piece.length) + " tokens, as at the time of packing",
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
                           "tokens from 0 to 2^31 - 1", "a token that cannot be a label");
    }
    if (!goes_on) labels_[used_ + piece.tokens - 1] = options_->no_label;
    used_ += piece.tokens;
    ends_[++pieces_] = static_cast<std::int32_t>(used_);
  }

  /// Pads the remainder of the row.
  void finish() {
    const std::size_t length = options_->length;
    std::fill(tokens_ + used_, tokens_ + length, static_cast<Token>(options_->padding));
    std::fill(labels_ + used_, labels_ + length, options_->no_label);
    std::fill(positions_ + used_, positions_ + length, 0);
    std::fill(ends_ + pieces_ + 1, ends_ + options_->max_documents + 1, ends_[pieces_]);
    *sequences_ = static_cast<std::int32_t>(pieces_);
  }

 private:
  // Writes the labels and positions of `count` tokens. `next` is the label of the last token.
  // Returns false if a token does not fit into a label.
  [[nodiscard]] bool fill_labels(const Token* tokens, std::size_t count, Token next) noexcept {
    std::int32_t* const labels = labels_ + used_;
    std::int32_t* const positions = positions_ + used_;
    const std::size_t followed = count - 1;  // tokens whose successor is also in this row
    std::int32_t all = static_cast<std::int32_t>(tokens[0]) | static_cast<std::int32_t>(next);
    if (followed >= block) {
      all |= fill_blocks(tokens, labels, positions, 0, followed);
      // Writes the remainder as an overlapping last block, which rewrites some values without
      // changing them.
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

  // Writes the labels and positions of all whole blocks in the `count` tokens. Positions start at
  // `first`. Returns the bitwise OR of the labels. Compilers vectorize this loop even at -O2,
  // because it has no remainder and no aliasing. Compilers would unroll a nested loop over the
  // tokens of a block and then vectorize it poorly.
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
  std::size_t used_ = 0;    // number of tokens written
  std::size_t pieces_ = 0;  // number of documents or parts written
};

/// Prefetches the pieces of upcoming rows if the documents accept hints.
///
/// First prefetches one token of each of many pieces, so that their lookups overlap. Then
/// prefetches each whole piece while the previous piece is written. Prefetching all pieces at once
/// would stall, because a processor can have only a few cache lines in flight. References the
/// documents. Not thread-safe.
template <class Documents>
class piece_hints {
 public:
  /// Forwards hints to `documents`, which must outlive this object.
  explicit piece_hints(const Documents& documents) noexcept : documents_(&documents) {}

  /// Adds the pieces of the rows `indices` in `window`, while there is room. `first` is the index
  /// of the window's first row. Returns the number of rows added.
  std::size_t take(const packed_window& window, std::uint64_t first,
                   std::span<const std::uint64_t> indices) {
    if constexpr (is_used) {
      at_ = 0;
      count_ = 0;
      std::size_t rows = 0;
      while (rows < indices.size() && count_ < max / 2) {
        const std::uint64_t index = indices[rows];
        if (index < first || index - first >= window.rows()) break;
        window.for_each_piece(index - first, [&](const packed_piece& piece) {
          if (count_ == max) return;
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

  /// Prefetches the next piece. Call this before reading each piece.
  void advance() noexcept {
    if constexpr (is_used) {
      ++at_;
      name();
    }
  }

 private:
  static constexpr bool is_used = prefetches_documents<Documents>;
  static constexpr std::size_t max = is_used ? 24 : 0;

  void name() const noexcept {
    if (at_ >= count_) return;
    documents_->prefetch(std::span<const document_part>{whole_}.subspan(at_, 1));
  }

  const Documents* documents_;
  std::array<document_part, max> whole_;
  std::array<document_part, max> starts_;
  std::size_t count_ = 0;
  std::size_t at_ = 0;  // index of the piece that is read next
};

}  // namespace detail

/// A dataset of fixed-length rows that contain whole documents, created by `pack_documents`. Suits
/// models that restrict attention to documents through "cu_seqlens".
///
/// Documents are shuffled with the seed and packed in windows by best-fit decreasing. The rows of a
/// window are in random order. The content of a row depends only on the lengths, the seed and the
/// options. Therefore it is the same for all workers, ranks and resumed runs, and each token is in
/// exactly one row. A document longer than a row is split into whole rows and a remainder, which is
/// packed like other documents.
///
/// Construction queries all document lengths and packs each window once, but keeps only 16 bytes
/// for each window. Reading packs a window again, with allocations, unless it is among the
/// `cached_windows` cached windows. If readers use all cached windows, a thread that needs another
/// window waits. Therefore use `sequential`, or `block_shuffled` with blocks of `window_rows()`,
/// since the documents are already shuffled. `shuffled` works, but packs a window for nearly every
/// row. `fingerprint()` identifies the packing, so that a loader rejects a saved state of a
/// different packing.
///
/// Movable. Reading is thread-safe. @see examples/14_packed_tokens.cpp
template <token_documents Documents, std::integral Token>
class packed_documents {
 public:
  using record_type = packed_record<Token>;
  /// True if the dataset references documents that it does not own.
  static constexpr bool borrows = std::is_reference_v<Documents> || detail::borrows<Documents>;

  /// Packs `documents`. Throws `option_error` for invalid options or if the token size differs from
  /// `sizeof(Token)`, `document_error` if a document is rejected, and errors from the documents'
  /// `length`.
  explicit packed_documents(Documents documents, const packing_options& options = {})
      : options_(detail::resolved_packing(options)),
        lengths_(extents_for(options_)),
        parts_(
            std::make_unique<parts>(std::forward<Documents>(documents), options_.cached_windows)) {
    const source_type& source = parts_->documents;
    if (source.token_bytes() != sizeof(Token)) {
      detail::throw_option_error(
          "Token", {"has ", sizeof(Token), " bytes, but the documents' tokens have ",
                    static_cast<std::size_t>(source.token_bytes()),
                    ": use pack_documents<std::uint32_t>(...) for tokens of 4 bytes"});
    }
    if (!std::in_range<Token>(options_.padding)) {
      detail::throw_option_error(
          "padding",
          {"is ", options_.padding, ", which does not fit a token of ", sizeof(Token), " bytes"});
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
      if (ends_.back() > max_rows) {
        throw option_error("length",
                           "the documents fill more than 2^62 rows: raise the length of rows");
      }
    }
  }

  /// Returns the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  /// Returns the extents of a row's fields: `length` for the first three fields, and
  /// `max_documents` + 1 for "cu_seqlens".
  [[nodiscard]] const record_extents<record_type>& extents() const noexcept { return lengths_; }
  /// Returns the total number of tokens in all documents.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  /// Returns the mean number of rows in a window, at least 1. If `block_shuffled` has blocks of
  /// this size or a small multiple, most windows are found in the cache.
  [[nodiscard]] std::uint64_t window_rows() const noexcept {
    return ends_.empty() ? 1 : (std::max)(size() / ends_.size(), std::uint64_t{1});
  }
  /// Returns the fraction of row tokens that are not padding, or 1 without rows.
  [[nodiscard]] double fill() const noexcept {
    if (size() == 0) return 1;
    return static_cast<double>(tokens_) / static_cast<double>(options_.length) /
           static_cast<double>(size());
  }

  /// Returns a hash of the packing: the options, the row counts, and the document indices and
  /// lengths of each window.
  [[nodiscard]] std::uint64_t fingerprint() const noexcept {
    detail::word_hash hash;
    hash.add_all({options_.length, options_.seed, options_.window, options_.max_documents,
                  options_.padding, static_cast<std::uint64_t>(options_.no_label), tokens_});
    return hash.add_all(ends_).add_all(hashes_).value();
  }

  /// Writes the rows `indices` to `out`. Throws `index_error`, `documents_changed`, and errors from
  /// the documents. Throws `document_error` if a document's length has changed, or if a token is
  /// not a valid label because it is negative, or 2^31 or more.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    blob_buffer buffer;
    std::optional<lease> held;
    const detail::packed_window* window = nullptr;
    std::uint64_t first = 0;  // first row of the window
    detail::piece_hints<source_type> hints{parts_->documents};
    std::size_t hinted = 0;  // number of rows that the hints cover
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      const std::uint64_t index = indices[i];
      if (index >= size()) throw index_error("packed_documents", index, size());
      if (window == nullptr || index < first || index - first >= window->rows()) {
        const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
        held.reset();  // a thread may hold at most one lease (see `group_cache`)
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
  static constexpr std::uint64_t max_rows = std::uint64_t{1} << 62U;

  // On the heap, so that references remain valid when this object is moved.
  struct parts {
    parts(Documents source, std::size_t kept)
        : documents(std::forward<Documents>(source)), windows(kept) {}
    Documents documents;
    detail::group_cache<detail::packed_window> windows;  // counts each window as 1 byte
  };

  [[nodiscard]] static record_extents<record_type> extents_for(const packing_options& options) {
    return {{options.length}, {options.length}, {options.length}, {options.max_documents + 1}, {}};
  }

  [[nodiscard]] lease window_at(std::size_t number) const {
    return parts_->windows.get(number, 1, [&] {
      detail::packed_window made = packer{parts_->documents, options_}.pack(number);
      const std::uint64_t rows = ends_[number] - (number == 0 ? 0 : ends_[number - 1]);
      if (made.rows() != rows) {
        throw documents_changed(
            detail::str_cat({"packed_documents: expected documents that fill ", rows,
                             " rows in window ", number, ", found documents that fill ",
                             made.rows(), ": do not change the documents while they are in use"}));
      }
      if (made.documents_hash() != hashes_[number]) {
        throw documents_changed(
            detail::str_cat({"packed_documents: expected in window ", number,
                             " the document lengths at the time of packing, found different "
                             "lengths: do not change the documents while they are in use"}));
      }
      return made;
    });
  }

  packing_options options_;
  record_extents<record_type> lengths_;
  std::unique_ptr<parts> parts_;
  std::vector<std::uint64_t> ends_;    // cumulative number of rows up to the end of each window
  std::vector<std::uint64_t> hashes_;  // document hash of each window
  std::uint64_t tokens_ = 0;
};

/// Packs `documents` into rows of `options.length` tokens (see `packed_documents`):
///
///     auto rows = pack_documents(megatron_documents{"pile_text_document"}, {.length = 2048});
///     block_shuffled order{.seed = 1, .block = rows.window_rows()};
///     loader feed{rows, order, {.batch_size = 8}};
///
/// An lvalue is referenced and must outlive the result. `Token` is the document token type, an
/// integer of 1, 2 or 4 bytes. Throws the same errors as the `packed_documents` constructor.
template <std::integral Token = std::uint16_t, class Documents>
  requires token_documents<std::remove_cvref_t<Documents>>
[[nodiscard]] auto pack_documents(Documents&& documents, const packing_options& options = {}) {
  static_assert(sizeof(Token) <= 4,
                "penstock::pack_documents: labels have 4 bytes, so tokens must not be larger");
  using source = std::remove_cvref_t<Documents>;
  using stored = std::conditional_t<std::is_lvalue_reference_v<Documents>, const source&, source>;
  return packed_documents<stored, Token>{std::forward<Documents>(documents), options};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
