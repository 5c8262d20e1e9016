// SPDX-License-Identifier: BSL-1.0
// Decodes arbitrary bytes as a JPEG image. The bytes must be decoded, or rejected with a file
// error that points into them. A region of a valid image must have the values of the whole
// image at each scale. A decoder that has failed must afterwards decode like a new decoder.
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "fuzz/image_parts.hpp"
#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

constexpr std::uint64_t max = 1 << 16;

void decode_parts(ps::jpeg_decoder& decoder, std::span<const std::byte> bytes,
                  const std::uint8_t* four, unsigned denominator, bool compare) {
  ps::image_info info;
  try {
    info = decoder.info(bytes, "fuzzed");
  } catch (const ps::file_error& problem) {
    fuzz::require(problem.offset() <= bytes.size(), "an error points into the bytes");
    return;
  }
  const ps::image_size size = ps::detail::scaled_down(info.size, denominator);
  const auto decode = [&](const ps::image_box& box, const ps::pixels& out) {
    decoder.decode(bytes, "fuzzed", box, out, denominator);
  };
  const auto some = fuzz::decoded_part(bytes, fuzz::box_by(four, size), decode);
  if (!compare) return;
  const auto whole = fuzz::decoded_part(bytes, {0, 0, size}, decode);
  fuzz::require_part_of(whole, some);
  ps::jpeg_decoder fresh{decoder};
  const auto again =
      fuzz::decoded_part(bytes, {0, 0, size}, [&](const ps::image_box& box, const ps::pixels& out) {
        fresh.decode(bytes, "fuzzed", box, out, denominator);
      });
  fuzz::require(again.is_there == whole.is_there && again.values == whole.values,
                "no earlier image matters");
}

}  // namespace

// The last four bytes select the box and the scale.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ps::jpeg_decoder strict{{.orientation = true, .max_pixels = max, .max_scans = 60}};
  static ps::jpeg_decoder lenient{{.strict = false, .max_pixels = max, .max_scans = 60}};
  std::array<std::uint8_t, 4> four{};
  if (size >= four.size()) std::memcpy(four.data(), data + size - four.size(), four.size());
  const std::span bytes{reinterpret_cast<const std::byte*>(data), size};
  const unsigned denominator = 1u << (four[0] % 4);
  decode_parts(strict, bytes, four.data(), denominator, true);
  decode_parts(lenient, bytes, four.data(), denominator, false);
  return 0;
}
