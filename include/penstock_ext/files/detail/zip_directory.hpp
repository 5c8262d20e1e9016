// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/sums.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The entries of a zip file that are stored as they are, which is what `numpy.savez` writes; with
/// zip64's lengths. Refers to the file's bytes.
class zip_directory {
 public:
  /// Finds the directory at the file's end. `path` is for messages. Throws `file_format_error` for
  /// what is no zip file, or a part of several, and `file_truncated` where the end is missing.
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
        corrupt(end - locator_bytes, "the place of the zip64 end of the directory", "another one");
      }
      entries_ = number(at + 32, 8);
      length_ = number(at + 40, 8);
      begin_ = number(at + 48, 8);
    }
    if (!has(begin_, length_)) corrupt(end, "a directory inside the file", "one beyond its end");
  }

  /// Where the bytes of an entry start, and how many there are.
  struct place {
    std::uint64_t begin = 0;  ///< in the file
    std::uint64_t size = 0;   ///< bytes
    std::uint32_t sum = 0;    ///< their CRC-32, as the directory has it
  };

  /// Finds the entry `name`. Throws `file_format_error` where there is none, or several, or where
  /// it is compressed or encrypted; `file_corrupt` where the directory can't be.
  [[nodiscard]] place find(std::string_view name) const {
    place found;
    bool is_found = false;
    std::string others;
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
      if (end - at < all) corrupt(at, "an entry of the directory", "one beyond its end");
      const std::string_view entry = text(at + fixed, name_length);
      if (entry == name) {
        if (is_found) refuse(at, "one entry '" + std::string{name} + "'", "a second");
        is_found = true;
        found = place_of(at, entry, at + fixed + name_length, extra_length);
      } else if (others.size() < 200) {
        others += (others.empty() ? "" : ", ") + std::string{entry.substr(0, 80)};
      }
      at += all;
    }
    if (!is_found) {
      refuse(begin_, "an entry '" + std::string{name} + "'",
             others.empty() ? "no entry" : "only " + others);
    }
    return found;
  }

  /// Reads the bytes of the entry `name` at `entry`. Throws `file_corrupt` where their CRC-32 is not
  /// that of the directory.
  void require_sum(const place& entry, std::string_view name) const {
    crc32_sum summer;
    summer.add(bytes_.subspan(static_cast<std::size_t>(entry.begin),
                              static_cast<std::size_t>(entry.size)));
    std::array<std::uint8_t, 4> expected{};
    for (std::size_t i = 0; i < 4; ++i) {
      expected[i] = static_cast<std::uint8_t>(entry.sum >> (24 - 8 * i) & 0xffU);
    }
    if (const auto found = summer.sum(); found != expected) {
      throw file_corrupt(path_ + '/' + std::string{name}, entry.begin,
                         "CRC-32 " + hex_digits(expected) + ", as the archive's directory",
                         hex_digits(found) + ": the archive is damaged, copy or write it anew");
    }
  }

 private:
  [[noreturn]] void refuse(std::uint64_t at, const std::string& expected,
                           const std::string& found) const {
    throw file_format_error(path_, at, expected, found);
  }
  [[noreturn]] void corrupt(std::uint64_t at, const std::string& expected,
                            const std::string& found) const {
    throw file_corrupt(path_, at, expected, found + ": the archive is damaged, write it anew");
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

  // Where the record at the end starts: a comment may follow, as long as it says.
  [[nodiscard]] std::uint64_t find_end() const {
    constexpr std::uint64_t fixed = 22;
    constexpr std::uint64_t longest_comment = 0xffff;
    const std::uint64_t size = bytes_.size();
    const bool starts = size >= 4 && (number(0, 4) == 0x04034b50U || number(0, 4) == 0x06054b50U);
    if (!starts) {
      refuse(0, "an npz file, which is a zip file and starts with PK",
             size == 0 ? "an empty file" : "other bytes");
    }
    for (std::uint64_t comment = 0; comment <= longest_comment && comment + fixed <= size;
         ++comment) {
      const std::uint64_t at = size - fixed - comment;
      if (number(at, 4) != 0x06054b50U || number(at + 20, 2) != comment) continue;
      if (number(at + 4, 2) != 0 || number(at + 6, 2) != 0) {
        refuse(at + 4, "a zip file in one part", "one of several: join them by zip -s 0");
      }
      return at;
    }
    throw file_truncated(path_, size, "the directory at the end of a zip file",
                         "the end of the file: it was cut off, get or write it anew");
  }

  [[nodiscard]] place place_of(std::uint64_t at, std::string_view name, std::uint64_t extra,
                               std::uint64_t extra_length) const {
    if ((number(at + 8, 2) & 1U) != 0) refuse(at + 8, "an entry that is not encrypted", "one");
    if (number(at + 10, 2) != 0) {
      refuse(at + 10, "an entry that is stored as it is",
             "a compressed one, which has no random access: write it by numpy.savez, not "
             "savez_compressed");
    }
    std::uint64_t stored = number(at + 20, 4);
    place found{0, number(at + 24, 4), static_cast<std::uint32_t>(number(at + 16, 4))};
    std::uint64_t header = number(at + 42, 4);
    // Of zip64's numbers those are there that have no room in the entry, in this order.
    const std::uint64_t end = extra + extra_length;
    while (end - extra >= 4) {
      const std::uint64_t id = number(extra, 2);
      const std::uint64_t length = number(extra + 2, 2);
      extra += 4;
      if (length > end - extra) corrupt(extra, "a field of the entry", "one beyond its end");
      std::uint64_t next = extra;
      for (std::uint64_t* const value : {&found.size, &stored, &header}) {
        if (id != 1 || *value != 0xffff'ffffU) continue;
        if (extra + length - next < 8) corrupt(extra, "a zip64 length", "nothing");
        *value = number(next, 8);
        next += 8;
      }
      extra += length;
    }
    if (stored != found.size) corrupt(at + 20, "as many bytes as are stored", "another number");
    constexpr std::uint64_t fixed = 30;
    if (!has(header, fixed) || number(header, 4) != 0x04034b50U) {
      corrupt(at + 42, "the place of the entry's header", "another one");
    }
    const std::uint64_t names = number(header + 26, 2);
    found.begin = header + fixed + names + number(header + 28, 2);
    if (!has(header + fixed, names) || text(header + fixed, names) != name) {
      corrupt(header, "the header of '" + std::string{name} + "'", "another one");
    }
    if (!has(found.begin, found.size) || found.begin + found.size > begin_) {
      corrupt(header, "the entry's bytes before the directory", "not all of them");
    }
    return found;
  }

  std::span<const std::byte> bytes_;
  std::string path_;
  std::uint64_t entries_ = 0;
  std::uint64_t begin_ = 0;   // of the directory
  std::uint64_t length_ = 0;  // of it, in bytes
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
