// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A range of tokens of a document.
struct document_part {
  std::uint64_t document = 0;  ///< index of the document
  std::uint64_t begin = 0;     ///< the first token
  std::uint64_t tokens = 0;    ///< number of tokens
};

/// A `blob_source` of tokenized documents with tokens of a fixed size, whose lengths are known
/// without reading them. In addition to the members of a `blob_source`:
///
///     struct source {
///       std::size_t token_bytes() const;                  // bytes of a token, of all documents
///       std::uint64_t length(std::uint64_t index) const;  // tokens of a document; 0 is allowed
///     };
///
/// and optionally, to make packing faster,
///
///     // lengths[i] = length(indices[i]), for many documents at once
///     void lengths(std::span<const std::uint64_t> indices, std::span<std::uint64_t> lengths) const;
///     // a hint for the next reads: first a token of each of several documents, later all of one
///     void prefetch(std::span<const document_part> parts) const noexcept;
///
/// `bytes(index, buffer)` returns `length(index) * token_bytes()` bytes, in this machine's byte
/// order, with any alignment. Both are constant while the source is in use. Several threads may
/// call the members concurrently.
template <class S>
concept token_documents = blob_source<S> && requires(const S& source, std::uint64_t index) {
  { source.token_bytes() } -> std::convertible_to<std::size_t>;
  { source.length(index) } -> std::convertible_to<std::uint64_t>;
};

/// Thrown if a document cannot be used. The message contains the document, what was expected and
/// what was found.
class [[gnu::visibility("default")]] document_error : public error {
 public:
  /// `key` identifies the document in the message.
  document_error(const std::string& key, std::uint64_t document, const std::string& expected,
                 const std::string& found)
      : error("document " + std::to_string(document) + " (" + key + "): expected " + expected +
              ", found " + found),
        document_(document) {}

  /// Returns the document's index in its source.
  [[nodiscard]] std::uint64_t document() const noexcept { return document_; }

 private:
  std::uint64_t document_;
};

/// The lengths of a source's documents have changed since they were packed.
class [[gnu::visibility("default")]] documents_changed : public error {
 public:
  using error::error;
};

namespace detail {

/// Documents that return many lengths at once.
template <class S>
concept tells_document_lengths =
    requires(const S& source, std::span<const std::uint64_t> indices,
             std::span<std::uint64_t> lengths) { source.lengths(indices, lengths); };

/// Documents that accept prefetch hints.
template <class S>
concept prefetches_documents = requires(const S& source, std::span<const document_part> parts) {
  { source.prefetch(parts) } noexcept;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
