// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace test {

using encoded = std::vector<std::byte>;

inline encoded bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

inline encoded first_of(const encoded& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Decodes the region `box` of an image into rows with a gap of `apart` bytes. Checks that the
/// gaps remain unchanged.
template <class Decoder>
std::vector<std::uint8_t> part_of(Decoder& decoder, std::span<const std::byte> bytes,
                                  const penstock::image_box& box, std::size_t apart = 0) {
  const std::size_t row = box.size.width * 3;
  std::vector<std::uint8_t> values((row + apart) * box.size.height, 0xcd);
  decoder.decode(bytes, "an image", box, {values.data(), box.size, 3, row + apart});
  std::vector<std::uint8_t> packed;
  for (std::size_t y = 0; y < box.size.height; ++y) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(y * (row + apart));
    const auto end = begin + static_cast<std::ptrdiff_t>(row);
    packed.insert(packed.end(), begin, end);
    if (std::any_of(end, end + static_cast<std::ptrdiff_t>(apart),
                    [](std::uint8_t value) { return value != 0xcd; })) {
      return {};
    }
  }
  return packed;
}

/// Decodes the whole image.
template <class Decoder>
std::vector<std::uint8_t> all_of(Decoder& decoder, std::span<const std::byte> bytes) {
  return part_of(decoder, bytes, {0, 0, decoder.info(bytes, "an image").size});
}

/// Returns the exception of exactly type E that decoding the whole image throws.
template <class E, class Decoder>
E decode_error(Decoder decoder, const encoded& bytes) {
  const E problem = error_of<E>([&] { static_cast<void>(all_of(decoder, bytes)); });
  CHECK(problem.path() == "an image");
  CHECK(problem.offset() <= bytes.size());
  return problem;
}

/// Returns the largest difference between the values of two images, or 256 if their sizes differ.
inline int apart(const std::vector<std::uint8_t>& one, const std::vector<std::uint8_t>& other) {
  if (one.size() != other.size()) return 256;
  int max = 0;
  for (std::size_t i = 0; i < one.size(); ++i) max = (std::max)(max, std::abs(one[i] - other[i]));
  return max;
}

}  // namespace test
