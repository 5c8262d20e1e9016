// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/blob_source.hpp>

namespace text {

/// A dataset with the blobs of a source as a single ragged field. The source must outlive this
/// object. The constructor reads all blobs once to get their lengths. With an index of lengths,
/// this would be unnecessary.
template <penstock::blob_source Source>
class ragged_blobs {
 public:
  using record_type = penstock::record<penstock::field<"text", std::uint8_t, penstock::ragged>>;

  explicit ragged_blobs(const Source& source) : source_(&source) {
    penstock::blob_buffer buffer;
    for (std::uint64_t i = 0; i < source.size(); ++i) {
      const auto bytes = source.bytes(i, buffer).size();
      if (bytes > (std::numeric_limits<std::uint32_t>::max)()) throw std::length_error("a blob");
      lengths_.push_back(static_cast<std::uint32_t>(bytes));
    }
  }

  std::uint64_t size() const { return lengths_.size(); }
  std::uint64_t length(std::uint64_t index) const { return lengths_[index]; }
  /// Returns the lengths of all samples, for `bucketed`.
  const std::vector<std::uint32_t>& lengths() const { return lengths_; }
  penstock::record_extents<record_type> extents() const {
    const auto longest = std::max_element(lengths_.begin(), lengths_.end());
    return {{.longest = longest == lengths_.end() ? 1 : (std::max)(*longest, std::uint32_t{1})}};
  }
  void read(std::uint64_t index, penstock::sample<record_type> out) const {
    thread_local penstock::blob_buffer buffer;
    const auto bytes = source_->bytes(index, buffer);
    const auto room = penstock::get<"text">(out);
    if (bytes.size() != room.size()) throw std::runtime_error("a blob has another length by now");
    std::copy_n(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size(), room.data());
  }

 private:
  const Source* source_;
  std::vector<std::uint32_t> lengths_;
};

}  // namespace text
