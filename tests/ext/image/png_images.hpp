// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <zlib.h>

#include <penstock/order/random.hpp>

namespace test {

/// The encoding parameters of a PNG image.
struct png_kind {
  unsigned color = 2;  // 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA
  unsigned depth = 8;
  bool interlaced = false;
  bool flat = false;  // all values are 0
  [[nodiscard]] std::size_t channels() const {
    constexpr std::array<std::size_t, 7> of{1, 0, 3, 1, 2, 0, 4};
    return of[color];
  }
};

/// An encoded image, its values row by row, and the expected output of a decoder.
struct png_image {
  std::vector<std::byte> bytes;
  std::vector<std::uint8_t> rgb;
};

inline void put_number(std::vector<std::byte>& to, std::size_t value) {
  for (const unsigned shift : {24u, 16u, 8u, 0u})
    to.push_back(static_cast<std::byte>(value >> shift));
}

/// Appends a chunk with its length and checksum.
inline void put_chunk(std::vector<std::byte>& to, std::string_view name,
                      const std::vector<std::byte>& content) {
  put_number(to, content.size());
  const std::size_t begin = to.size();
  for (const char letter : name) to.push_back(static_cast<std::byte>(letter));
  to.insert(to.end(), content.begin(), content.end());
  put_number(to, ::crc32(0, reinterpret_cast<const Bytef*>(to.data() + begin),
                         static_cast<uInt>(to.size() - begin)));
}

inline std::vector<std::byte> deflated(const std::vector<std::byte>& bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::vector<std::byte> out(size);
  ::compress2(reinterpret_cast<Bytef*>(out.data()), &size,
              reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9);
  out.resize(size);
  return out;
}

/// Returns an image of this size and kind with random values. Inserts the chunks `extra` in front
/// of the pixels.
inline png_image some_png(std::size_t width, std::size_t height, const png_kind& kind = {},
                          std::uint64_t seed = 1, const std::vector<std::byte>& extra = {}) {
  penstock::sample_generator random{{.seed = seed}, width * 65536 + height};
  const std::size_t channels = kind.channels();
  std::vector<std::uint32_t> values(width * height * channels);
  for (std::uint32_t& value : values) value = kind.flat ? 0 : random() >> (32 - kind.depth);
  std::vector<std::byte> palette(3 * (std::size_t{1} << (kind.depth & 15)));
  for (std::byte& value : palette) value = static_cast<std::byte>(random() & 255);

  png_image image;
  for (std::size_t i = 0; i < width * height; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint32_t value = values[i * channels + (channels >= 3 ? c : 0)];
      const std::uint32_t full = (1u << kind.depth) - 1;
      const auto byte = kind.depth == 16 ? value >> 8 : value * 255 / full;
      image.rgb.push_back(kind.color == 3 ? static_cast<std::uint8_t>(palette[3 * value + c])
                                          : static_cast<std::uint8_t>(byte));
    }
  }

  // A row consists of its filter type (none) and the values, the first value in the highest bits.
  std::vector<std::byte> rows;
  const auto put_row = [&](std::size_t y, std::size_t left, std::size_t step) {
    if (left >= width) return;
    rows.push_back(std::byte{0});
    std::uint32_t bits = 0;
    unsigned count = 0;
    for (std::size_t x = left; x < width; x += step) {
      for (std::size_t c = 0; c < channels; ++c) {
        bits = bits << kind.depth | values[(y * width + x) * channels + c];
        for (count += kind.depth; count >= 8; count -= 8) {
          rows.push_back(static_cast<std::byte>(bits >> (count - 8)));
        }
      }
    }
    if (count > 0) rows.push_back(static_cast<std::byte>(bits << (8 - count)));
  };
  struct pass {
    std::size_t left, top, across, down;
  };
  if (kind.interlaced) {
    for (const pass& one : {pass{0, 0, 8, 8},
                            {4, 0, 8, 8},
                            {0, 4, 4, 8},
                            {2, 0, 4, 4},
                            {0, 2, 2, 4},
                            {1, 0, 2, 2},
                            {0, 1, 1, 2}}) {
      for (std::size_t y = one.top; y < height; y += one.down) put_row(y, one.left, one.across);
    }
  } else {
    for (std::size_t y = 0; y < height; ++y) put_row(y, 0, 1);
  }

  std::vector<std::byte>& bytes = image.bytes;
  for (const unsigned value : {0x89u, 0x50u, 0x4eu, 0x47u, 0x0du, 0x0au, 0x1au, 0x0au}) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  std::vector<std::byte> header;
  put_number(header, width);
  put_number(header, height);
  for (const unsigned value : {kind.depth, kind.color, 0u, 0u, kind.interlaced ? 1u : 0u}) {
    header.push_back(static_cast<std::byte>(value));
  }
  put_chunk(bytes, "IHDR", header);
  bytes.insert(bytes.end(), extra.begin(), extra.end());
  if (kind.color == 3) put_chunk(bytes, "PLTE", palette);
  put_chunk(bytes, "IDAT", deflated(rows));
  put_chunk(bytes, "IEND", {});
  return image;
}

}  // namespace test
