// SPDX-License-Identifier: BSL-1.0
// Decodes arbitrary bytes as a PNG image, both unchanged and with corrected chunk checksums. The
// bytes must be decoded, or rejected with a file error that points into them. A region of a valid
// image must have the values of the whole image, also with 16 bits.
#include <penstock_ext/image/png/png.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <zlib.h>

#include "fuzz/image_parts.hpp"
#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

// Corrects the chunk checksums, which hardly any mutation leaves valid.
void put_sums_right(std::vector<std::byte>& bytes) {
  std::size_t at = 8;
  while (bytes.size() - at >= 12) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length = length << 8 | std::to_integer<std::size_t>(bytes[at + i]);
    }
    if (length > bytes.size() - at - 12) return;
    const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + at + 4),
                             static_cast<uInt>(length + 4));
    for (std::size_t i = 0; i < 4; ++i) {
      bytes[at + 8 + length + i] = static_cast<std::byte>(sum >> (24 - 8 * i));
    }
    at += length + 12;
  }
}

void decode_parts(ps::png_decoder& decoder, std::span<const std::byte> bytes,
                  const std::uint8_t* four) {
  ps::image_size size;
  std::size_t channels = 0;
  try {
    const ps::image_info info = decoder.info(bytes, "fuzzed");
    size = info.size;
    channels = info.channels;
  } catch (const ps::file_error& problem) {
    fuzz::require(problem.offset() <= bytes.size(), "an error points into the bytes");
    return;
  }
  const auto decode = [&](const ps::image_box& box, const ps::pixels& out) {
    decoder.decode(bytes, "fuzzed", box, out);
  };
  const auto some = fuzz::decoded_part(bytes, fuzz::box_by(four, size), decode);
  fuzz::require_part_of(fuzz::decoded_part(bytes, {0, 0, size}, decode), some);
  if (!decoder.options().widen) return;
  // Mixes all values of a pixel into three bytes.
  const auto decode16 = [&](const ps::image_box& box, const ps::pixels& out) {
    const std::size_t count = box.size.width * box.size.height;
    std::vector<std::uint16_t> values(count * channels);
    decoder.decode16(bytes, "fuzzed", box,
                     {values.data(), box.size, channels, box.size.width * channels});
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint8_t& byte = out.data[3 * (i / channels) + i % channels % 3];
      byte = static_cast<std::uint8_t>(byte * 3 + (values[i] >> 8) * 5 + values[i]);
    }
  };
  const auto some16 = fuzz::decoded_part(bytes, fuzz::box_by(four, size), decode16);
  fuzz::require_part_of(fuzz::decoded_part(bytes, {0, 0, size}, decode16), some16);
}

}  // namespace

// The last four bytes select the box.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ps::png_decoder decoder{{.max_pixels = 1 << 16}};
  static ps::png_decoder clipping{{.clip_grey = true, .widen = true, .max_pixels = 1 << 16}};
  std::array<std::uint8_t, 4> four{};
  if (size >= four.size()) std::memcpy(four.data(), data + size - four.size(), four.size());
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin, begin + size);
  decode_parts(decoder, bytes, four.data());
  if (size >= 8) put_sums_right(bytes);
  decode_parts(decoder, bytes, four.data());
  decode_parts(clipping, bytes, four.data());
  return 0;
}
