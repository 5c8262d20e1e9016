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

/// A range of tokens in a document.
struct document_part {
  std::uint64_t document = 0;  ///< document index
  std::uint64_t begin = 0;     ///< first token
  std::uint64_t tokens = 0;    ///< number of tokens
};

/// A `blob_source` of tokenized documents with fixed-size tokens, whose lengths are known without
/// reading the documents. Has these members in addition to those of a `blob_source`:
///
///     struct source {
///       std::size_t token_bytes() const;                  // size of each token in bytes
///       std::uint64_t length(std::uint64_t index) const;  // number of tokens; may be 0
///     };
///
/// Optional members that make packing faster:
///
///     // lengths[i] = length(indices[i]), for many documents at once
///     void lengths(std::span<const std::uint64_t> indices, std::span<std::uint64_t> lengths) const;
///     // a hint for the next reads: first one token of each document, later a whole part
///     void prefetch(std::span<const document_part> parts) const noexcept;
///
/// `bytes(index, buffer)` returns `length(index) * token_bytes()` bytes in native byte order, at
/// any alignment. Lengths and token size must not change while the source is in use. Several
/// threads may call all members concurrently.
template <class S>
concept token_documents = blob_source<S> && requires(const S& source, std::uint64_t index) {
  { source.token_bytes() } -> std::convertible_to<std::size_t>;
  { source.length(index) } -> std::convertible_to<std::uint64_t>;
};

/// Thrown if a document cannot be used. The message contains the document, the expectation and the
/// finding.
class [[gnu::visibility("default")]] document_error : public error {
 public:
  /// `key` identifies the document in the message.
  document_error(const std::string& key, std::uint64_t document, const std::string& expected,
                 const std::string& found)
      : error("document " + std::to_string(document) + " (" + key + "): expected " + expected +
              ", found " + found),
        document_(document) {}

  /// Returns the document index in its source.
  [[nodiscard]] std::uint64_t document() const noexcept { return document_; }

 private:
  std::uint64_t document_;
};

/// Thrown if document lengths have changed since the documents were packed.
class [[gnu::visibility("default")]] documents_changed : public error {
 public:
  using error::error;
};

namespace detail {

/// A source that returns the lengths of several documents in one call.
template <class S>
concept reports_document_lengths =
    requires(const S& source, std::span<const std::uint64_t> indices,
             std::span<std::uint64_t> lengths) { source.lengths(indices, lengths); };

/// A source that accepts prefetch hints for document parts.
template <class S>
concept prefetches_documents = requires(const S& source, std::span<const document_part> parts) {
  { source.prefetch(parts) } noexcept;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
