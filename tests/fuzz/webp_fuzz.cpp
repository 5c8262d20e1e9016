// SPDX-License-Identifier: BSL-1.0
// Decodes arbitrary bytes as a WebP image, both unchanged and with a corrected length in the
// header. The bytes must be decoded to the pixels of libwebp's `WebPDecodeRGB`, or rejected with a
// file error that points into them. A region of a valid image must have the values of the whole
// image.
#include <penstock_ext/image/webp/webp.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "fuzz/image_parts.hpp"
#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

void decode_parts(ps::webp_decoder& decoder, std::span<const std::byte> bytes,
                  const std::uint8_t* four) {
  ps::image_size size;
  try {
    size = decoder.info(bytes, "fuzzed").size;
  } catch (const ps::file_error& problem) {
    fuzz::require(problem.offset() <= bytes.size(), "an error points into the bytes");
    return;
  }
  const auto decode = [&](const ps::image_box& box, const ps::pixels& out) {
    decoder.decode(bytes, "fuzzed", box, out);
  };
  const auto some = fuzz::decoded_part(bytes, fuzz::box_by(four, size), decode);
  const auto whole = fuzz::decoded_part(bytes, {0, 0, size}, decode);
  fuzz::require_part_of(whole, some);
  std::vector<std::uint8_t> direct(whole.values.size());
  const bool is_decoded = ::WebPDecodeRGBInto(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                              bytes.size(), direct.data(), direct.size(),
                                              static_cast<int>(3 * size.width)) != nullptr;
  fuzz::require(is_decoded == whole.is_there, "libwebp decodes the same images");
  fuzz::require(!is_decoded || direct == whole.values, "libwebp decodes the same pixels");
}

}  // namespace

// The last four bytes select the box.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ps::webp_decoder decoder{{.max_pixels = 1 << 16}};
  std::array<std::uint8_t, 4> four{};
  if (size >= four.size()) std::memcpy(four.data(), data + size - four.size(), four.size());
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  decode_parts(decoder, bytes, four.data());
  if (size < 12) return 0;
  for (std::size_t i = 0; i < 4; ++i) bytes[4 + i] = static_cast<std::byte>((size - 8) >> (8 * i));
  decode_parts(decoder, bytes, four.data());
  return 0;
}
