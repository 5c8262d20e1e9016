// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The .idx file of a Megatron indexed dataset, version 1, little-endian:
///
///     "MMIDIDX", two NULs; u64 version; u8 token type code; u64 sequences; u64 documents
///     i32[sequences]    number of tokens in each sequence
///     i64[sequences]    byte offset of each sequence in the .bin file
///     i64[documents]    index of each document's first sequence, with one more entry, so
///                       that each document ends at the start of the next document
///     i8[sequences]     modes, in some files
///
/// The arrays start at byte 34, so the entries are unaligned. References the file's bytes and reads
/// only the requested entries.
class megatron_index {
 public:
  /// Validates the index in `bytes`. `path` is used in messages. Throws `file_truncated`,
  /// `file_format_error` if the file is not a version 1 index or has the wrong length, and
  /// `file_corrupt` if the documents do not cover the sequences.
  megatron_index(std::span<const std::byte> bytes, std::string path)
      : bytes_(bytes), path_(std::move(path)) {
    constexpr std::string_view magic{"MMIDIDX\0\0", 9};
    const std::string_view start{reinterpret_cast<const char*>(bytes.data()),
                                 bytes.size() < magic.size() ? bytes.size() : magic.size()};
    if (start != magic.substr(0, start.size())) {
      throw file_format_error(path_, 0, "a Megatron index, which starts with MMIDIDX",
                              "other bytes");
    }
    if (bytes.size() < arrays) {
      throw file_truncated(path_, bytes.size(), "a header of 34 bytes", "the end of the file");
    }
    if (const std::uint64_t version = number<8>(9); version != 1) {
      throw file_format_error(path_, 9, "version 1", std::to_string(version));
    }
    constexpr std::uint8_t sizes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};
    const std::uint64_t code = number<1>(17);
    if (code == 0 || code >= sizeof sizes) {
      throw file_format_error(path_, 17, "the code of the token type, 1 to 8",
                              std::to_string(code));
    }
    if (code == 6 || code == 7) {
      throw file_format_error(path_, 17, "tokens that are integers",
                              "code " + std::to_string(code) + ", a floating-point type");
    }
    token_bytes_ = sizes[code];
    sequences_ = number<8>(18);
    const std::uint64_t starts = number<8>(26);
    if (starts == 0) throw file_format_error(path_, 26, "1 or more starts of documents", "0");
    documents_ = starts - 1;
    // Divides instead of multiplying, because products could overflow.
    const std::uint64_t left = bytes.size() - arrays;
    const bool fits = sequences_ <= left / 12 && starts <= (left - 12 * sequences_) / 8;
    const std::uint64_t rest = fits ? left - 12 * sequences_ - 8 * starts : 0;
    if (!fits || (rest != 0 && rest != sequences_)) {
      throw file_format_error(path_, 18,
                              "at most as many sequences and documents as fit into the file",
                              std::to_string(sequences_) + " and " + std::to_string(starts));
    }
    if (const std::uint64_t last = number<8>(start_at(documents_)); last != sequences_) {
      throw file_corrupt(path_, start_at(documents_),
                         std::to_string(sequences_) + " sequences, according to the header",
                         std::to_string(last) + ": the index is damaged: write it again");
    }
  }

  /// Returns the number of documents.
  [[nodiscard]] std::uint64_t documents() const noexcept { return documents_; }
  /// Returns the size of a token in bytes.
  [[nodiscard]] std::size_t token_bytes() const noexcept { return token_bytes_; }

  /// Returns the end of the last sequence in the .bin file, which should equal the file length. If
  /// the entries are damaged, returns a length that no file has.
  [[nodiscard]] std::uint64_t end() const noexcept {
    if (sequences_ == 0) return 0;
    std::uint64_t end = 0;
    const std::uint64_t tokens = number<4>(arrays + 4 * (sequences_ - 1));
    const bool wraps =
        __builtin_add_overflow(number<8>(begin_at(sequences_ - 1)), tokens * token_bytes_, &end);
    return wraps ? nowhere : end;
  }

  /// The byte range of a document in the .bin file.
  struct place {
    std::uint64_t begin = 0;  ///< offset of the first byte
    std::uint64_t size = 0;   ///< size in bytes
  };

  /// Returns the byte range of document `index` in a .bin file of `total` bytes. `index` must be
  /// less than documents(), and `total` must be the same in each call. The range covers all
  /// sequences of the document, which must be contiguous. Documents with many sequences are checked
  /// only once. Throws `file_corrupt` if the sequences are not contiguous or extend beyond the
  /// file.
  [[nodiscard]] place document(std::uint64_t index, std::uint64_t total) const {
    const std::uint64_t first = number<8>(start_at(index));
    const std::uint64_t last = number<8>(start_at(index + 1));
    if (first > last || last > sequences_) {
      corrupt(start_at(index), "the first sequence of a document, in order",
              std::to_string(first) + " before " + std::to_string(last));
    }
    const bool is_long = last - first >= many;
    if (is_long) {
      const std::lock_guard lock{long_->mutex};
      const auto known = long_->places.find(index);
      if (known != long_->places.end()) return known->second;
    }
    place found;
    for (std::uint64_t i = first; i < last; ++i) {
      const std::uint64_t tokens = number<4>(arrays + 4 * i);
      const std::uint64_t begin = number<8>(begin_at(i));
      constexpr std::uint64_t negative = std::uint64_t{1} << 31U;
      if (tokens >= negative) corrupt(arrays + 4 * i, "0 tokens or more", "a negative number");
      const std::uint64_t size = tokens * token_bytes_;
      if (size > total || begin > total - size) {
        corrupt(begin_at(i),
                "a sequence inside the .bin file of " + std::to_string(total) + " bytes",
                std::to_string(size) + " bytes starting at byte " + std::to_string(begin));
      }
      if (i == first) found.begin = begin;
      if (begin != found.begin + found.size) {
        corrupt(begin_at(i), "contiguous sequences of a document", "a gap");
      }
      found.size += size;
    }
    if (is_long) {
      const std::lock_guard lock{long_->mutex};
      long_->places.emplace(index, found);
    }
    return found;
  }

  /// Returns the unchecked start of document `index` in the .bin file. Returns a value with all
  /// bits set if the document has no sequence.
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t index) const noexcept {
    const std::uint64_t first = first_of(index);
    return first < sequences_ ? number<8>(begin_at(first)) : nowhere;
  }

  /// Prefetches the index entries of the documents `document_of(one)` for all `places` into the CPU
  /// cache, so that their cache misses overlap.
  template <class Place, class DocumentOf>
  void prefetch(std::span<Place> places, const DocumentOf& document_of) const noexcept {
    for (Place& one : places) {
      const std::uint64_t index = document_of(one);
      if (index < documents_) __builtin_prefetch(bytes_.data() + start_at(index));
    }
    for (Place& one : places) {
      const std::uint64_t first = first_of(document_of(one));
      if (first >= sequences_) continue;
      __builtin_prefetch(bytes_.data() + arrays + 4 * first);
      __builtin_prefetch(bytes_.data() + begin_at(first));
    }
    // Without this, GCC would treat the function as having no effect and remove its calls.
    asm volatile("");
  }

 private:
  static constexpr std::uint64_t arrays = 34;
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};
  // Number of sequences from which a map lookup is faster than a check.
  static constexpr std::uint64_t many = 256;

  // Byte ranges of checked documents with `many` or more sequences. An index can contain only few
  // such documents.
  struct long_documents_found {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, place> places;
  };

  [[nodiscard]] std::uint64_t start_at(std::uint64_t index) const noexcept {
    return arrays + 12 * sequences_ + 8 * index;
  }
  [[nodiscard]] std::uint64_t begin_at(std::uint64_t sequence) const noexcept {
    return arrays + 4 * sequences_ + 8 * sequence;
  }
  // Returns the index of a document's first sequence.
  [[nodiscard]] std::uint64_t first_of(std::uint64_t index) const noexcept {
    return index < documents_ ? number<8>(start_at(index)) : nowhere;
  }

  // Returns the integer at byte `at`.
  template <std::size_t Width>
  [[nodiscard]] std::uint64_t number(std::uint64_t at) const noexcept {
    return little_endian<Width>(bytes_.data() + at);
  }
  [[noreturn]] void corrupt(std::uint64_t at, const std::string& expected,
                            const std::string& found) const {
    throw file_corrupt(path_, at, expected,
                       found + ": the index is damaged, or belongs to another .bin file");
  }

  std::span<const std::byte> bytes_;
  std::string path_;
  std::size_t token_bytes_ = 0;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
  std::unique_ptr<long_documents_found> long_ = std::make_unique<long_documents_found>();
};

}  // namespace detail

/// Options of `megatron_documents`.
struct megatron_options {
  /// If true, rejects a .bin file whose length differs from the end of the last sequence in the
  /// index. If false, the index may contain only some of the file's sequences, or contain them in
  /// another order.
  bool check_size = true;
};

/// The documents of a Megatron indexed dataset (PREFIX.idx and PREFIX.bin). Satisfies `blob_source`
/// and `token_documents`.
///
///     megatron_documents pile{"pile_text_document"};
///     std::span<const std::byte> first = pile.bytes(0, buffer);  // the tokens as bytes
///
/// Both files are memory-mapped, so opening takes the same time for any size. Index entries are
/// checked when they are used. The files must not change while they are open. Truncating an open
/// file kills the process. Tokens need not be aligned. `token_windows{"PREFIX.bin"}` reads windows
/// over all documents, and `pack_documents` builds rows of whole documents. Movable, not copyable.
/// Reading is thread-safe.
class megatron_documents {
 public:
  /// Opens `prefix`.idx and `prefix`.bin. Throws `file_unreadable`, `file_truncated` if a file is
  /// too short, `file_format_error` if the index is not version 1, has floating-point tokens, or
  /// has the wrong length, `file_corrupt` if index entries contradict each other, and
  /// `length_mismatch` if the .bin file is longer than the index specifies.
  explicit megatron_documents(std::string prefix, const megatron_options& options = {})
      : prefix_(std::move(prefix)),
        index_file_(prefix_ + ".idx"),
        tokens_(prefix_ + ".bin"),
        index_(index_file_.bytes(), index_file_.path()) {
    if (options.check_size) require_size();
  }

  megatron_documents(megatron_documents&&) = default;
  megatron_documents& operator=(megatron_documents&&) = delete;

  /// Returns the number of documents.
  [[nodiscard]] std::uint64_t size() const noexcept { return index_.documents(); }
  /// Returns the size of a token in bytes: 1, 2, 4 or 8.
  [[nodiscard]] std::size_t token_bytes() const noexcept { return index_.token_bytes(); }

  /// Returns the number of tokens in document `index`, read from the index file only. Throws the
  /// same errors as `bytes`.
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const {
    return place_of(index).size / index_.token_bytes();
  }

  /// Returns the tokens of document `index` in the mapped file. Does not use the buffer. Throws
  /// `index_error`, and `file_corrupt` if the document extends beyond the .bin file or is not
  /// contiguous.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer&) const {
    const auto place = place_of(index);
    return tokens_.bytes().subspan(static_cast<std::size_t>(place.begin),
                                   static_cast<std::size_t>(place.size));
  }

  /// Sets `lengths[i]` to `length(indices[i])`. Faster than single calls, because cache misses in
  /// the index overlap. Throws the same errors as `bytes`.
  void lengths(std::span<const std::uint64_t> indices, std::span<std::uint64_t> lengths) const {
    constexpr std::size_t max = 64;
    for (std::size_t i = 0; i < indices.size(); i += max) {
      const auto some = indices.subspan(i, (std::min)(max, indices.size() - i));
      index_.prefetch(some, std::identity{});
      for (std::size_t k = 0; k < some.size(); ++k) lengths[i + k] = length(some[k]);
    }
  }

  /// Prefetches document parts that will be read next into the CPU cache. Ignores parts that are
  /// out of range.
  void prefetch(std::span<const document_part> parts) const noexcept {
    const auto document_of = [](const document_part& part) { return part.document; };
    index_.prefetch(parts, document_of);
    const auto all = tokens_.bytes();
    for (const document_part& part : parts) {
      const std::uint64_t begin = index_.begin_of(part.document) + part.begin * token_bytes();
      if (begin >= all.size()) continue;
      const std::uint64_t bytes = (std::min)(part.tokens * token_bytes(), all.size() - begin);
      for (std::uint64_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(all.data() + begin + at);
      }
    }
    // Without this, GCC would treat the function as having no effect and remove its calls.
    asm volatile("");
  }

  /// Returns 0, because documents have no labels. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    require(index);
    return 0;
  }
  /// Returns the prefix and the document index. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    require(index);
    return prefix_ + ":" + std::to_string(index);
  }

 private:
  void require_size() const {
    const std::uint64_t found = tokens_.bytes().size();
    if (found == index_.end()) return;
    detail::throw_foreign_format(tokens_.bytes(), tokens_.path(), "tokens", 0, "");
    const std::string expected = "the end of the file at byte " + std::to_string(index_.end()) +
                                 ", according to " + index_file_.path();
    if (found < index_.end()) {
      throw file_truncated(tokens_.path(), found, expected,
                           "an earlier end of the file: download or copy both files again");
    }
    throw length_mismatch(
        tokens_.path(), index_.end(), expected,
        std::to_string(found) +
            " bytes: download or copy both files again, or set .check_size = false");
  }
  void require(std::uint64_t index) const {
    if (index >= size()) throw index_error("megatron_documents " + prefix_, index, size());
  }
  [[nodiscard]] detail::megatron_index::place place_of(std::uint64_t index) const {
    require(index);
    return index_.document(index, tokens_.bytes().size());
  }

  std::string prefix_;
  mapped_file index_file_;
  mapped_file tokens_;
  detail::megatron_index index_;
};

static_assert(token_documents<megatron_documents>);
static_assert(detail::reports_document_lengths<megatron_documents>);
static_assert(detail::prefetches_documents<megatron_documents>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
