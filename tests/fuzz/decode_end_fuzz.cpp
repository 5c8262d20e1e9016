// SPDX-License-Identifier: BSL-1.0
// Tests the detection of truncated images with arbitrary bytes. The detection must not read
// beyond the bytes. A complete image must remain complete with bytes appended, and a truncated
// image must be truncated at every shorter length.
#include <penstock_ext/image/image_decoder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  const bool early = ps::detail::image_ends_early(bytes);
  const auto format = ps::detail::image_format_of(bytes);
  fuzz::require(!early || !format.empty(), "what is of no known format does not end early");

  std::vector<std::byte> cut(begin, begin + size / 2);
  if (early && ps::detail::image_format_of(cut) == format) {
    fuzz::require(ps::detail::image_ends_early(cut), "a part of what ends early does so too");
  }
  bytes.insert(bytes.end(), 9, std::byte{0x5a});
  if (!early && ps::detail::image_format_of(bytes) == format) {
    fuzz::require(!ps::detail::image_ends_early(bytes), "more bytes do no harm");
  }
  return 0;
}
