// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/image_decoder.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using namespace std::string_view_literals;

// Returns true if the image is complete, and if every truncation that still contains the format
// is reported as truncated.
bool is_whole_image(std::string_view text, std::size_t known) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  for (std::size_t size = known; size < text.size(); ++size) {
    // The buffer has exactly the size of the data, so that a sanitizer detects reads beyond the
    // end.
    const std::vector<std::byte> cut(begin, begin + size);
    if (!ps::detail::image_ends_early(cut)) return false;
  }
  return !ps::detail::image_ends_early({begin, text.size()});
}

bool ends_early(std::string_view text) {
  return ps::detail::image_ends_early(
      {reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

}  // namespace

TEST_CASE("a truncated image is detected from its markers and lengths", "[image][fault:files-14]") {
  // An end marker inside a segment, as in an EXIF thumbnail, does not end the image.
  CHECK(
      is_whole_image("\xff\xd8\xff\xe1\0\x06\xff\xd9\xff\xd9\xff\xda\0\x02\x12\xff\0\xff\xd0\x34"
                     "\xff\xd9"sv,
                     3));
  CHECK(is_whole_image("\xff\xd8\xff\xff\xff\xe0\0\x02\xff\xd9"sv, 3));
  CHECK(is_whole_image("\x89PNG\r\n\x1a\n\0\0\0\3abcdxyzsum1\0\0\0\0IENDsum2"sv, 8));
  CHECK(is_whole_image("RIFF\x08\0\0\0WEBPdata"sv, 12));
  // Two rows of five bytes, each padded to eight. The total size in the header is wrong.
  const auto header = "BM\1\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\5\0\0\0\2\0\0\0\1\0\x08\0"sv;
  const std::string bmp = std::string{header} + std::string(24, '\0') + "12345678abcde";
  CHECK(is_whole_image(bmp, 10));
  CHECK_FALSE(ends_early(bmp + "filled"));
}

TEST_CASE("bytes after an image's end do not matter", "[image]") {
  CHECK_FALSE(ends_early("\xff\xd8\xff\xda\0\x02\x12\xff\xd9 and more"sv));
  CHECK_FALSE(ends_early("\x89PNG\r\n\x1a\n\0\0\0\0IENDsum1 and more"sv));
  CHECK_FALSE(ends_early("RIFF\4\0\0\0WEBP and more"sv));
}

TEST_CASE("a damaged image or a format without lengths is not reported as truncated", "[image]") {
  CHECK_FALSE(ends_early("\xff\xd8\xff\xe0\0\x02\x12\x34\x56\x78"sv));
  CHECK_FALSE(ends_early("P6\n100 100\n255\nab"sv));
  const auto compressed = "BM\1\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\5\0\0\0\2\0\0\0\1\0\x08\0\1"sv;
  CHECK_FALSE(ends_early(std::string{compressed} + std::string(23, '\0')));
  CHECK_FALSE(ends_early("II*\0\x08\0\0\0"sv));
  CHECK_FALSE(ends_early(""sv));
}
