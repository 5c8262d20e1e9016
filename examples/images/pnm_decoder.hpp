// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <penstock_ext/image/image_decoder.hpp>

namespace images {

/// Decodes binary PGM (P5) and PPM (P6) images with 8 bits per channel. The class shows what a
/// custom decoder must do; see `penstock::image_decoder`. Comments in the header are not supported.
class pnm_decoder {
 public:
  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return bytes.size() > 2 && at(bytes, 0) == 'P' && (at(bytes, 1) == '5' || at(bytes, 1) == '6');
  }

  [[nodiscard]] penstock::image_info info(std::span<const std::byte> bytes,
                                          std::string_view key) const {
    return header_of(bytes, key).info;
  }

  void decode(std::span<const std::byte> bytes, std::string_view key,
              const penstock::image_box& box, const penstock::pixels& out) const {
    const auto [found, begin] = header_of(bytes, key);
    penstock::detail::require_box("pnm_decoder", box, found.size, out);
    for (std::size_t y = 0; y < box.size.height; ++y) {
      const std::size_t row = (box.top + y) * found.size.width + box.left;
      for (std::size_t x = 0; x < box.size.width; ++x) {
        for (std::size_t c = 0; c < 3; ++c) {
          const std::size_t value = (row + x) * found.channels + c % found.channels;
          out.row(y)[3 * x + c] = std::to_integer<std::uint8_t>(bytes[begin + value]);
        }
      }
    }
  }

 private:
  struct header {
    penstock::image_info info;
    std::size_t pixels_begin = 0;
  };

  static char at(std::span<const std::byte> bytes, std::size_t place) noexcept {
    return std::to_integer<char>(bytes[place]);
  }

  // Parses a number in the header, which must be preceded by at least one blank, and moves `place`
  // to its end. Checks the limit before the number is used.
  static std::size_t number(std::span<const std::byte> bytes, std::string_view key,
                            std::size_t& place) {
    const std::size_t blank = place;
    const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
    while (place < bytes.size() && is_blank(at(bytes, place))) ++place;
    const std::size_t begin = place;
    std::size_t value = 0;
    for (; place < bytes.size() && at(bytes, place) >= '0' && at(bytes, place) <= '9'; ++place) {
      value = (std::min)(value * 10 + static_cast<std::size_t>(at(bytes, place) - '0'), limit + 1);
    }
    if (begin == blank || begin == place || value == 0 || value > limit) {
      throw penstock::image_corrupt(std::string{key}, begin, "a number from 1 to 65536",
                                    value > limit ? "a larger one" : "none");
    }
    return value;
  }

  static header header_of(std::span<const std::byte> bytes, std::string_view key) {
    if (bytes.size() < 3) {
      throw penstock::image_truncated(std::string{key}, bytes.size(), "a header", "the end");
    }
    header found;
    found.info.channels = at(bytes, 1) == '6' ? 3 : 1;
    std::size_t place = 2;
    found.info.size.width = number(bytes, key, place);
    found.info.size.height = number(bytes, key, place);
    if (const std::size_t largest = number(bytes, key, place); largest != 255) {
      throw penstock::image_unsupported(std::string{key}, place, "values up to 255",
                                        "up to " + std::to_string(largest));
    }
    found.pixels_begin = place + 1;  // skips one blank
    const std::size_t wanted =
        found.pixels_begin + found.info.size.width * found.info.size.height * found.info.channels;
    if (bytes.size() < wanted) {
      throw penstock::image_truncated(std::string{key}, bytes.size(),
                                      std::to_string(wanted) + " bytes",
                                      std::to_string(bytes.size()));
    }
    return found;
  }

  static constexpr std::size_t limit = 65536;
};

static_assert(penstock::image_decoder<pnm_decoder>);

}  // namespace images
