// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The rows of a field, one for each sample. Rows may be unaligned.
struct mapped_field {
  const std::byte* first = nullptr;  ///< row of sample 0
  std::uint64_t stride = 0;          ///< Distance between consecutive rows in bytes. Rows may
                                     ///< overlap.
  bool is_swapped = false;           ///< true if the elements do not have native byte order
};

/// Returns the bytes after the header of the file `path` with the content `bytes`. Throws
/// `file_truncated` if the file is shorter than the header.
[[nodiscard]] inline std::span<const std::byte> bytes_after(std::uint64_t header,
                                                            std::span<const std::byte> bytes,
                                                            const std::string& path) {
  if (header <= bytes.size()) return bytes.subspan(static_cast<std::size_t>(header));
  throw file_truncated(path, bytes.size(), "a header of " + std::to_string(header) + " bytes",
                       "the end of the file");
}

/// Samples in memory-mapped files, copied row by row. A base class of datasets that own the files.
/// Reading is thread-safe.
template <record_type Record>
class mapped_rows {
  static_assert(Record::ragged_fields == 0,
                "penstock::npy_dataset, raw_records: all rows of a file have the same length: "
                "write your own dataset for a ragged field, see docs/ragged.md");

 public:
  /// Creates a view of `size` samples, whose rows must all be mapped. `name` is the dataset name in
  /// messages.
  mapped_rows(const char* name, const batch_layout<Record>& layout, std::uint64_t size,
              const std::array<mapped_field, Record::size>& fields)
      : name_(name), layout_(layout), size_(size), fields_(fields) {}

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Returns the field extents.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }

  /// Copies the samples with the given `indices` into `out`. Throws `index_error` if an index is
  /// out of range.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    const std::size_t count = indices.size();
    for (std::size_t i = 0; i < (std::min)(prefetch_distance, count); ++i) prefetch(indices[i]);
    for (std::size_t i = 0; i < count; ++i) {
      context.at(i);
      if (i + prefetch_distance < count) prefetch(indices[i + prefetch_distance]);
      if (indices[i] >= size_) throw index_error(name_, indices[i], size_);
      const auto place = out[i];
      [&]<std::size_t... Is>(std::index_sequence<Is...>) {
        (copy<Is>(indices[i], place.address(Is)), ...);
      }(std::make_index_sequence<Record::size>{});
    }
  }

  /// Prefetches a sample into the CPU cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size_) return;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (prefetch_row(row(Is, index), layout_.template sample_bytes<Is>()), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// Starts background reads of samples that are not in the page cache. Ignores indices out of
  /// range.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (read_rows_soon<Is>(indices), ...);
    }(std::make_index_sequence<Record::size>{});
  }
  /// Returns the size of a sample in the files, in bytes.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t = 0) const noexcept {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return (std::uint64_t{layout_.template sample_bytes<Is>()} + ...);
    }(std::make_index_sequence<Record::size>{});
  }

 private:
  template <std::size_t Index>
  void read_rows_soon(std::span<const std::uint64_t> indices) const noexcept {
    read_soon pages;
    for (const std::uint64_t index : indices) {
      if (index < size_) pages.add(row(Index, index), layout_.template sample_bytes<Index>());
    }
  }

  [[nodiscard]] const std::byte* row(std::size_t field, std::uint64_t index) const noexcept {
    return fields_[field].first + index * fields_[field].stride;
  }

  template <std::size_t Index>
  void copy(std::uint64_t index, std::byte* place) const noexcept {
    using value_type = typename Record::template field_at<Index>::value_type;
    const std::size_t bytes = layout_.template sample_bytes<Index>();
    std::memcpy(place, row(Index, index), bytes);
    if constexpr (std::is_same_v<value_type, bool>) {  // a byte in a file may have any value
      for (std::size_t i = 0; i < bytes; ++i) place[i] = std::byte{place[i] != std::byte{0}};
    }
    if (fields_[Index].is_swapped) swap_bytes<sizeof(value_type)>({place, bytes});
  }

  const char* name_;
  batch_layout<Record> layout_;
  std::uint64_t size_;
  std::array<mapped_field, Record::size> fields_;
};

}  // namespace detail

/// Layout of a `raw_records` file.
struct raw_records_options {
  /// Number of bytes to skip before the first record.
  std::uint64_t header = 0;
  /// Number of bytes to skip after each record, such as padding.
  std::uint64_t gap = 0;
  /// If true, rejects a file that starts like a known format, such as npy, gzip or Parquet.
  bool check_format = true;
};

/// A dataset of a file with fixed-size records. A record contains the fields of a sample
/// consecutively, in native byte order and without padding:
///
///     using point = record<field<"position", float, 3>, field<"class", std::uint8_t>>;
///     raw_records<point> points{"points.bin", {.header = 512}};             // 13 bytes each
///
/// The file is memory-mapped and must not change while it is open (see `npy_dataset`). Movable, not
/// copyable. Reading is thread-safe.
template <penstock::record_type Record>
class raw_records : public detail::mapped_rows<Record> {
 public:
  using record_type = Record;

  /// Opens the file `path`, whose records have the extents `lengths`. Throws `file_unreadable` if
  /// the file cannot be mapped, `file_format_error` if `check_format` is true and the file has a
  /// known format, `file_truncated` if it contains no record or ends within a record, and
  /// `layout_error` if an extent is 0.
  raw_records(const std::string& path, const record_extents<Record>& lengths,
              const raw_records_options& options = {})
      : raw_records(mapped_file{path}, batch_layout<Record>{lengths, 1}, options) {}

  /// Opens a file of records without dynamic extents. Throws the same errors as the constructor
  /// above.
  explicit raw_records(const std::string& path, const raw_records_options& options = {})
    requires(!Record::has_dynamic_extents)
      : raw_records(path, record_extents<Record>{}, options) {}

  raw_records(raw_records&&) = default;
  raw_records& operator=(raw_records&&) = delete;

 private:
  raw_records(mapped_file file, const batch_layout<Record>& layout,
              const raw_records_options& options)
      : detail::mapped_rows<Record>(rows_of(file, layout, options)), file_(std::move(file)) {}

  [[nodiscard]] static detail::mapped_rows<Record> rows_of(const mapped_file& file,
                                                           const batch_layout<Record>& layout,
                                                           const raw_records_options& options) {
    if (options.check_format)
      detail::throw_foreign_format(file.bytes(), file.path(), "raw records", options.header);
    const auto records = detail::bytes_after(options.header, file.bytes(), file.path());
    const std::uint64_t left = records.size();
    std::uint64_t stride = 0;
    const bool wraps = __builtin_add_overflow(layout.sample_bytes(), options.gap, &stride);
    if (wraps || left % stride != 0 || left == 0) {
      const std::uint64_t rest = wraps ? left : left % stride;
      throw file_truncated(
          file.path(), file.bytes().size(),
          "records of " + std::to_string(layout.sample_bytes()) + " bytes" +
              (options.gap == 0 ? "" : " with a gap of " + std::to_string(options.gap)) +
              " after a header of " + std::to_string(options.header),
          left == 0 ? "the end of the file, which has no record"
                    : "the end of the file, " + std::to_string(rest) +
                          " bytes after the last whole record");
    }
    std::array<detail::mapped_field, Record::size> fields{};
    const std::byte* at = records.data();
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      ((fields[Is] = {at, stride, false}, at += layout.template sample_bytes<Is>()), ...);
    }(std::make_index_sequence<Record::size>{});
    return {"raw_records", layout, left / stride, fields};
  }

  mapped_file file_;
};

static_assert(dataset<raw_records<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
