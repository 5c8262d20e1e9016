// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <penstock_ext/blob/blob_source.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/folder.hpp"

namespace test {

namespace ps = penstock;

/// Returns the keys of all blobs.
template <ps::blob_source Source>
std::vector<std::string> keys_of(const Source& source) {
  std::vector<std::string> keys;
  for (std::uint64_t i = 0; i < source.size(); ++i) keys.push_back(source.key(i));
  return keys;
}

/// Returns the labels of all blobs.
template <ps::blob_source Source>
std::vector<std::int64_t> labels_of(const Source& source) {
  std::vector<std::int64_t> labels;
  for (std::uint64_t i = 0; i < source.size(); ++i) labels.push_back(source.label(i));
  return labels;
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns the content of a blob.
template <ps::blob_source Source>
std::string content_of(const Source& source, std::uint64_t index) {
  ps::blob_buffer buffer;
  return text_of(source.bytes(index, buffer));
}

}  // namespace test
