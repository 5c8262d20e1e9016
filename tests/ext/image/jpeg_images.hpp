// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

// jpeglib.h requires <cstdio>.
#include <jpeglib.h>

#include <penstock/order/random.hpp>

namespace test {

/// The encoding parameters of a JPEG image.
struct jpeg_kind {
  const char* name = "4:2:0";
  int across = 2;  // horizontal luma samples per chroma sample
  int down = 2;    // vertical luma samples per chroma sample
  int components = 3;
  bool progressive = false;
  bool finer_colour =
      false;         // Cb has four horizontal samples per luma sample, and Cr two vertical samples
  bool rgb = false;  // not converted to YCbCr
  bool adobe_ycck = false;  // encodes four components as YCCK instead of CMYK
  bool separate = false;    // a sequential scan per component
  bool arithmetic = false;
  int restart = 0;  // interval in rows of blocks
  bool optimised = false;
  int quality = 90;
};

/// Returns values that resemble a photograph, with gradients, edges and noise.
inline std::vector<std::uint8_t> some_pixels(std::size_t width, std::size_t height, int channels,
                                             std::uint64_t seed) {
  penstock::sample_generator random{{.seed = seed}, width * 65536 + height};
  std::vector<std::uint8_t> values(width * height * static_cast<std::size_t>(channels));
  const unsigned slope_x = 1 + random() % 7;
  const unsigned slope_y = 1 + random() % 7;
  const std::size_t edge = 5 + random() % 23;
  std::size_t at = 0;
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      const unsigned noise = random() & 0x1f1f1f1f;
      for (int channel = 0; channel < channels; ++channel) {
        const std::size_t base = x * slope_x + y * slope_y * static_cast<unsigned>(channel + 1) +
                                 ((x / edge + y / edge) % 2) * 90 + (noise >> (8 * channel) & 31);
        values[at++] = static_cast<std::uint8_t>(base % 256);
      }
    }
  }
  return values;
}

/// Encodes `values` with libjpeg. Terminates the program on an error.
inline std::vector<std::byte> encode_jpeg(const std::vector<std::uint8_t>& values,
                                          std::size_t width, std::size_t height,
                                          const jpeg_kind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = kind.components;
  info.in_color_space =
      kind.components == 1 ? JCS_GRAYSCALE : (kind.components == 3 ? JCS_RGB : JCS_CMYK);
  if (kind.components == 2) info.in_color_space = JCS_UNKNOWN;
  jpeg_set_defaults(&info);
  if (kind.components == 3) jpeg_set_colorspace(&info, kind.rgb ? JCS_RGB : JCS_YCbCr);
  if (kind.components == 4) jpeg_set_colorspace(&info, kind.adobe_ycck ? JCS_YCCK : JCS_CMYK);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (kind.components > 1) {
    info.comp_info[0].h_samp_factor = kind.across;
    info.comp_info[0].v_samp_factor = kind.down;
    if (kind.components == 4) {
      info.comp_info[3].h_samp_factor = kind.across;
      info.comp_info[3].v_samp_factor = kind.down;
    }
  }
  if (kind.finer_colour) {
    info.comp_info[1].h_samp_factor = 4;
    info.comp_info[2].h_samp_factor = 2;
    info.comp_info[2].v_samp_factor = 2;
  }
  info.restart_in_rows = kind.restart;
  info.optimize_coding = kind.optimised ? TRUE : FALSE;
  info.arith_code = kind.arithmetic ? TRUE : FALSE;
  if (kind.progressive) jpeg_simple_progression(&info);
  std::vector<jpeg_scan_info> scans;
  if (kind.separate) {
    for (int component = 0; component < kind.components; ++component) {
      scans.push_back({1, {component}, 0, 63, 0, 0});
    }
    info.scan_info = scans.data();
    info.num_scans = kind.components;
  }
  jpeg_start_compress(&info, TRUE);
  const std::size_t pitch = width * static_cast<std::size_t>(kind.components);
  std::vector<std::uint8_t> row(pitch);
  while (info.next_scanline < info.image_height) {
    row.assign(values.begin() + static_cast<std::ptrdiff_t>(info.next_scanline * pitch),
               values.begin() + static_cast<std::ptrdiff_t>((info.next_scanline + 1) * pitch));
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&info, &rows, 1);
  }
  jpeg_finish_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(memory);
  std::vector<std::byte> bytes(begin, begin + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

/// Encodes generated pixels of this size and kind.
inline std::vector<std::byte> some_jpeg(std::size_t width, std::size_t height,
                                        const jpeg_kind& kind = {}, std::uint64_t seed = 1) {
  return encode_jpeg(some_pixels(width, height, kind.components, seed), width, height, kind);
}

/// Decodes a valid image with libjpeg at the scale 1 / `denominator`. The result is RGB, or CMYK
/// for four components.
inline std::vector<std::uint8_t> decode_plainly(std::span<const std::byte> bytes,
                                                unsigned denominator = 1) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  errors.output_message = [](j_common_ptr) {};
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  info.scale_num = 1;
  info.scale_denom = denominator;
  jpeg_start_decompress(&info);
  const std::size_t pitch =
      std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components);
  std::vector<std::uint8_t> values(pitch * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = values.data() + info.output_scanline * pitch;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return values;
}

/// Returns the bytes with `inserted` placed before byte `at`.
inline std::vector<std::byte> with_bytes(std::vector<std::byte> bytes, std::size_t at,
                                         std::initializer_list<unsigned> inserted) {
  std::vector<std::byte> more;
  for (const unsigned value : inserted) more.push_back(static_cast<std::byte>(value));
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return bytes;
}

/// Returns the image with an APP1 segment that specifies an orientation, in either byte order.
inline std::vector<std::byte> turned(const std::vector<std::byte>& bytes, unsigned number,
                                     bool little) {
  if (little) {
    return with_bytes(
        bytes, 2, {0xff, 0xe1, 0,    34, 'E', 'x', 'i', 'f', 0, 0, 'I',    'I', 42, 0, 8, 0, 0, 0,
                   1,    0,    0x12, 1,  3,   0,   1,   0,   0, 0, number, 0,   0,  0, 0, 0, 0, 0});
  }
  return with_bytes(
      bytes, 2, {0xff, 0xe1, 0, 34,   'E', 'x', 'i', 'f', 0, 0, 'M', 'M',    0, 42, 0, 0, 0, 8,
                 0,    1,    1, 0x12, 0,   3,   0,   0,   0, 1, 0,   number, 0, 0,  0, 0, 0, 0});
}

}  // namespace test
