// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/mapped_rows.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How a file of `raw_records` is laid out.
struct raw_records_options {
  /// Bytes before the first record, which are left out.
  std::uint64_t header = 0;
  /// Bytes after each record, which are left out: filling up to a round length, for instance.
  std::uint64_t gap = 0;
};

/// A dataset out of a file of records of one length: the fields of a sample one after the other, in
/// the record's order, in this machine's byte order, without anything between them.
///
///     using point = record<field<"position", float, 3>, field<"class", std::uint8_t>>;
///     raw_records<point> points{"points.bin", {.header = 512}};             // 13 bytes a record
///
/// The file is mapped and not read, and must stay as it is meanwhile, see `npy_dataset`. Movable,
/// not copyable. Reading is thread-safe.
template <penstock::record_type Record>
class raw_records : public detail::mapped_rows<Record> {
 public:
  using record_type = Record;

  /// Opens the file `path` of records with these extents. Throws `file_unreadable`,
  /// `file_truncated` where the file is shorter than its header or ends within a record, and
  /// `layout_error` on an extent of 0.
  raw_records(const std::string& path, const record_extents<Record>& lengths,
              const raw_records_options& options = {})
      : raw_records(detail::mapped_file{path}, batch_layout<Record>{lengths, 1}, options) {}

  /// For a record without dynamic extents.
  explicit raw_records(const std::string& path, const raw_records_options& options = {})
    requires(!Record::has_dynamic_extents)
      : raw_records(path, record_extents<Record>{}, options) {}

  raw_records(raw_records&&) = default;
  raw_records& operator=(raw_records&&) = delete;

 private:
  raw_records(detail::mapped_file file, const batch_layout<Record>& layout,
              const raw_records_options& options)
      : detail::mapped_rows<Record>(rows_of(file, layout, options)), file_(std::move(file)) {}

  [[nodiscard]] static detail::mapped_rows<Record> rows_of(const detail::mapped_file& file,
                                                           const batch_layout<Record>& layout,
                                                           const raw_records_options& options) {
    const std::uint64_t total = file.bytes().size();
    if (options.header > total) {
      throw file_truncated(file.path(), total,
                           "a header of " + std::to_string(options.header) + " bytes",
                           "the end of the file");
    }
    std::uint64_t stride = 0;
    const std::uint64_t left = total - options.header;
    const bool wraps = __builtin_add_overflow(layout.sample_bytes(), options.gap, &stride);
    if (wraps || left % stride != 0) {
      const std::uint64_t rest = wraps ? left : left % stride;
      throw file_truncated(
          file.path(), total,
          "records of " + std::to_string(layout.sample_bytes()) + " bytes" +
              (options.gap == 0 ? "" : " with a gap of " + std::to_string(options.gap)) +
              " after a header of " + std::to_string(options.header),
          "the end of the file, " + std::to_string(rest) + " bytes after the last whole record");
    }
    std::array<detail::mapped_field, Record::size> fields{};
    if (left != 0) {  // else there is no address to count from
      const std::byte* at = file.bytes().data() + options.header;
      [&]<std::size_t... Is>(std::index_sequence<Is...>) {
        ((fields[Is] = {at, stride, false}, at += layout.template sample_bytes<Is>()), ...);
      }(std::make_index_sequence<Record::size>{});
    }
    return {"raw_records", layout, left / stride, fields};
  }

  detail::mapped_file file_;
};

static_assert(dataset<raw_records<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
