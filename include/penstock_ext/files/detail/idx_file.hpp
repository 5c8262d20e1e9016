// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock_ext/files/detail/idx_format.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/file_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// One file in IDX, the format of MNIST: 0, 0, element type, rank; a big-endian 32-bit length for
/// each dimension, outermost first; the elements, big-endian, row-major. Read into memory by the
/// constructor, in the machine's byte order.
class idx_file {
 public:
  /// What stands before the elements.
  struct header {
    /// What an element is.
    idx_type type = idx_type::u8;
    /// The length of each dimension, outermost first.
    std::vector<std::uint32_t> lengths;
    std::uint64_t bytes = 0;  ///< of all elements

    /// How many bytes the header takes.
    [[nodiscard]] std::uint64_t size() const noexcept { return 4 + 4 * lengths.size(); }
  };

  /// Reads the file `path`. Throws `file_unreadable`, `file_truncated`, `file_format_error` for a
  /// wrong first bytes or for bytes after the elements, `dimension_mismatch` for rank 0 and for
  /// dimensions whose product has no room in 64 bits. Takes no more memory than twice what the file
  /// holds, whatever its header announces.
  explicit idx_file(std::string path) : idx_file(open_file, std::move(path)) {}

  /// Reads the file by an opener: `idx_file{gzip, "train-images-idx3-ubyte.gz"}` throws besides
  /// what `gzip_source` throws.
  template <file_opener Open>
  idx_file(const Open& open, std::string path)
      : idx_file(open, std::move(path), [](const std::string&, const header&) {}) {}

  /// Reads the file, and calls `check(path, header)` before it reads the elements: `check` throws
  /// if the file is not what it should be.
  template <file_opener Open, std::invocable<const std::string&, const header&> Check>
  idx_file(const Open& open, std::string path, Check check) : path_(std::move(path)) {
    auto source = open(path_);
    read_header(source);
    check(path_, std::as_const(header_));
    read_elements(source);
  }

  /// The file's name.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What an element is.
  [[nodiscard]] idx_type type() const noexcept { return header_.type; }
  /// The lengths of the dimensions, outermost first; at least one.
  [[nodiscard]] std::span<const std::uint32_t> lengths() const noexcept { return header_.lengths; }

  /// The elements. Throws `element_type_mismatch` if they are of another type than T. Valid as long
  /// as the object, also when that is moved.
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    require_type<T>(path_, header_);
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  /// Throws `element_type_mismatch` if `found` does not announce elements of type T.
  template <class T>
  static void require_type(const std::string& path, const header& found) {
    constexpr idx_type expected = idx_type_of<T>();
    if (found.type == expected) return;
    throw element_type_mismatch(path, 2, "elements of type " + describe(expected),
                                describe(found.type));
  }

  /// Where in the file the length of dimension `d` stands.
  [[nodiscard]] static std::uint64_t offset_of_length(std::size_t d) noexcept { return 4 + 4 * d; }

 private:
  template <byte_source Source>
  void read_exactly(Source& source, std::span<std::byte> out, std::uint64_t offset) {
    const std::size_t filled = source.read(out);
    if (filled == out.size()) return;
    throw file_truncated(
        path_, offset + filled,
        "an IDX header of " + std::to_string(offset + out.size()) + " bytes or more",
        "the end of the file");
  }

  template <byte_source Source>
  void read_header(Source& source) {
    std::array<std::byte, 4> begin{};
    read_exactly(source, begin, 0);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto found = std::to_integer<std::uint8_t>(begin[i]);
      if (found == 0) continue;
      const bool packed = i == 0 && found == 0x1f && begin[1] == std::byte{0x8b};
      throw file_format_error(
          path_, i, "0x00, the first byte of an IDX file",
          hex(found) + (packed ? ", a gzip file: open it by penstock::gzip" : ""));
    }
    header_.type = static_cast<idx_type>(begin[2]);
    constexpr idx_type types[] = {idx_type::u8,  idx_type::i8,  idx_type::i16,
                                  idx_type::i32, idx_type::f32, idx_type::f64};
    if (std::find(std::begin(types), std::end(types), header_.type) == std::end(types)) {
      throw file_format_error(path_, 2, "the code of an element type, 0x08, 0x09 or 0x0b to 0x0e",
                              hex(std::to_integer<std::uint8_t>(begin[2])));
    }
    const auto rank = std::to_integer<std::size_t>(begin[3]);
    if (rank == 0) throw dimension_mismatch(path_, 3, "one dimension or more", "none");

    header_.bytes = size_of(header_.type);
    bool too_large = false;
    for (std::size_t d = 0; d < rank; ++d) {
      std::array<std::byte, 4> raw{};
      read_exactly(source, raw, offset_of_length(d));
      from_big_endian<4>(raw);
      const auto length = std::bit_cast<std::uint32_t>(raw);
      header_.lengths.push_back(length);
      too_large = __builtin_mul_overflow(header_.bytes, length, &header_.bytes) || too_large;
    }
    const bool is_empty =
        std::find(header_.lengths.begin(), header_.lengths.end(), 0U) != header_.lengths.end();
    if (is_empty) {
      header_.bytes = 0;
    } else if (too_large) {
      std::string product;
      for (const std::uint32_t length : header_.lengths) {
        product += (product.empty() ? "" : " x ") + std::to_string(length);
      }
      throw dimension_mismatch(path_, offset_of_length(0),
                               "dimensions whose bytes 64 bits can count",
                               product + " elements of type " + describe(header_.type));
    }
  }

  template <byte_source Source>
  void read_elements(Source& source) {
    const std::uint64_t filled = append_bytes(source, bytes_, header_.bytes);
    const std::uint64_t end = header_.size() + header_.bytes;
    if (filled < header_.bytes) {
      throw file_truncated(path_, header_.size() + filled,
                           std::to_string(header_.bytes) + " bytes of elements",
                           "the end of the file after " + std::to_string(filled));
    }
    std::byte next{};
    if (source.read({&next, 1}) != 0) {
      throw file_format_error(path_, end, "the end of the file",
                              "more bytes than the dimensions say");
    }
    switch (size_of(header_.type)) {
      case 2:
        from_big_endian<2>(bytes_);
        break;
      case 4:
        from_big_endian<4>(bytes_);
        break;
      case 8:
        from_big_endian<8>(bytes_);
        break;
      default:
        break;
    }
  }

  std::string path_;
  header header_;
  std::vector<std::byte> bytes_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
