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

/// All of a tar archive comes in blocks of this many bytes.
inline constexpr std::size_t tar_block = 512;

/// The most characters of a path that a header's own field has room for.
inline constexpr std::size_t tar_name_length = 100;

/// From this size on, in bytes, the octal digits of a header do not say how long a member is.
inline constexpr std::uint64_t tar_octal_end = std::uint64_t{1} << 33;

/// A number of a header: octal digits between blanks, or, where the first bit is set, big-endian
/// binary. Nothing for what is no number, is negative, or has no room in 64 bits.
[[nodiscard]] inline std::optional<std::uint64_t> tar_number(std::string_view field) noexcept {
  std::uint64_t value = 0;
  const auto first = static_cast<unsigned char>(field.empty() ? '\0' : field.front());
  if ((first & 0x80U) != 0) {
    if ((first & 0x7fU) != 0) return std::nullopt;  // negative, or above 64 bits
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

/// The header of a tar archive's member, where it lies: POSIX's ustar, GNU's, or that of the
/// seventh edition of Unix, which has no prefix.
class tar_header {
 public:
  /// Refers to a block.
  explicit tar_header(std::span<const std::byte> block) noexcept
      : text_(reinterpret_cast<const char*>(block.data()), tar_block) {}

  /// Whether all its bytes are 0, as at the end of an archive.
  [[nodiscard]] bool is_zero() const noexcept {
    return std::all_of(text_.begin(), text_.end(), [](char c) { return c == '\0'; });
  }

  /// Whether the checksum is that of the bytes, which some programs add up as signed ones.
  [[nodiscard]] bool sum_is_right() const noexcept {
    const auto stated = tar_number(text_.substr(sum_begin, sum_length));
    if (!stated) return false;
    std::uint32_t sum = 0;
    for (const char c : text_) sum += static_cast<unsigned char>(c);
    std::uint32_t negative = 0;  // bytes that a signed sum takes 256 less for
    for (const char c : text_) negative += static_cast<unsigned char>(c) >> 7U;
    // The field itself counts as blanks.
    for (const char c : text_.substr(sum_begin, sum_length)) {
      sum += static_cast<std::uint32_t>(' ') - static_cast<unsigned char>(c);
      negative -= static_cast<unsigned char>(c) >> 7U;
    }
    const std::int64_t signed_sum = std::int64_t{sum} - std::int64_t{256} * negative;
    return *stated == sum || std::cmp_equal(*stated, signed_sum);
  }

  /// What the member is, by POSIX's letter: '0' a file, also where it is a NUL, '5' a folder.
  [[nodiscard]] char type() const noexcept {
    const char letter = text_[156];
    if (letter != '\0') return letter;
    const std::string_view of = name();
    return !of.empty() && of.back() == '/' ? '5' : '0';
  }

  /// How many bytes the member has; nothing where that is no number.
  [[nodiscard]] std::optional<std::uint64_t> size() const noexcept {
    return tar_number(text_.substr(124, 12));
  }

  /// The path, or its part after the prefix.
  [[nodiscard]] std::string_view name() const noexcept { return field(0, tar_name_length); }

  /// What stands before the name, without the slash between them; "" if nothing.
  [[nodiscard]] std::string_view prefix() const noexcept {
    // GNU's magic has a blank in place of the NUL, and other things where the prefix is.
    constexpr std::string_view posix{"ustar\0", 6};
    return text_.substr(257, posix.size()) == posix ? field(345, 155) : std::string_view{};
  }

  /// Whether the header's own fields say the path `key`, a dot, and `extension`, which is in small
  /// letters and stands there in letters of any case.
  [[nodiscard]] bool is_named(std::string_view key, std::string_view extension) const noexcept {
    const auto is_at = [&](std::size_t place, char said) {
      if (place < key.size()) return said == key[place];
      return place == key.size() ? said == '.' : lowered(said) == extension[place - key.size() - 1];
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

  // A text, which ends with a NUL unless it fills its field.
  [[nodiscard]] std::string_view field(std::size_t begin, std::size_t length) const noexcept {
    const std::string_view all = text_.substr(begin, length);
    return all.substr(0, all.find('\0'));
  }

  std::string_view text_;
};

/// Whether a path is one that every program writes into a header's own field, so that a header that
/// says another one is another member's.
[[nodiscard]] inline bool is_plain_tar_name(std::string_view path) noexcept {
  return path.size() <= tar_name_length && std::all_of(path.begin(), path.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x80;
         });
}

/// What is wrong with the block before a member's bytes, if that is to be the header of a file of
/// this path, as `is_named` has it, and of this size; "" if nothing is. A path that some programs
/// put elsewhere is not compared.
[[nodiscard]] inline std::string foreign_header(std::span<const std::byte> block,
                                                std::string_view key, std::string_view extension,
                                                std::uint64_t size) {
  const tar_header header{block};
  if (!header.sum_is_right()) return "no header, or a damaged one";
  if (header.type() != '0' && header.type() != '7') return "the header of what is no file";
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

/// A piece of an archive in memory, which follows what is asked for. Headers that lie close to each
/// other come with one read; where they lie far apart, little is read in vain.
template <archive_bytes Source>
class archive_window {
 public:
  /// Reads from `source`, which must outlive it.
  explicit archive_window(const Source& source)
      : source_(&source), memory_(std::make_unique_for_overwrite<std::byte[]>(longest)) {}

  /// `count` bytes at `offset`, at most `longest`, fewer only at the archive's end. Valid until the
  /// next call.
  [[nodiscard]] std::span<const std::byte> at(std::uint64_t offset, std::size_t count) {
    const bool is_close = offset >= begin_ && offset <= begin_ + filled_;
    if (!is_close || begin_ + filled_ - offset < count) {
      length_ = is_close ? (std::min)(2 * length_, longest) : shortest;
      begin_ = offset;
      filled_ = 0;  // should reading throw
      filled_ = source_->read_at(offset, {memory_.get(), (std::max)(length_, count)});
    }
    const auto skipped = static_cast<std::size_t>(offset - begin_);
    return {memory_.get() + skipped, (std::min)(count, filled_ - skipped)};
  }

  /// The most bytes that one call gives.
  static constexpr std::size_t longest = std::size_t{1} << 18;

 private:
  // A label, the header after it, and some more.
  static constexpr std::size_t shortest = 4096;

  const Source* source_;
  std::unique_ptr<std::byte[]> memory_;
  std::uint64_t begin_ = 0;
  std::size_t filled_ = 0;
  std::size_t length_ = shortest;
};

/// What an extended header of POSIX's pax format says about the members after it, as far as it
/// matters for their bytes.
struct pax_records {
  std::optional<std::string> path;    ///< in place of the header's
  std::optional<std::uint64_t> size;  ///< bytes, in place of the header's
  bool is_sparse = false;             ///< holes are left out, in one of GNU's ways

  /// Takes the records of `text` over: "LENGTH KEY=VALUE\n", where the length counts all of it and
  /// an empty value takes an earlier one back. Returns the place in `text` where there is no
  /// record, and what should be there in `expected`; or `std::string_view::npos`.
  [[nodiscard]] std::size_t read(std::string_view text, std::string_view& expected) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      std::string_view record = text.substr(begin);
      const std::size_t digits = (std::min)(record.find(' '), record.size());
      const auto length = whole_number<std::size_t>(record.substr(0, digits));
      expected = "a record of an extended header, 'LENGTH KEY=VALUE' and a line end";
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
  // What the value should be; "" if it is that.
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
  std::string_view name = {};  ///< its path, until the next member is asked for
  std::uint64_t begin = 0;     ///< where its bytes start, which is one block after its own header
  std::uint64_t size = 0;      ///< bytes
  bool is_file = false;        ///< a regular one
  bool is_link = false;        ///< a hard or a symbolic one
  /// Whether `foreign_header` has nothing against its own header: an extended header does not
  /// contradict it where it could have said the same.
  bool is_usual = true;
};

/// The members of a tar archive, one after the other: ustar, GNU's long names and binary sizes, and
/// pax's extended headers. Single-use.
template <archive_bytes Source>
class tar_walk {
 public:
  /// Starts at byte `from`, where a header is. Refers to `source`.
  explicit tar_walk(const Source& source, std::uint64_t from = 0)
      : source_(&source), window_(source), offset_(from) {}

  /// Goes to the next member; false at the end of the archive. Throws `file_truncated` where the
  /// file ends before the archive does, `file_corrupt` for a header that is none, and
  /// `file_format_error` for what is no tar archive, has holes left out, gives all members one path
  /// by a global header, or goes on after its end.
  [[nodiscard]] bool next() {
    std::string said;  // by the extended headers of the member itself
    std::string long_name;
    bool is_announced = false;             // by an extended header of its own
    for (int extended = 0;; ++extended) {  // headers before the member's
      const std::uint64_t at = offset_;
      const tar_header header = read_header();
      if (header.is_zero()) {
        if (is_announced) corrupt(at, "the member that the extended header before is about");
        require_end();
        return false;
      }
      if (!header.sum_is_right()) refuse_header(at);
      const auto stated = header.size();
      if (!stated) corrupt(at + 124, "the size of a member", "no number");
      const char type = header.type();
      offset_ = at + tar_block;
      if (std::string_view{"xXgLK"}.find(type) == std::string_view::npos) {
        // What is said of the member itself counts before what is said of all.
        pax_records own = all_after_;
        std::string_view none;
        static_cast<void>(own.read(said, none));
        take(header, at, type, *stated, own, long_name);
        return true;
      }
      if (extended == most_extended) {
        corrupt(at,
                "at most " + std::to_string(most_extended) + " extended headers before a member",
                "more");
      }
      if (type == 'x' || type == 'X') {
        pax_records read_now;
        said += read_records(read_now, *stated);
        is_announced = true;
      } else if (type == 'L') {
        long_name = text_of(*stated);
        long_name.resize((std::min)(long_name.find('\0'), long_name.size()));
        is_announced = true;
      } else if (type == 'g') {
        read_records(all_after_, *stated);
        if (all_after_.path) {
          throw file_format_error(source_->path(), at, "a global header without a path",
                                  "a path of all members after it: pack the files anew");
        }
      } else {  // a long link, which leads nowhere here
        skip(*stated, "a long link");
      }
    }
  }

  /// The member that `next` went to.
  [[nodiscard]] const tar_member& member() const noexcept { return member_; }

 private:
  static constexpr std::uint64_t longest_text = std::uint64_t{1} << 20;
  static constexpr int most_extended = 32;  // headers before a member: more than programs write

  [[noreturn]] void corrupt(std::uint64_t at, const std::string& expected,
                            const std::string& found = "the end of the archive") const {
    throw file_corrupt(source_->path(), at, expected,
                       found + ": the archive is damaged, get or write it anew");
  }

  [[nodiscard]] tar_header read_header() {
    const auto block = window_.at(offset_, tar_block);
    if (block.size() < tar_block) {
      throw file_truncated(
          source_->path(), (std::min)(offset_ + block.size(), std::uint64_t{source_->size()}),
          offset_ == 0 ? "a tar archive"
                       : "a header, or the two blocks of zeros that end an archive",
          "the end of the file: it was cut off, or its writer never closed it; if nothing is "
          "missing, truncate -s +1024 adds the end");
    }
    return tar_header{block};
  }

  // A block that should be a header and is none.
  [[noreturn]] void refuse_header(std::uint64_t at) {
    if (at != 0) corrupt(at, "a header whose checksum is right", "another block");
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
        {"PK\x03\x04", "a zip file: unpack it, and pack it by tar"},
    };
    const auto block = window_.at(0, tar_block);
    const std::string_view text{reinterpret_cast<const char*>(block.data()), block.size()};
    for (const kind& one : kinds) {
      if (text.starts_with(one.magic)) {
        throw file_format_error(source_->path(), 0, "a tar archive", std::string{one.found});
      }
    }
    throw file_format_error(source_->path(), 0, "a tar archive",
                            "a first block whose checksum is not that of a tar header");
  }

  // `size` bytes at the place, which are left behind; they have to be there.
  void skip(std::uint64_t size, const std::string& what) {
    const std::uint64_t total = source_->size();
    if (size > total || offset_ > total - size) {
      throw file_truncated(source_->path(), total,
                           std::to_string(size) + " bytes of " + what + " from byte " +
                               std::to_string(offset_) + " on",
                           "the end of the file: get or write it anew");
    }
    offset_ += (size + tar_block - 1) / tar_block * tar_block;
  }

  // The text of an extended header.
  [[nodiscard]] std::string text_of(std::uint64_t size) {
    if (size > longest_text) {
      corrupt(offset_, "an extended header of at most " + std::to_string(longest_text) + " bytes",
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
                              "a sparse one, whose holes are left out: pack it without --sparse");
    }
    name_ = header.prefix();
    if (!name_.empty()) name_ += '/';
    name_ += header.name();
    member_ = {};
    if (!long_name.empty() || records.path) {
      std::string& said = long_name;
      if (records.path) said = *records.path;
      member_.is_usual = said == name_ || !is_plain_tar_name(said);
      name_.swap(said);
    }
    member_.name = name_;
    member_.begin = offset_;
    // Links, devices and folders have no bytes, whatever is stated.
    if (type < '1' || type > '6') {
      member_.size = records.size.value_or(stated);
      member_.is_usual =
          member_.is_usual && (member_.size == stated || member_.size >= tar_octal_end);
      skip(member_.size, "'" + name_ + "'");
    }
    member_.is_file = type == '0' || type == '7';
    member_.is_link = type == '1' || type == '2';
  }

  // After the first block of zeros come zeros: another archive there would be lost.
  void require_end() {
    while (true) {
      const auto rest = window_.at(offset_, window_.longest);
      if (rest.empty()) return;
      const auto other = std::find_if(rest.begin(), rest.end(),
                                      [](std::byte byte) { return byte != std::byte{0}; });
      offset_ += static_cast<std::uint64_t>(other - rest.begin());
      if (other == rest.end()) continue;
      throw file_format_error(source_->path(), offset_, "zeros after the end of the archive",
                              "other bytes: two archives in one file? Name each by itself");
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
