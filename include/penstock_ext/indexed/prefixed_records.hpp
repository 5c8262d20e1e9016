// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/indexed/sample_index.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The data of a record in a file of `prefixed_records`.
using prefixed_record = record<field<"bytes", std::uint8_t, ragged>>;

/// The layout of a file of records that contain their length. A record consists of `before` bytes,
/// its length, `between` bytes, its data, and `after` bytes. The default is a length of 4 bytes,
/// little-endian, followed by the data.
struct prefixed_layout {
  std::uint64_t file_header = 0;  ///< bytes before the first record
  std::uint64_t before = 0;       ///< bytes of a record before its length, such as a magic number
  std::size_t length_bytes = 4;   ///< size of the length: 1, 2, 4 or 8
  bool is_big_endian = false;     ///< byte order of the length
  std::uint64_t unit = 1;         ///< bytes of data for each unit of the length, at least 1
  std::uint64_t between = 0;      ///< bytes between the length and the data, such as a checksum
  std::uint64_t after = 0;        ///< bytes of a record after its data, such as a checksum
  /// Each record is followed by unused bytes up to a multiple of this number of bytes, counted from
  /// the end of the file header. At least 1. The last record may end without them.
  std::uint64_t alignment = 1;
};

namespace detail {

/// The records of a file as samples. The index has the position of every record.
struct prefixed_format {
  static constexpr std::uint64_t step = 1;

  prefixed_layout layout;

  /// Returns a number that identifies the layout.
  [[nodiscard]] std::uint64_t number() const noexcept {
    word_hash hash;
    for (const std::uint64_t word :
         {layout.file_header, layout.before, std::uint64_t{layout.length_bytes},
          std::uint64_t{layout.is_big_endian}, layout.unit, layout.between, layout.after,
          layout.alignment}) {
      hash.add(word);
    }
    return hash.value() | std::uint64_t{1} << 63;  // other formats have small numbers
  }

  /// Returns the data of the record at the start of `bytes`. Throws `file_truncated` if the record
  /// exceeds `bytes`. `path` and the file offset `at` of the record are used in messages.
  [[nodiscard]] std::span<const std::byte> data_of(std::span<const std::byte> bytes,
                                                   const std::string& path,
                                                   std::uint64_t at) const {
    const auto require = [&](bool is_whole) {
      if (is_whole) return;
      throw file_truncated(path, at + bytes.size(),
                           "a whole record, which starts at byte " + std::to_string(at),
                           "the end of the file: it is truncated, or has another layout");
    };
    const std::uint64_t begin = layout.before + layout.length_bytes + layout.between;
    require(begin <= bytes.size());
    const auto prefix = bytes.subspan(static_cast<std::size_t>(layout.before), layout.length_bytes);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < prefix.size(); ++i) {
      const std::size_t from = layout.is_big_endian ? i : prefix.size() - 1 - i;
      length = length << 8U | std::to_integer<std::uint64_t>(prefix[from]);
    }
    if (__builtin_mul_overflow(length, layout.unit, &length)) length = ~std::uint64_t{0};
    const std::uint64_t rest = bytes.size() - begin;
    require(layout.after <= rest && length <= rest - layout.after);
    return bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
  }

  /// Finds the records of `data`, one after the other. Throws `file_truncated` if the last record
  /// is not complete, or if the file is shorter than its header. Throws `file_format_error` instead
  /// if the file starts like a known other format.
  template <class Report>
  [[nodiscard]] found_samples scan(const mapped_file& data, std::size_t,
                                   const Report& report) const {
    const auto all = data.bytes();
    const auto next = [&](std::uint64_t& at) {
      const auto bytes = data_of(all.subspan(static_cast<std::size_t>(at)), data.path(), at);
      const auto end =
          static_cast<std::uint64_t>(bytes.data() - all.data()) + bytes.size() + layout.after;
      const std::uint64_t unused = (end - layout.file_header) % layout.alignment;
      const std::uint64_t gap = unused == 0 ? 0 : layout.alignment - unused;
      at = gap > all.size() - end ? all.size() : end + gap;
      return bytes.size();
    };
    return scan_records(data, "records in the layout", layout.file_header, next, report);
  }
};

/// A file of prefixed records with its index. Movable. Reading is thread-safe.
class indexed_records : public indexed_file<prefixed_format> {
 public:
  indexed_records(mapped_file data, sample_index index, const prefixed_layout& layout)
      : indexed_file<prefixed_format>(std::move(data), std::move(index)), format_{layout} {}

 protected:
  /// Returns the data of record `index`, which must be less than size(). Throws `file_truncated`
  /// and `file_corrupt` if the index contradicts the file.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index) const {
    const auto all = group(index);
    const auto at = static_cast<std::uint64_t>(all.data() - data().bytes().data());
    const auto found = format_.data_of(all, data().path(), at);
    if (found.size() > longest()) fail_to_find(index);
    return found;
  }

 private:
  prefixed_format format_;
};

/// A file of `prefixed_records`.
using prefixed_file = byte_samples<indexed_records, prefixed_record>;

/// Returns the format of `layout`. Throws `option_error` if the layout is invalid.
[[nodiscard]] inline prefixed_format checked_format(const prefixed_layout& layout) {
  if (!std::has_single_bit(layout.length_bytes) || layout.length_bytes > 8) {
    throw_option_error("length_bytes", {"must be 1, 2, 4 or 8, but is ", layout.length_bytes});
  }
  const auto require = [](const char* option, std::uint64_t value, std::uint64_t least) {
    constexpr std::uint64_t limit = std::uint64_t{1} << 40;
    if (value >= least && value <= limit) return;
    throw_option_error(option, {"must be in ", least, "..2^40, but is ", value});
  };
  require("file_header", layout.file_header, 0);
  require("before", layout.before, 0);
  require("unit", layout.unit, 1);
  require("between", layout.between, 0);
  require("after", layout.after, 0);
  require("alignment", layout.alignment, 1);
  return {layout};
}

}  // namespace detail

/// A dataset of the records of files in which each record contains its length. `prefixed_layout`
/// describes the files:
///
///     // A magic number of 4 bytes, a big-endian length of 8 bytes, the data, and a CRC of 4 bytes.
///     const ps::prefixed_records events{
///         ps::glob("run-*.bin"),
///         {.before = 4, .length_bytes = 8, .is_big_endian = true, .after = 4}};
///
/// A sample is the data of a record as ragged bytes; `map` decodes it. Bytes around the data are
/// skipped and not checked, so a file with another layout is detected only if a record exceeds the
/// file. Each file has an index with 8 bytes for each record. A single thread builds it (see
/// `index_options`). Another layout makes an index stale.
///
/// Data files are memory-mapped and must not change while they are open. The sample origin
/// (`origin_of`) contains the file and the record, counted from 0. Movable, not copyable. Reading
/// is thread-safe.
class prefixed_records : public detail::concat_dataset<detail::part_list<detail::prefixed_file>> {
 public:
  /// Opens the files at `paths`, and builds missing and stale indexes. Throws the errors of
  /// `text_lines`, `file_truncated` if a record or the header exceeds its file, and `option_error`
  /// if the layout is invalid. Throws `file_format_error` if a record exceeds a compressed file.
  explicit prefixed_records(const std::vector<std::string>& paths,
                            const prefixed_layout& layout = {}, const index_options& options = {})
      : concat_dataset(detail::opened_parts<detail::prefixed_file>(
                           paths, options, detail::checked_format(layout), layout),
                       "prefixed_records") {}
};

static_assert(dataset<prefixed_records>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
