// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock_ext/text/token_documents.hpp>

namespace test {

namespace ps = penstock;

/// A document source in which all tokens differ: consecutive numbers across all documents.
class numbered_documents {
 public:
  explicit numbered_documents(std::vector<std::uint64_t> lengths) : lengths_(std::move(lengths)) {
    std::uint64_t end = 0;
    for (const std::uint64_t length : lengths_) {
      begins_.push_back(end);
      end += length;
    }
    for (std::uint64_t i = 0; i < end; ++i) tokens_.push_back(static_cast<std::uint32_t>(i));
    begins_.push_back(end);
  }

  std::uint64_t size() const { return lengths_.size(); }
  std::size_t token_bytes() const { return sizeof(std::uint32_t); }
  std::uint64_t length(std::uint64_t index) const { return lengths_.at(index); }
  std::span<const std::byte> bytes(std::uint64_t index, ps::blob_buffer&) const {
    return std::as_bytes(std::span{tokens_}.subspan(begins_.at(index), lengths_.at(index)));
  }
  std::int64_t label(std::uint64_t) const { return 0; }
  std::string key(std::uint64_t index) const { return "number " + std::to_string(index); }

  /// Returns the total number of tokens.
  std::uint64_t tokens() const { return tokens_.size(); }
  /// Returns true if a document ends with `token`.
  bool is_last(std::uint32_t token) const {
    return std::binary_search(begins_.begin(), begins_.end(), std::uint64_t{token} + 1);
  }

  std::vector<std::uint64_t> lengths_;  // may change, as the lengths in a file may
  std::vector<std::uint32_t> tokens_;

 private:
  std::vector<std::uint64_t> begins_;
};

static_assert(ps::token_documents<numbered_documents>);

/// Returns `count` lengths, most of which are short and a few very long.
inline std::vector<std::uint64_t> mixed_lengths(std::size_t count, std::uint64_t step = 7) {
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t draw = (i * 2654435761U + step * 40503U) % 1009;
    lengths.push_back(draw % 50 == 0 ? draw : draw % 23);
  }
  return lengths;
}

}  // namespace test
