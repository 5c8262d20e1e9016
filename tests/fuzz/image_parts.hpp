// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock_ext/image/image_decoder.hpp>

#include "fuzz/require.hpp"

namespace fuzz {

/// A region of a decoded image. `is_there` is false if decoding failed.
struct part {
  bool is_there = false;
  penstock::image_box box;
  std::vector<std::uint8_t> values;
};

/// Returns the region `box` of the image, or an empty part if `decode(box, out)` throws a file
/// error.
template <class Decode>
part decoded_part(std::span<const std::byte> bytes, const penstock::image_box& box, Decode decode) {
  part image{false, box, std::vector<std::uint8_t>(box.size.width * box.size.height * 3)};
  try {
    decode(box, penstock::pixels{image.values.data(), box.size, 3, box.size.width * 3});
    image.is_there = true;
  } catch (const penstock::file_error& problem) {
    require(problem.offset() <= bytes.size(), "an error points into the bytes");
  }
  return image;
}

/// Requires that a region decodes to the values of the whole image, if the whole image could be
/// decoded.
inline void require_part_of(const part& whole, const part& some) {
  if (!whole.is_there) return;
  require(some.is_there, "a part of a sound image is sound");
  const std::size_t pitch = some.box.size.width * 3;
  for (std::size_t y = 0; y < some.box.size.height; ++y) {
    const auto* row = some.values.data() + y * pitch;
    const auto* of =
        whole.values.data() + ((some.box.top + y) * whole.box.size.width + some.box.left) * 3;
    require(std::equal(row, row + pitch, of), "a part has the values of the whole");
  }
}

/// Returns a box inside `size`, selected by four bytes of the input.
inline penstock::image_box box_by(const std::uint8_t* four, const penstock::image_size& size) {
  const std::size_t left = four[0] * size.width / 256;
  const std::size_t top = four[1] * size.height / 256;
  return {
      left,
      top,
      {1 + four[2] * (size.width - left - 1) / 255, 1 + four[3] * (size.height - top - 1) / 255}};
}

}  // namespace fuzz
