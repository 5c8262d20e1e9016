// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A format whose files are passed by mistake to readers of raw bytes. Empty views mean no format.
struct foreign_format {
  std::string_view name;    ///< name with its article, such as "a gzip file"
  std::string_view remedy;  ///< advice for such a file
  /// True if raw values may follow a header, so that a reader that skips the header can read the
  /// file.
  bool may_hold_values = false;
  bool is_compressed = false;  ///< true if the file contains one compressed file
};

/// A format that is recognized by its magic number.
struct format_magic {
  std::string_view bytes;
  std::size_t offset;
  foreign_format format;
};

inline constexpr foreign_format npy_format{"an npy file", "read it with penstock::npy_dataset",
                                           true};
inline constexpr foreign_format llm_c_format{"a file of llm.c or modded-nanogpt",
                                             "read it with penstock::token_windows", true};
inline constexpr foreign_format safetensors_format{"a safetensors file",
                                                   "read it with penstock::safetensors_file", true};
inline constexpr foreign_format arrow_format{
    "an Arrow file or stream", "read it with Arrow and pass its arrays to penstock::arrow_dataset",
    true};
inline constexpr foreign_format parquet_format{"a Parquet file",
                                               "read it with penstock::parquet_dataset"};
inline constexpr foreign_format zip_format{
    "a zip or npz file", "unzip it, or read an npz file with penstock::npz", true};
inline constexpr foreign_format zstd_format{
    "a zstd file",
    "unpack it with unzstd or penstock::unpack_files, or open an IDX file with penstock::zstd",
    false, true};
inline constexpr foreign_format pickle_format{"a Python pickle",
                                              "save the values as raw bytes or with numpy.save"};

inline constexpr format_magic format_magics[] = {
    {"\x93NUMPY", 0, npy_format},
    {"PK\x03\x04", 0, zip_format},
    {"PK\x05\x06", 0, zip_format},
    {"\x28\xb5\x2f\xfd", 0, zstd_format},
    {"\xfd\x37zXZ", 0, {"an xz file", "unpack it with unxz", false, true}},
    {"1AY&SY", 4, {"a bzip2 file", "unpack it with bunzip2", false, true}},
    {"\x04\x22\x4d\x18", 0, {"an lz4 file", "unpack it with unlz4", false, true}},
    {"PAR1", 0, parquet_format},
    {"PARE", 0, parquet_format},
    {"ARROW1", 0, arrow_format},
    {"FEA1", 0, arrow_format},
    {"ustar", 257, {"a tar file", "unpack it, or read it with penstock::tar_shards", true}},
    {"\x89HDF\r\n\x1a\n", 0, {"an HDF5 file", "read it with penstock::hdf5_dataset", true}},
    {"\x89PNG\r\n\x1a\n", 0, {"a PNG image", "decode it, see penstock::image_decoder"}},
    {"MMIDIDX",
     0,
     {"a Megatron index", "open the .bin file next to it, or penstock::megatron_documents", true}},
    {"\x80\x02\x8a\x0al\xfc\x9c\x46", 0, pickle_format},  // legacy format of torch.save
    {"version https://git-lfs", 0, {"a Git LFS pointer", "get the file with git lfs pull"}},
    {"<!DOCTYPE html",
     0,
     {"an HTML page", "check the server's response, and download the file again"}},
};

/// Detects a known format by the first bytes of a file. Returns a format with an empty name if none
/// is detected. Formats without a long magic number are recognized by additional fields, so that
/// fewer than one in 2^26 raw files is misidentified.
[[nodiscard]] inline foreign_format foreign_format_of(std::span<const std::byte> bytes) noexcept {
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  for (const format_magic& one : format_magics) {
    if (text.size() > one.offset && text.substr(one.offset).starts_with(one.bytes)) {
      return one.format;
    }
  }
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(bytes[at]); };
  if (bytes.size() < 12) return {};
  if (text.starts_with("\x1f\x8b\x08") && byte(3) < 0x20) {  // the other flags are reserved
    return {
        "a gzip file",
        "unpack it with gunzip or penstock::unpack_files, or open an IDX file with penstock::gzip",
        false, true};
  }
  if (text.starts_with("\xff\xd8\xff") && byte(3) >= 0xc0 && byte(3) < 0xff) {
    return {"a JPEG image", "decode it, see penstock::image_decoder"};
  }
  const std::uint64_t first = little_endian(bytes.first(4));
  const std::uint64_t second = little_endian(bytes.subspan(4, 4));
  const std::uint64_t rest = bytes.size() - 8;
  if ((first & ~std::uint64_t{0xf}) == 0x184d2a50U && second <= rest) return zstd_format;
  // Token files start with the magic number of GPT-2 or Llama 3, followed by a version.
  if ((first == 20240520 || first == 20240801) && second < 256) return llm_c_format;
  // An Arrow stream starts with a continuation marker, the message length, and the offset of the
  // message's table.
  if (first == 0xffff'ffffU && second % 8 == 0 && second > 0 && second <= rest &&
      little_endian(bytes.subspan(8, 4)) == 16) {
    return arrow_format;
  }
  const std::uint64_t length = little_endian(bytes.first(8));
  if (length > 1 && length <= rest) {
    const std::string_view json = text.substr(8, static_cast<std::size_t>(length));
    const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
    const auto begin = std::ranges::find_if_not(json, is_blank);
    const std::size_t end = json.find_last_not_of(" \n\r\t");
    if (begin != json.end() && *begin == '{' && json[end] == '}') return safetensors_format;
  }
  const bool is_framed = byte(0) == 0x80 && (byte(1) == 4 || byte(1) == 5) && byte(2) == 0x95;
  if (is_framed && little_endian(bytes.subspan(3, 8)) <= bytes.size() - 11) return pickle_format;
  const bool is_pickle = byte(0) == 0x80 && (byte(1) == 2 || byte(1) == 3);
  if (is_pickle && text.substr(2, 1).find_first_of("}](c") == 0 && text.back() == '.') {
    return pickle_format;
  }
  return {};
}

/// Formats the detected format and advice for a message, such as "a gzip file: unpack it with
/// gunzip". Returns "" if no known format is detected.
[[nodiscard]] inline std::string foreign_text(std::span<const std::byte> bytes) {
  const foreign_format found = foreign_format_of(bytes);
  return found.name.empty() ? "" : std::string{found.name} + ": " + std::string{found.remedy};
}

/// Throws `file_format_error` if `bytes`, the content of the file `path`, start like a known
/// format. If the reader skips a `header`, accepts formats in which raw values may follow a header.
/// For npy and llm.c files, the reader must skip the whole header. `advice` is appended to the
/// message, because the file may only resemble the format.
inline void throw_foreign_format(
    std::span<const std::byte> bytes, const std::string& path, const std::string& expected,
    std::uint64_t header,
    const std::string& advice = "; if this detection is wrong, set .check_format = false") {
  const foreign_format found = foreign_format_of(bytes);
  if (found.name.empty()) return;
  std::string text = foreign_text(bytes);
  std::uint64_t values = found.name == llm_c_format.name ? 1024 : 1;  // first offset at which the
                                                                      // values may start
  if (found.name == npy_format.name && bytes.size() >= 12) {
    const std::size_t width = bytes[6] == std::byte{1} ? 2 : 4;
    values = 8 + width + little_endian(bytes.subspan(8, width));
    text += ", or skip its header with .header = " + std::to_string(values);
  }
  if (found.may_hold_values && header >= values) return;
  throw file_format_error(path, 0, expected, text + advice);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
