// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Block size of tar archives in bytes.
inline constexpr std::size_t tar_block = 512;

/// Maximum path length in the header's name field.
inline constexpr std::size_t tar_name_length = 100;

/// The smallest file size in bytes that does not fit into the octal size field.
inline constexpr std::uint64_t tar_octal_end = std::uint64_t{1} << 33;

/// Parses a number in a header. The number is either octal digits between blanks, or big-endian
/// binary if the first bit is set. Returns nothing if the field is invalid, negative, or exceeds 64
/// bits.
[[nodiscard]] inline std::optional<std::uint64_t> tar_number(std::string_view field) noexcept {
  std::uint64_t value = 0;
  const auto first = static_cast<unsigned char>(field.empty() ? '\0' : field.front());
  if ((first & 0x80U) != 0) {
    if ((first & 0x7fU) != 0) return std::nullopt;  // negative or more than 64 bits
    for (const char c : field.substr(1)) {
      if (value >> 56U != 0) return std::nullopt;
      value = value << 8U | static_cast<unsigned char>(c);
    }
    return value;
  }
  const auto is_blank = [](char c) { return c == ' ' || c == '\0'; };
  const auto* at = std::find_if_not(field.begin(), field.end(), is_blank);
  for (; at != field.end() && *at >= '0' && *at <= '7'; ++at) {
    if (value >> 61U != 0) return std::nullopt;
    value = value << 3U | static_cast<std::uint64_t>(*at - '0');
  }
  return std::all_of(at, field.end(), is_blank) ? std::optional{value} : std::nullopt;
}

/// A view of a tar member header. Supports POSIX ustar, GNU tar, and Version 7 Unix, which has no
/// prefix field.
class tar_header {
 public:
  /// References a 512-byte block.
  explicit tar_header(std::span<const std::byte> block) noexcept
      : text_(reinterpret_cast<const char*>(block.data()), tar_block) {}

  /// Returns true if all bytes are 0, as at the end of an archive.
  [[nodiscard]] bool is_zero() const noexcept {
    return std::all_of(text_.begin(), text_.end(), [](char c) { return c == '\0'; });
  }

  /// Returns true if the checksum is correct. Also accepts the sum of signed bytes that some
  /// programs write.
  [[nodiscard]] bool sum_is_right() const noexcept {
    const auto stated = tar_number(text_.substr(sum_begin, sum_length));
    if (!stated) return false;
    std::uint32_t sum = 0;
    for (const char c : text_) sum += static_cast<unsigned char>(c);
    std::uint32_t negative = 0;  // number of bytes that are 256 lower in a signed sum
    for (const char c : text_) negative += static_cast<unsigned char>(c) >> 7U;
    // The checksum treats its own field as blanks.
    for (const char c : text_.substr(sum_begin, sum_length)) {
      sum += static_cast<std::uint32_t>(' ') - static_cast<unsigned char>(c);
      negative -= static_cast<unsigned char>(c) >> 7U;
    }
    const std::int64_t signed_sum = std::int64_t{sum} - std::int64_t{256} * negative;
    return *stated == sum || std::cmp_equal(*stated, signed_sum);
  }

  /// Returns the POSIX type letter of the member. '0' is a file, including headers with a NUL, and
  /// '5' is a folder.
  [[nodiscard]] char type() const noexcept {
    const char letter = text_[156];
    if (letter != '\0') return letter;
    const std::string_view of = name();
    return !of.empty() && of.back() == '/' ? '5' : '0';
  }

  /// Returns the size of the member in bytes, or nothing if the field is invalid.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept {
    return tar_number(text_.substr(124, 12));
  }

  /// Returns the name field: the path, or the part of the path after the prefix.
  [[nodiscard]] std::string_view name() const noexcept { return field(0, tar_name_length); }

  /// Returns the prefix field: the part of the path before the name, without the slash between
  /// them. May be "".
  [[nodiscard]] std::string_view prefix() const noexcept {
    // The GNU magic has a blank instead of the NUL, and GNU headers store other data in the prefix
    // field.
    constexpr std::string_view posix{"ustar\0", 6};
    return text_.substr(257, posix.size()) == posix ? field(345, 155) : std::string_view{};
  }

  /// Returns true if the header's path is `key`, a dot, and `extension`. `extension` must be in
  /// lower case and is compared without regard to case.
  [[nodiscard]] bool is_named(std::string_view key, std::string_view extension) const noexcept {
    const auto is_at = [&](std::size_t place, char letter) {
      if (place < key.size()) return letter == key[place];
      return place == key.size() ? letter == '.'
                                 : lowered(letter) == extension[place - key.size() - 1];
    };
    const std::string_view before = prefix();
    const std::string_view after = name();
    const std::size_t begin = before.empty() ? 0 : before.size() + 1;
    if (key.size() + 1 + extension.size() != begin + after.size()) return false;
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (!is_at(begin + i, after[i])) return false;
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!is_at(i, before[i])) return false;
    }
    return before.empty() || is_at(before.size(), '/');
  }

 private:
  static constexpr std::size_t sum_begin = 148;
  static constexpr std::size_t sum_length = 8;

  // Returns a text field. The text ends at the first NUL or at the end of the field.
  [[nodiscard]] std::string_view field(std::size_t begin, std::size_t length) const noexcept {
    const std::string_view all = text_.substr(begin, length);
    return all.substr(0, all.find('\0'));
  }

  std::string_view text_;
};

/// Returns true if every tar program stores this path in the header's own fields. A header with a
/// different path then belongs to another member.
[[nodiscard]] inline bool is_plain_tar_name(std::string_view path) noexcept {
  return path.size() <= tar_name_length && std::all_of(path.begin(), path.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x80;
         });
}

/// Checks that `block` is the header of a file with the given path (see `is_named`) and size.
/// Returns a description of the mismatch, or "". Ignores a path that some programs store elsewhere.
[[nodiscard]] inline std::string foreign_header(std::span<const std::byte> block,
                                                std::string_view key, std::string_view extension,
                                                std::uint64_t size) {
  const tar_header header{block};
  if (!header.sum_is_right()) return "no header, or a damaged header";
  if (header.type() != '0' && header.type() != '7')
    return "the header of an entry that is not a file";
  const bool is_plain = key.size() + 1 + extension.size() <= tar_name_length &&
                        is_plain_tar_name(key) && is_plain_tar_name(extension);
  if (is_plain && !header.is_named(key, extension)) {
    return "the header of '" + std::string{header.name()} + "'";
  }
  if (size < tar_octal_end && header.size() != size) {
    const auto found = header.size();
    return found ? "the header of a file of " + std::to_string(*found) + " bytes"
                 : "a header without a size";
  }
  return {};
}

/// A window of an archive in memory, which moves to each requested offset. One read covers headers
/// that are close together. Between distant headers, the window reads few unneeded bytes.
template <archive_bytes Source>
class archive_window {
 public:
  /// References `source`, which must outlive this object.
  explicit archive_window(const Source& source)
      : source_(&source), memory_(std::make_unique_for_overwrite<std::byte[]>(longest)) {}

  /// Returns `count` bytes at `offset`, or fewer at the end of the archive. `count` must not exceed
  /// `longest`. The result is valid until the next call.
  [[nodiscard]] std::span<const std::byte> at(std::uint64_t offset, std::size_t count) {
    const bool is_close = offset >= begin_ && offset <= begin_ + filled_;
    if (!is_close || begin_ + filled_ - offset < count) {
      length_ = is_close ? (std::min)(2 * length_, longest) : shortest;
      begin_ = offset;
      filled_ = 0;  // remains 0 if the read throws
      filled_ = source_->read_at(offset, {memory_.get(), (std::max)(length_, count)});
    }
    const auto skipped = static_cast<std::size_t>(offset - begin_);
    return {memory_.get() + skipped, (std::min)(count, filled_ - skipped)};
  }

  /// Maximum value of `count`.
  static constexpr std::size_t longest = std::size_t{1} << 18;

 private:
  // Minimum read size: room for a label, the next header, and a little more.
  static constexpr std::size_t shortest = 4096;

  const Source* source_;
  std::unique_ptr<std::byte[]> memory_;
  std::uint64_t begin_ = 0;
  std::size_t filled_ = 0;
  std::size_t length_ = shortest;
};

/// Records of a POSIX pax extended header that affect how members are read.
struct pax_records {
  std::optional<std::string> path;    ///< Overrides the path in the header.
  std::optional<std::uint64_t> size;  ///< Overrides the size in the header, in bytes.
  bool is_sparse = false;             ///< True if the data omits holes, as in GNU sparse files.

  /// Parses records of the form "LENGTH KEY=VALUE\n" in `text`. LENGTH is the size of the whole
  /// record in bytes. An empty value removes an earlier value. Returns `std::string_view::npos` if
  /// all records are valid. Otherwise returns the position of the invalid record in `text`, and
  /// sets `expected` to a description of a valid record.
  [[nodiscard]] std::size_t read(std::string_view text, std::string_view& expected) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      std::string_view record = text.substr(begin);
      const std::size_t digits = (std::min)(record.find(' '), record.size());
      const auto length = whole_number<std::size_t>(record.substr(0, digits));
      expected = "a record of an extended header, 'LENGTH KEY=VALUE' and a newline";
      if (!length || *length > record.size() || *length < digits + 2) return begin;
      if (record[*length - 1] != '\n') return begin;
      record = record.substr(digits + 1, *length - digits - 2);
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) return begin;
      expected = take(record.substr(0, equals), record.substr(equals + 1));
      if (!expected.empty()) return begin;
      begin += *length;
    }
    return std::string_view::npos;
  }

 private:
  // Applies a record. If its value is invalid, returns a description of a valid value, for
  // messages. Otherwise returns "".
  [[nodiscard]] std::string_view take(std::string_view key, std::string_view value) {
    if (key == "path") {
      if (value.find('\0') != std::string_view::npos) return "a path without a NUL";
      path = value.empty() ? std::nullopt : std::optional<std::string>{value};
    } else if (key == "size") {
      size = whole_number(value);
      if (!size && !value.empty()) return "a size in decimal digits";
    } else if (key.starts_with("GNU.sparse.")) {
      is_sparse = true;
    }
    return {};
  }
};

/// A member of an archive.
struct tar_member {
  std::string_view name = {};  ///< Path of the member, valid until the next member.
  std::uint64_t begin = 0;     ///< Offset of the data, one block after the member's header.
  std::uint64_t size = 0;      ///< Size in bytes.
  bool is_file = false;
  bool is_link = false;
  /// True if `foreign_header` accepts the member's own header. False, for example, if an extended
  /// header contradicts it.
  bool is_usual = true;
};

/// Iterates over the members of a tar archive. Supports ustar, GNU long names and binary sizes, and
/// pax extended headers. Single-use.
template <archive_bytes Source>
class tar_walk {
 public:
  /// Starts at the header at byte `from`. References `source`, which must outlive this object.
  explicit tar_walk(const Source& source, std::uint64_t from = 0)
      : source_(&source), window_(source), offset_(from) {}

  /// Advances to the next member. Returns false at the end of the archive. Throws:
  /// - `file_truncated` if the file ends before the archive
  /// - `file_corrupt` if a header is invalid
  /// - `file_format_error` if the file is not a tar archive, has sparse members, sets a path for
  ///   all members in a global header, or continues after the end of the archive
  [[nodiscard]] bool next() {
    std::string read_text;  // text of the member's extended headers
    std::string long_name;
    bool is_announced = false;             // true if the member has its own extended header
    for (int extended = 0;; ++extended) {  // number of headers before the member's header
      const std::uint64_t at = offset_;
      const tar_header header = read_header();
      if (header.is_zero()) {
        if (is_announced) corrupt(at, "the member that the preceding extended header describes");
        require_end();
        return false;
      }
      if (!header.sum_is_right()) reject_header(at);
      const auto stated = header.size();
      if (!stated) corrupt(at + 124, "the size of a member", "a value that is not a number");
      const char type = header.type();
      offset_ = at + tar_block;
      if (std::string_view{"xXgLK"}.find(type) == std::string_view::npos) {
        // The member's records take precedence over global records.
        pax_records own = all_after_;
        std::string_view none;
        static_cast<void>(own.read(read_text, none));
        take(header, at, type, *stated, own, long_name);
        return true;
      }
      if (extended == max_extended) {
        corrupt(at, "at most " + std::to_string(max_extended) + " extended headers before a member",
                "more");
      }
      if (type == 'x' || type == 'X') {
        pax_records read_now;
        read_text += read_records(read_now, *stated);
        is_announced = true;
      } else if (type == 'L') {
        long_name = text_of(*stated);
        long_name.resize((std::min)(long_name.find('\0'), long_name.size()));
        is_announced = true;
      } else if (type == 'g') {
        read_records(all_after_, *stated);
        if (all_after_.path) {
          throw file_format_error(source_->path(), at, "a global header without a path",
                                  "a path for all members after it: pack the files again");
        }
      } else {  // a long link name, which is not used
        skip(*stated, "a long link");
      }
    }
  }

  /// Returns the current member.
  [[nodiscard]] const tar_member& member() const noexcept { return member_; }

 private:
  static constexpr std::uint64_t max_text = std::uint64_t{1} << 20;
  // Maximum number of headers before a member; programs write fewer.
  static constexpr int max_extended = 32;

  [[noreturn]] void corrupt(std::uint64_t at, const std::string& expected,
                            const std::string& found = "the end of the archive") const {
    throw file_corrupt(source_->path(), at, expected,
                       found + ": the archive is damaged: download or write it again");
  }

  [[nodiscard]] tar_header read_header() {
    const auto block = window_.at(offset_, tar_block);
    if (block.size() < tar_block) {
      throw file_truncated(
          source_->path(), (std::min)(offset_ + block.size(), std::uint64_t{source_->size()}),
          offset_ == 0 ? "a tar archive"
                       : "a header, or the two blocks of zeros that end an archive",
          "the end of the file: it was truncated, or its writer never closed it; if nothing is "
          "missing, truncate -s +1024 adds the end");
    }
    return tar_header{block};
  }

  // Throws because the block at `at` is not a valid header.
  [[noreturn]] void reject_header(std::uint64_t at) {
    if (at != 0) corrupt(at, "a header with a valid checksum", "another block");
    struct kind {
      std::string_view magic;
      std::string_view found;
    };
    constexpr kind kinds[] = {
        {"\x1f\x8b", "a gzip file, which has no random access: gunzip it"},
        {"\x28\xb5\x2f\xfd", "a Zstandard file, which has no random access: unzstd it"},
        {"BZh", "a bzip2 file, which has no random access: bunzip2 it"},
        {{"\xfd"
          "7zXZ\0",
          6},
         "an xz file, which has no random access: unxz it"},
        {"\x04\x22\x4d\x18", "an LZ4 file, which has no random access: unlz4 it"},
        {"PK\x03\x04", "a zip file: unpack it, and pack it with tar"},
    };
    const auto block = window_.at(0, tar_block);
    const std::string_view text{reinterpret_cast<const char*>(block.data()), block.size()};
    for (const kind& one : kinds) {
      if (text.starts_with(one.magic)) {
        throw file_format_error(source_->path(), 0, "a tar archive", std::string{one.found});
      }
    }
    throw file_format_error(source_->path(), 0, "a tar archive",
                            "a first block without the checksum of a tar header");
  }

  // Skips `size` bytes. Throws if the file ends earlier.
  void skip(std::uint64_t size, const std::string& what) {
    const std::uint64_t total = source_->size();
    if (size > total || offset_ > total - size) {
      throw file_truncated(source_->path(), total,
                           std::to_string(size) + " bytes of " + what + " starting at byte " +
                               std::to_string(offset_),
                           "the end of the file: download or write it again");
    }
    offset_ += (size + tar_block - 1) / tar_block * tar_block;
  }

  // Reads the text of an extended header.
  [[nodiscard]] std::string text_of(std::uint64_t size) {
    if (size > max_text) {
      corrupt(offset_, "an extended header of at most " + std::to_string(max_text) + " bytes",
              std::to_string(size));
    }
    std::uint64_t at = offset_;
    skip(size, "an extended header");
    std::string text;
    while (text.size() < size) {
      const auto left = static_cast<std::size_t>(size) - text.size();
      const auto piece = window_.at(at, (std::min)(left, window_.longest));
      if (piece.empty()) corrupt(at, "an extended header", "the end of the file");
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      at += piece.size();
    }
    return text;
  }

  std::string read_records(pax_records& into, std::uint64_t size) {
    const std::uint64_t begin = offset_;
    std::string_view expected;
    std::string text = text_of(size);
    const std::size_t wrong = into.read(text, expected);
    if (wrong != std::string_view::npos) {
      corrupt(begin + wrong, std::string{expected}, "something else");
    }
    return text;
  }

  void take(const tar_header& header, std::uint64_t at, char type, std::uint64_t stated,
            const pax_records& records, std::string& long_name) {
    if (type == 'S' || records.is_sparse) {
      throw file_format_error(source_->path(), at, "a file with all its bytes",
                              "a sparse file, whose holes are omitted: pack it without --sparse");
    }
    name_ = header.prefix();
    if (!name_.empty()) name_ += '/';
    name_ += header.name();
    member_ = {};
    if (!long_name.empty() || records.path) {
      std::string& path = long_name;
      if (records.path) path = *records.path;
      member_.is_usual = path == name_ || !is_plain_tar_name(path);
      name_.swap(path);
    }
    member_.name = name_;
    member_.begin = offset_;
    // Links, devices and folders have no data, even if the header states a size.
    if (type < '1' || type > '6') {
      member_.size = records.size.value_or(stated);
      // A size of 8 GiB or more does not fit into a header. Some programs write 0 for smaller sizes
      // too.
      if (stated != 0 && member_.size != stated && member_.size < tar_octal_end) {
        corrupt(at + 124, "the same size of '" + name_ + "'",
                std::to_string(stated) + " bytes in its header and " +
                    std::to_string(member_.size) + " in the preceding extended header");
      }
      member_.is_usual =
          member_.is_usual && (member_.size == stated || member_.size >= tar_octal_end);
      skip(member_.size, "'" + name_ + "'");
    }
    member_.is_file = type == '0' || type == '7';
    member_.is_link = type == '1' || type == '2';
  }

  // Throws unless only zeros follow the first zero block. Another archive there would otherwise be
  // ignored.
  void require_end() {
    while (true) {
      const auto rest = window_.at(offset_, window_.longest);
      if (rest.empty()) return;
      const auto other = std::find_if(rest.begin(), rest.end(),
                                      [](std::byte byte) { return byte != std::byte{0}; });
      offset_ += static_cast<std::uint64_t>(other - rest.begin());
      if (other == rest.end()) continue;
      throw file_format_error(
          source_->path(), offset_, "zeros after the end of the archive",
          "other bytes: if the file holds two archives, store each in its own file");
    }
  }

  const Source* source_;
  archive_window<Source> window_;
  std::uint64_t offset_;
  pax_records all_after_;
  std::string name_;
  tar_member member_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
