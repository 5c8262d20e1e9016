// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/raw_records.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/half_float.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns NumPy's name for the element type `T` without the byte order, such as "f4", "u1" or
/// "b1".
template <class T>
[[nodiscard]] std::string npy_type_of() {
  static_assert(std::is_arithmetic_v<T> ? sizeof(T) <= 8 : sizeof(T) == 2,
                "penstock: an npy file holds bool, integers, float or double, and types of two "
                "bytes such as ps::half");
  const char kind = std::same_as<T, bool>    ? 'b'
                    : std::floating_point<T> ? 'f'
                    : std::integral<T>       ? (std::is_signed_v<T> ? 'i' : 'u')
                    : is_half_float<T>()     ? 'f'
                                             : 'V';  // as NumPy stores bfloat16
  return kind + std::to_string(sizeof(T));
}

/// Returns true if elements of the NumPy type `type`, given without the byte order, can be
/// reinterpreted as `T`. This is the case if `type` is the name of `T`. In addition, half and
/// bfloat16 can be read as `uint16_t`, and dates and durations as `int64_t`.
template <class T>
[[nodiscard]] bool takes_npy_type(std::string_view type) {
  if (std::same_as<T, std::uint16_t> && (type == "f2" || type == "V2")) return true;
  const bool is_time = type.starts_with("M8") || type.starts_with("m8");
  return type == npy_type_of<T>() || (is_time && npy_type_of<T>() == "i8");
}

/// Header of an npy file, which consists of a magic number, a version, and a Python dictionary in
/// text form. The text is parsed but never evaluated.
struct npy_header {
  /// NumPy's name for the element type, including the byte order
  std::string descr;
  std::vector<std::uint64_t> lengths;  ///< dimensions, outermost first
  std::uint64_t bytes = 0;             ///< size of all elements in bytes
  std::uint64_t data = 0;              ///< offset of the elements in the file
  std::uint64_t descr_at = 0;          ///< position of the element type in the text
  std::uint64_t shape_at = 0;          ///< position of the dimensions in the text

  /// Returns true if the elements do not have native byte order.
  [[nodiscard]] bool is_swapped() const noexcept {
    const char other = std::endian::native == std::endian::little ? '>' : '<';
    return descr.front() == other;
  }
};

/// Parses the header at the start of `bytes`. `path`, and the file offset `base` of the bytes, are
/// used in messages.
class npy_header_parser {
 public:
  npy_header_parser(std::span<const std::byte> bytes, std::string path, std::uint64_t base)
      : bytes_(bytes), path_(std::move(path)), base_(base) {}

  /// Returns the header. Throws:
  /// - `file_truncated`
  /// - `file_format_error` if the file is not an npy file, has an unknown version, is in Fortran
  ///   order, or has elements that are not plain numbers
  /// - `element_type_mismatch` if an element has more than 8 bytes
  /// - `dimension_mismatch` if the array is a scalar, or if its size in bytes exceeds 64 bits
  [[nodiscard]] npy_header read() {
    constexpr std::string_view magic = "\x93NUMPY";
    constexpr std::size_t fixed = 8;  // size of the magic number and the version
    const std::string_view start = text(0, (std::min)(bytes_.size(), fixed));
    if (start.substr(0, magic.size()) != magic.substr(0, start.size())) {
      const std::string foreign = foreign_text(bytes_);
      reject(0, "an npy file, which starts with 0x93 and NUMPY",
             foreign.empty() ? "other bytes" : foreign);
    }
    require(fixed);
    const auto version = std::to_integer<unsigned>(bytes_[6]);
    if (version < 1 || version > 3 || bytes_[7] != std::byte{0}) {
      reject(6, "version 1.0, 2.0 or 3.0",
             std::to_string(version) + '.' + std::to_string(std::to_integer<unsigned>(bytes_[7])));
    }
    const std::size_t width = version == 1 ? 2 : 4;
    require(fixed + width);
    const std::uint64_t length = little_endian(bytes_.subspan(fixed, width));
    constexpr std::uint64_t longest = std::uint64_t{1} << 20;
    if (length > longest) {
      reject(fixed, "a header of at most 1 MiB", std::to_string(length) + " bytes");
    }
    at_ = fixed + width;
    header_.data = at_ + length;
    require(static_cast<std::size_t>(header_.data));
    text_ = text(0, static_cast<std::size_t>(header_.data));
    read_dictionary();
    count_bytes();
    return std::move(header_);
  }

 private:
  [[nodiscard]] std::string_view text(std::size_t begin, std::size_t count) const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()) + begin, count};
  }

  [[noreturn]] void reject(std::size_t at, const std::string& expected,
                           const std::string& found) const {
    throw file_format_error(path_, base_ + at, expected, found);
  }
  [[noreturn]] void reject_here(const std::string& expected) const {
    reject(at_, expected, at_ < text_.size() ? shown(text_[at_]) : "the end of the header");
  }
  [[nodiscard]] static std::string shown(char c) {
    return c >= ' ' && c <= '~' ? std::string{'\'', c, '\''} : hex(static_cast<std::uint8_t>(c));
  }

  void require(std::size_t count) const {
    if (bytes_.size() >= count) return;
    throw file_truncated(path_, base_ + bytes_.size(),
                         "an npy header of " + std::to_string(count) + " bytes or more",
                         "the end of the file");
  }

  void skip_blanks() noexcept {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  // Skips blanks. If `c` follows, consumes it and returns true.
  [[nodiscard]] bool take(char c) noexcept {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) reject_here(shown(c));
  }

  // Parses a string in single or double quotes, without escapes.
  [[nodiscard]] std::string quoted(const std::string& expected) {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') reject_here(expected);
    const std::size_t begin = at_ + 1;
    const std::size_t end = text_.find(quote, begin);
    if (end == std::string_view::npos) reject(at_, "the end of a string", "the end of the header");
    at_ = end + 1;
    return std::string{text_.substr(begin, end - begin)};
  }

  void read_dictionary() {
    bool has[3] = {};
    expect('{');
    while (!take('}')) {
      skip_blanks();
      const std::size_t key_at = at_;
      const std::string key = quoted("'descr', 'fortran_order' or 'shape'");
      const std::size_t which = key == "descr" ? 0 : key == "fortran_order" ? 1 : 2;
      if ((which == 2 && key != "shape") || has[which]) {
        reject(key_at, "'descr', 'fortran_order' and 'shape' once each", '\'' + key + '\'');
      }
      has[which] = true;
      expect(':');
      skip_blanks();
      if (which == 0) read_descr();
      if (which == 1) read_order();
      if (which == 2) read_shape();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) reject_here("spaces to the end of the header");
    if (!has[0] || !has[1] || !has[2]) {
      reject(at_, "'descr', 'fortran_order' and 'shape'", "not all of them");
    }
  }

  void read_descr() {
    header_.descr_at = base_ + at_;
    const std::size_t at = at_;
    if (at_ < text_.size() && text_[at_] == '[') {
      reject(at, "elements that are plain numbers",
             "a structure: save each of its fields separately");
    }
    header_.descr = quoted("the elements' type");
    const std::string& type = header_.descr;
    constexpr std::string_view orders = "<>|=";
    if (type.size() > 1 && type[1] >= '0' && type[1] <= '9') header_.descr.insert(0, 1, '=');
    if (type.size() < 2 || orders.find(type[0]) == std::string_view::npos) {
      reject(at, "a type such as '<f4'", '\'' + type + '\'');
    }
    if (type[1] == 'O') {
      reject(at, "elements that are plain numbers",
             "'|O', pickled objects, which can run arbitrary code: save numbers");
    }
  }

  void read_order() {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("True")) columns_first_at_ = at_;
    if (!columns_first_at_ && !rest.starts_with("False")) reject_here("True or False");
    at_ += columns_first_at_ ? 4U : 5U;
  }

  void read_shape() {
    header_.shape_at = base_ + at_;
    expect('(');
    while (!take(')')) {
      skip_blanks();
      std::uint64_t length = 0;
      const char* const begin = text_.data() + at_;
      const auto read_to = std::from_chars(begin, text_.data() + text_.size(), length);
      if (read_to.ec != std::errc{}) reject_here("a length of 64 bits");
      at_ += static_cast<std::size_t>(read_to.ptr - begin);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as written by Python 2
      header_.lengths.push_back(length);
      if (!take(',')) {
        expect(')');
        break;
      }
    }
  }

  void count_bytes() {
    // For a vector, row-major and column-major order are the same, even if it has additional
    // dimensions of length 1.
    const auto is_long = [](std::uint64_t length) { return length > 1; };
    if (columns_first_at_ && std::ranges::count_if(header_.lengths, is_long) > 1) {
      reject(*columns_first_at_, "rows first (C order)",
             "columns first (Fortran order): save numpy.ascontiguousarray of the array");
    }
    // A time unit may follow the size, as in "<M8[ns]".
    const std::string_view type =
        std::string_view{header_.descr}.substr(0, header_.descr.find('['));
    const auto size = whole_number(type.substr(2));
    if (!size || *size > 8) {
      throw element_type_mismatch(path_, header_.descr_at, "numbers of at most 8 bytes",
                                  '\'' + header_.descr + '\'');
    }
    if (header_.lengths.empty()) {
      throw dimension_mismatch(path_, header_.shape_at, "one dimension or more", "a scalar");
    }
    bool is_empty = false;
    bool is_too_large = false;
    header_.bytes = *size;
    for (const std::uint64_t length : header_.lengths) {
      is_empty = is_empty || length == 0;
      const std::uint64_t rows = length == 0 ? 1 : length;  // checks the row size even if there are
                                                            // no rows
      is_too_large = __builtin_mul_overflow(header_.bytes, rows, &header_.bytes) || is_too_large;
    }
    if (is_too_large) {
      throw dimension_mismatch(path_, header_.shape_at,
                               "dimensions whose size in bytes fits 64 bits", "larger dimensions");
    }
    if (is_empty) header_.bytes = 0;
  }

  std::span<const std::byte> bytes_;
  std::string path_;
  std::uint64_t base_;
  std::string_view text_;  // the bytes up to the end of the header
  std::size_t at_ = 0;
  std::optional<std::size_t> columns_first_at_;  // position in the text
  npy_header header_;
};

/// Returns the header of the npy file `bytes`. `path`, and the file offset `base` of the bytes, are
/// used in messages. Throws the same errors as `npy_header_parser`. Also throws `file_truncated` if
/// the file ends within its elements, and `file_format_error` if bytes follow the elements.
[[nodiscard]] inline npy_header npy_header_of(std::span<const std::byte> bytes,
                                              const std::string& path, std::uint64_t base = 0) {
  npy_header header = npy_header_parser{bytes, path, base}.read();
  const std::uint64_t found = bytes.size() - header.data;
  if (found < header.bytes) {
    throw file_truncated(path, base + bytes.size(),
                         std::to_string(header.bytes) + " bytes of elements",
                         "the end of the file after " + std::to_string(found));
  }
  if (found > header.bytes) {
    throw file_format_error(path, base + header.data + header.bytes, "the end of the file",
                            "more bytes than given by the shape");
  }
  return header;
}

/// The uncompressed entries of a zip file, the format of `numpy.savez`. Supports zip64 sizes.
/// References the file's bytes.
class zip_directory {
 public:
  /// Finds the directory at the end of the file. `path` is used in messages. Throws
  /// `file_format_error` if the file is not a zip file or is part of a multi-part archive,
  /// `file_truncated` if the end is missing, and `file_corrupt` if the directory is not inside the
  /// file.
  zip_directory(std::span<const std::byte> bytes, std::string path)
      : bytes_(bytes), path_(std::move(path)) {
    const std::uint64_t end = find_end();
    entries_ = number(end + 10, 2);
    begin_ = number(end + 16, 4);
    length_ = number(end + 12, 4);
    constexpr std::uint64_t locator_bytes = 20;
    if (end >= locator_bytes && number(end - locator_bytes, 4) == 0x07064b50U) {
      const std::uint64_t at = number(end - locator_bytes + 8, 8);
      if (!has(at, 56) || number(at, 4) != 0x06064b50U) {
        corrupt(end - locator_bytes, "the offset of the zip64 end of the directory",
                "a different offset");
      }
      entries_ = number(at + 32, 8);
      length_ = number(at + 40, 8);
      begin_ = number(at + 48, 8);
    }
    if (!has(begin_, length_))
      corrupt(end, "a directory inside the file", "a directory beyond the end of the file");
  }

  /// The byte range of an entry.
  struct place {
    std::uint64_t begin = 0;     ///< offset in the file
    std::uint64_t size = 0;      ///< size in bytes
    std::uint32_t checksum = 0;  ///< CRC-32 in the directory
  };

  /// Returns the byte range of the entry `name`. Throws `file_format_error` if the entry is
  /// missing, duplicate, compressed or encrypted, and `file_corrupt` if the directory is invalid.
  [[nodiscard]] place find(std::string_view name) const {
    place found;
    bool is_found = false;
    std::uint64_t at = begin_;
    const std::uint64_t end = begin_ + length_;
    for (std::uint64_t i = 0; i < entries_; ++i) {
      constexpr std::uint64_t fixed = 46;
      if (end - at < fixed || number(at, 4) != 0x02014b50U) {
        corrupt(at, "an entry of the directory", "something else");
      }
      const std::uint64_t name_length = number(at + 28, 2);
      const std::uint64_t extra_length = number(at + 30, 2);
      const std::uint64_t all = fixed + name_length + extra_length + number(at + 32, 2);
      if (end - at < all) corrupt(at, "an entry of the directory", "an entry beyond its end");
      const std::string_view entry = text(at + fixed, name_length);
      if (entry == name) {
        if (is_found) reject(at, "one entry '" + std::string{name} + "'", "a second");
        is_found = true;
        found = place_of(at, entry, at + fixed + name_length, extra_length);
      }
      at += all;
    }
    if (!is_found) reject(begin_, "an entry '" + std::string{name} + "'", "no entry of that name");
    return found;
  }

  /// Verifies the CRC-32 of the entry `name`, located at `entry`. Throws `file_corrupt` after a
  /// mismatch.
  void require_checksum(const place& entry, std::string_view name) const {
    crc32_checksum checksum;
    checksum.add(bytes_.subspan(static_cast<std::size_t>(entry.begin),
                                static_cast<std::size_t>(entry.size)));
    std::array<std::uint8_t, 4> expected{};
    for (std::size_t i = 0; i < 4; ++i) {
      expected[i] = static_cast<std::uint8_t>(entry.checksum >> (24 - 8 * i) & 0xffU);
    }
    if (const auto found = checksum.bytes(); found != expected) {
      throw file_corrupt(
          path_ + '/' + std::string{name}, entry.begin,
          "CRC-32 " + hex_digits(expected) + ", according to the archive's directory",
          hex_digits(found) + ": the archive is damaged: copy or write it again");
    }
  }

 private:
  [[noreturn]] void reject(std::uint64_t at, const std::string& expected,
                           const std::string& found) const {
    throw file_format_error(path_, at, expected, found);
  }
  [[noreturn]] void corrupt(std::uint64_t at, const std::string& expected,
                            const std::string& found) const {
    throw file_corrupt(path_, at, expected, found + ": the archive is damaged: write it again");
  }

  [[nodiscard]] bool has(std::uint64_t begin, std::uint64_t count) const noexcept {
    return count <= bytes_.size() && begin <= bytes_.size() - count;
  }
  [[nodiscard]] std::uint64_t number(std::uint64_t at, std::size_t width) const noexcept {
    return little_endian(bytes_.subspan(static_cast<std::size_t>(at), width));
  }
  [[nodiscard]] std::string_view text(std::uint64_t at, std::uint64_t count) const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, static_cast<std::size_t>(count)};
  }

  // Returns the offset of the end-of-directory record. A comment may follow the record, which
  // contains its length.
  [[nodiscard]] std::uint64_t find_end() const {
    constexpr std::uint64_t fixed = 22;
    constexpr std::uint64_t max_comment = 0xffff;
    const std::uint64_t size = bytes_.size();
    const bool starts = size >= 4 && (number(0, 4) == 0x04034b50U || number(0, 4) == 0x06054b50U);
    if (!starts) {
      reject(0, "an npz file, which is a zip file and starts with PK",
             size == 0 ? "an empty file" : "other bytes");
    }
    for (std::uint64_t comment = 0; comment <= max_comment && comment + fixed <= size; ++comment) {
      const std::uint64_t at = size - fixed - comment;
      if (number(at, 4) != 0x06054b50U || number(at + 20, 2) != comment) continue;
      if (number(at + 4, 2) != 0 || number(at + 6, 2) != 0) {
        reject(at + 4, "a zip file in one part", "one of several parts: join them with zip -s 0");
      }
      return at;
    }
    throw file_truncated(path_, size, "the directory at the end of a zip file",
                         "the end of the file: it was truncated: download or write it again");
  }

  [[nodiscard]] place place_of(std::uint64_t at, std::string_view name, std::uint64_t extra,
                               std::uint64_t extra_length) const {
    if ((number(at + 8, 2) & 1U) != 0)
      reject(at + 8, "an entry that is not encrypted", "an encrypted entry");
    if (number(at + 10, 2) != 0) {
      reject(at + 10, "an uncompressed entry",
             "a compressed entry, which has no random access: write it with numpy.savez, not "
             "savez_compressed");
    }
    std::uint64_t stored = number(at + 20, 4);
    place found{0, number(at + 24, 4), static_cast<std::uint32_t>(number(at + 16, 4))};
    std::uint64_t header = number(at + 42, 4);
    // The zip64 field contains only the values that do not fit into the entry, in this order.
    const std::uint64_t end = extra + extra_length;
    while (end - extra >= 4) {
      const std::uint64_t id = number(extra, 2);
      const std::uint64_t length = number(extra + 2, 2);
      extra += 4;
      if (length > end - extra) corrupt(extra, "a field of the entry", "a field beyond its end");
      std::uint64_t next = extra;
      for (std::uint64_t* const value : {&found.size, &stored, &header}) {
        if (id != 1 || *value != 0xffff'ffffU) continue;
        if (extra + length - next < 8) corrupt(extra, "a zip64 length", "nothing");
        *value = number(next, 8);
        next += 8;
      }
      extra += length;
    }
    if (stored != found.size) corrupt(at + 20, "as many bytes as are stored", "a different number");
    constexpr std::uint64_t fixed = 30;
    if (!has(header, fixed) || number(header, 4) != 0x04034b50U) {
      corrupt(at + 42, "the offset of the entry's header", "a different offset");
    }
    const std::uint64_t names = number(header + 26, 2);
    found.begin = header + fixed + names + number(header + 28, 2);
    if (!has(header + fixed, names) || text(header + fixed, names) != name) {
      corrupt(header, "the header of '" + std::string{name} + "'", "a different header");
    }
    if (!has(found.begin, found.size) || found.begin + found.size > begin_) {
      corrupt(header, "all bytes of the entry before the directory", "fewer bytes");
    }
    return found;
  }

  std::span<const std::byte> bytes_;
  std::string path_;
  std::uint64_t entries_ = 0;
  std::uint64_t begin_ = 0;   // offset of the directory
  std::uint64_t length_ = 0;  // size of the directory in bytes
};

}  // namespace detail

/// A file written by `numpy.savez`, which contains several uncompressed arrays.
struct npz {
  std::string path;  ///< path of the file
  /// If true, the constructor reads all arrays in use and verifies their CRC-32. If false, a
  /// flipped bit silently changes an element.
  bool verify = false;
};

/// A dataset of NumPy npy files, one for each field in record order, or of the arrays in an npz
/// file:
///
///     using sample = record<field<"x", float, 28, 28>, field<"y", std::int64_t>>;
///     npy_dataset<sample> train{"x.npy", "y.npy"};
///     npy_dataset<sample> test{npz{"test.npz"}};                  // its arrays x and y
///     npy_dataset<sample> other{npz{"test.npz"}, "data", "target"};
///
/// The first dimension of an array is the number of samples, and the others are the field extents.
/// Dynamic extents are those of the file. Elements are bool, integers, float or double, with the
/// type of the field and any byte order. float16 and bfloat16 can be read as a two-byte type such
/// as `half`, or as their bits in a `std::uint16_t`. Dates and durations are read as
/// `std::int64_t`. Arrays in Fortran order are rejected, because their rows are not contiguous.
///
/// The files are memory-mapped and not read at construction, unless `npz::verify` is set. Opening
/// therefore needs almost no time and memory, independent of the size. The files must not change
/// while they are open. Truncating an open file kills the process. If another file replaces a
/// mapped file, the dataset still reads the old file. Movable, not copyable. Reading is
/// thread-safe.
template <penstock::record_type Record>
class npy_dataset : public detail::mapped_rows<Record> {
 public:
  using record_type = Record;

  /// Opens the files at `paths`. Throws for the first faulty file:
  /// - `file_unreadable`, `file_truncated`
  /// - `file_format_error` if a file is not an npy file, is in Fortran order, or has bytes after
  ///   its elements
  /// - `element_type_mismatch` if the element type does not match the field
  /// - `dimension_mismatch` if the rank or the extents differ from the field extents
  /// - `length_mismatch` if the number of samples differs from the first file
  template <std::convertible_to<std::string>... Paths>
    requires(sizeof...(Paths) == Record::size)
  explicit npy_dataset(const Paths&... paths) : npy_dataset(open_files({std::string(paths)...})) {}

  /// Opens the arrays `names` in an npz file. If `names` is empty, opens the arrays with the field
  /// names. Throws the same errors as the constructor above. Also throws `file_format_error` if an
  /// array is missing or compressed, and `file_corrupt` if the archive directory is damaged or,
  /// with `verify`, if an array is damaged.
  template <std::convertible_to<std::string>... Names>
    requires(sizeof...(Names) == Record::size || sizeof...(Names) == 0)
  explicit npy_dataset(const npz& archive, const Names&... names)
      : npy_dataset(open_archive(archive, {std::string(names)...})) {}

  npy_dataset(npy_dataset&&) = default;
  npy_dataset& operator=(npy_dataset&&) = delete;

 private:
  using rows = detail::mapped_rows<Record>;

  // An array in a file, starting at `begin`.
  struct array {
    std::shared_ptr<const mapped_file> file;
    std::string path;  // name in messages: the file, followed by the array name in an archive
    std::uint64_t begin = 0;
    std::span<const std::byte> bytes = {};
    detail::npy_header header = {};

    void read_header() { header = detail::npy_header_of(bytes, path, begin); }
  };
  using arrays = std::array<array, Record::size>;

  template <std::size_t Index>
  using field_at = typename Record::template field_at<Index>;

  // Opens an array for each field by calling `open(index, name)`. Checks each array before opening
  // the next.
  template <class Open>
  [[nodiscard]] static arrays open_all(const Open& open) {
    arrays all;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      ((all[Is] = open(Is, field_at<Is>::key.str()), all[Is].read_header(), require<Is>(all)), ...);
    }(std::make_index_sequence<Record::size>{});
    return all;
  }

  [[nodiscard]] static arrays open_files(const std::array<std::string, Record::size>& paths) {
    return open_all([&](std::size_t number, const std::string&) {
      const auto file = std::make_shared<const mapped_file>(paths[number]);
      return array{.file = file, .path = file->path(), .bytes = file->bytes()};
    });
  }

  // Opens arrays in an archive. An empty name stands for the name of the field.
  [[nodiscard]] static arrays open_archive(const npz& archive,
                                           const std::array<std::string, Record::size>& names) {
    const auto file = std::make_shared<const mapped_file>(archive.path);
    const detail::zip_directory entries{file->bytes(), archive.path};
    return open_all([&](std::size_t number, const std::string& field) {
      const std::string name = (names[number].empty() ? field : names[number]) + ".npy";
      const auto place = entries.find(name);
      if (archive.verify) entries.require_checksum(place, name);
      return array{file, file->path() + '/' + name, place.begin,
                   file->bytes().subspan(static_cast<std::size_t>(place.begin),
                                         static_cast<std::size_t>(place.size))};
    });
  }

  // Throws if an array does not match its field, or if its length differs from the first array.
  template <std::size_t Index>
  static void require(const arrays& all) {
    using field = field_at<Index>;
    using lengths = typename field::extents_type;
    const auto& [file, path, begin, bytes, found] = all[Index];
    const std::string of_field = " for field \"" + field::key.str() + "\"";
    using value_type = typename field::value_type;
    if (!detail::takes_npy_type<value_type>(std::string_view{found.descr}.substr(1))) {
      throw element_type_mismatch(
          path, found.descr_at,
          "elements of type '" + detail::npy_type_of<value_type>() + "'" + of_field,
          '\'' + found.descr + '\'');
    }
    if (found.lengths.size() != lengths::rank + 1) {
      throw dimension_mismatch(path, found.shape_at,
                               std::to_string(lengths::rank + 1) + " dimensions" + of_field,
                               std::to_string(found.lengths.size()));
    }
    for (std::size_t d = 1; d <= lengths::rank; ++d) {
      const std::size_t expected = detail::fixed_extent<lengths>(d - 1);
      if (expected == dyn ? found.lengths[d] > 0 : found.lengths[d] == expected) continue;
      throw dimension_mismatch(path, found.shape_at,
                               (expected == dyn ? "1 or more" : std::to_string(expected)) +
                                   " in dimension " + std::to_string(d) + of_field,
                               std::to_string(found.lengths[d]));
    }
    if (found.lengths[0] != all[0].header.lengths[0]) {
      throw length_mismatch(
          path, found.shape_at,
          std::to_string(all[0].header.lengths[0]) + " samples as in " + all[0].path,
          std::to_string(found.lengths[0]));
    }
  }

  explicit npy_dataset(const arrays& all) : rows(rows_of(all)) {
    for (const array& one : all) files_.push_back(one.file);
  }

  [[nodiscard]] static rows rows_of(const arrays& all) {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      const batch_layout<Record> layout{
          record_extents<Record>{detail::extents_in<typename field_at<Is>::extents_type>(
              std::span{all[Is].header.lengths}.subspan(1))...},
          1};
      return rows{"npy_dataset", layout, all[0].header.lengths[0],
                  std::array<detail::mapped_field, Record::size>{detail::mapped_field{
                      all[Is].bytes.data() + all[Is].header.data,
                      layout.template sample_bytes<Is>(), all[Is].header.is_swapped()}...}};
    }(std::make_index_sequence<Record::size>{});
  }

  std::vector<std::shared_ptr<const mapped_file>> files_;
};

static_assert(dataset<npy_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
