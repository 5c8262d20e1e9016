// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/files/support/mapped_file.hpp>
#include <penstock_ext/text/detail/megatron_index.hpp>
#include <penstock_ext/text/token_documents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The documents of an indexed data set of Megatron's, PREFIX.idx and PREFIX.bin: a `blob_source`
/// of their tokens, as they lie in the file, and `token_documents`.
///
///     megatron_documents pile{"pile_text_document"};
///     std::span<const std::byte> first = pile.bytes(0, buffer);  // pile.token_bytes() a token
///
/// Both files are mapped and not read, so opening takes the same time whatever their size, and the
/// index is checked where it is looked at. They must stay as they are meanwhile: one that is made
/// shorter ends the process. Tokens need not be aligned. For windows over all documents take
/// `token_windows{"PREFIX.bin"}`, for rows of whole documents `pack_documents`. Movable, not
/// copyable. Reading is thread-safe.
class megatron_documents {
 public:
  /// Opens `prefix`.idx and `prefix`.bin. Throws `file_unreadable`, `file_truncated`, and
  /// `file_format_error` for what is no index of version 1, or is not as long as it says.
  explicit megatron_documents(std::string prefix)
      : prefix_(std::move(prefix)),
        index_file_(prefix_ + ".idx"),
        tokens_(prefix_ + ".bin"),
        index_(index_file_.bytes(), index_file_.path()) {}

  megatron_documents(megatron_documents&&) = default;
  megatron_documents& operator=(megatron_documents&&) = delete;

  /// How many documents there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return index_.documents(); }
  /// The bytes of a token: 1, 2, 4 or 8.
  [[nodiscard]] std::size_t token_bytes() const noexcept { return index_.token_bytes(); }

  /// How many tokens document `index` has, by the index file alone. Throws as `bytes`.
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const {
    return place_of(index).size / index_.token_bytes();
  }

  /// The tokens of document `index` where they lie; the buffer is not used. Throws `index_error`,
  /// and `file_corrupt` where the index has the document outside the .bin file or in pieces.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer&) const {
    const auto place = place_of(index);
    return tokens_.bytes().subspan(static_cast<std::size_t>(place.begin),
                                   static_cast<std::size_t>(place.size));
  }

  /// Sets `lengths[i]` to `length(indices[i])`: faster than one by one, as the index file is looked
  /// at in many places at once. Throws as `bytes`.
  void lengths(std::span<const std::uint64_t> indices, std::span<std::uint64_t> lengths) const {
    constexpr std::size_t most = 64;
    for (std::size_t i = 0; i < indices.size(); i += most) {
      const auto some = indices.subspan(i, (std::min)(most, indices.size() - i));
      index_.prefetch(some, std::identity{});
      for (std::size_t k = 0; k < some.size(); ++k) lengths[i + k] = length(some[k]);
    }
  }

  /// Brings parts of documents nearer, as few as are read next; does nothing for what is out of
  /// range.
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
    // GCC takes a function that only prefetches for one without effect and removes the call to it.
    asm volatile("");
  }

  /// 0: documents have no labels. Throws `index_error`.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    require(index);
    return 0;
  }
  /// The prefix and the document's number. Throws `index_error`.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    require(index);
    return prefix_ + ":" + std::to_string(index);
  }

 private:
  void require(std::uint64_t index) const {
    if (index >= size()) throw index_error("megatron_documents " + prefix_, index, size());
  }
  [[nodiscard]] detail::megatron_index::place place_of(std::uint64_t index) const {
    require(index);
    return index_.document(index, tokens_.bytes().size());
  }

  std::string prefix_;
  detail::mapped_file index_file_;
  detail::mapped_file tokens_;
  detail::megatron_index index_;
};

static_assert(token_documents<megatron_documents>);
static_assert(detail::tells_document_lengths<megatron_documents>);
static_assert(detail::prefetches_documents<megatron_documents>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
