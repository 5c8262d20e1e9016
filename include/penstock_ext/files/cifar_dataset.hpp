// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A label column in a CIFAR file.
struct cifar_label {
  const char* name;
  std::uint8_t classes;
};

inline constexpr std::size_t cifar_image_bytes = std::size_t{3} * 32 * 32;

/// Reads a CIFAR file in binary format. A row consists of one byte for each element of `labels`,
/// followed by the image. Throws `file_truncated` if the file has no row or ends within a row.
/// Throws `file_format_error` if a label is out of range or the file has another known format. Also
/// throws errors from the source. Allocates at most the file size plus 1 MiB, unless the file grows
/// during the call.
template <byte_source Source>
[[nodiscard]] std::vector<std::byte> read_cifar(Source& source,
                                                std::span<const cifar_label> labels) {
  std::vector<std::byte> bytes;
  append_bytes(source, bytes, source.available());
  std::byte next{};
  if (source.read({&next, 1}) != 0) {  // the source did not report the size
    bytes.push_back(next);
    append_bytes(source, bytes, (std::numeric_limits<std::uint64_t>::max)());
  }
  const std::size_t row = labels.size() + cifar_image_bytes;
  // Called only after the file has been found to be invalid, so that a valid file is never rejected
  // because of its first bytes.
  const auto require_no_foreign = [&] {
    const std::string foreign = foreign_text(bytes);
    if (foreign.empty()) return;
    throw file_format_error(source.path(), 0, "rows of the binary version of CIFAR", foreign);
  };
  if (bytes.empty() || bytes.size() % row != 0) {
    require_no_foreign();
    throw file_truncated(
        source.path(), bytes.size(), "the end of a row of " + std::to_string(row) + " bytes",
        "the end of the file" + (bytes.empty() ? ", which is empty"
                                               : ", " + std::to_string(bytes.size() % row) +
                                                     " bytes after the last whole row"));
  }
  for (std::size_t begin = 0; begin < bytes.size(); begin += row) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto found = std::to_integer<unsigned>(bytes[begin + i]);
      if (found < labels[i].classes) continue;
      require_no_foreign();
      throw file_format_error(
          source.path(), begin + i,
          std::string{labels[i].name} + " below " + std::to_string(unsigned{labels[i].classes}),
          std::to_string(found));
    }
  }
  return bytes;
}

}  // namespace detail

/// A CIFAR-10 sample: an image of 32 x 32 pixels in red, green and blue planes, and one of ten
/// classes.
using cifar10_record =
    record<field<"image", std::uint8_t, 3, 32, 32>, field<"label", std::uint8_t>>;

/// A CIFAR-100 sample: an image as in CIFAR-10, its class (0 to 99), and its coarse class (0 to
/// 19).
using cifar100_record = record<field<"image", std::uint8_t, 3, 32, 32>,
                               field<"label", std::uint8_t>, field<"coarse_label", std::uint8_t>>;

/// A dataset of CIFAR-10 or CIFAR-100 files in binary format. The constructor reads all files into
/// memory, one after another:
///
///     cifar_dataset train{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
///                         "data_batch_4.bin", "data_batch_5.bin"};
///     cifar_dataset<cifar100_record> test{"test.bin"};
///
/// Files from the unpacked archive may have any name. Movable, not copyable. Reading is
/// thread-safe.
template <penstock::record_type Record = cifar10_record>
class cifar_dataset {
  static_assert(std::is_same_v<Record, cifar10_record> || std::is_same_v<Record, cifar100_record>,
                "penstock::cifar_dataset: the record is cifar10_record or cifar100_record");

 public:
  using record_type = Record;

  /// Reads the files `paths`. Throws for the first faulty file:
  /// - `duplicate_entry` if the file was already listed
  /// - `file_unreadable` if the file cannot be read
  /// - `file_truncated` if the file is empty or ends within a row
  /// - `file_format_error` if a label is out of range
  template <std::convertible_to<std::string>... Paths>
    requires(sizeof...(Paths) > 0)
  explicit cifar_dataset(Paths&&... paths)
      : cifar_dataset(std::vector<std::string>{std::string(std::forward<Paths>(paths))...}) {}

  /// Reads any number of files. Throws the same errors as the constructor above.
  explicit cifar_dataset(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      require_new(path, paths);
      file_source source{path};
      files_.push_back(detail::read_cifar(source, labels));
      ends_.push_back(size() + files_.back().size() / row_bytes);
    }
  }

  cifar_dataset(cifar_dataset&&) = default;
  cifar_dataset& operator=(cifar_dataset&&) = default;

  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  /// Copies the samples with the given `indices` into `out`. Throws `index_error` if an index is
  /// out of range.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    detail::copy_rows(*this, batch_layout<Record>{lengths_, 1}, indices, out, context);
  }

  /// Returns a view of a sample in the dataset's memory. Throws `index_error` if `index` is out of
  /// range.
  [[nodiscard]] const_sample<Record> view(std::uint64_t index) const {
    if (index >= size()) throw index_error("cifar_dataset", index, size());
    const std::byte* const row = row_of(index);
    std::array<const std::byte*, Record::size> fields{row + labels.size()};
    // The coarse label is first in the file, but last in the record.
    for (std::size_t f = 1; f < fields.size(); ++f) fields[f] = row + (labels.size() - f);
    return {fields, lengths_};
  }

  /// Prefetches a sample into the CPU cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size()) detail::prefetch_row(row_of(index), row_bytes);
  }

 private:
  // The labels, in file order.
  static constexpr auto labels = [] {
    if constexpr (Record::size == 2) {
      return std::array{detail::cifar_label{"a label", 10}};
    } else {
      return std::array{detail::cifar_label{"a coarse label", 20},
                        detail::cifar_label{"a label", 100}};
    }
  }();
  static constexpr std::size_t row_bytes = labels.size() + detail::cifar_image_bytes;

  // Throws `duplicate_entry` if an earlier path refers to the same file.
  static void require_new(const std::string& path, const std::vector<std::string>& paths) {
    for (const std::string& before : paths) {
      if (&before == &path) return;
      std::error_code unreadable;  // ignored here; opening the file reports the error
      if (!std::filesystem::equivalent(before, path, unreadable)) continue;
      throw duplicate_entry(path, 0, "each file", before, 0, "list it once");
    }
  }

  [[nodiscard]] const std::byte* row_of(std::uint64_t index) const noexcept {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto file = static_cast<std::size_t>(end - ends_.begin());
    const std::uint64_t first = file == 0 ? 0 : ends_[file - 1];
    return files_[file].data() + static_cast<std::size_t>(index - first) * row_bytes;
  }

  std::vector<std::vector<std::byte>> files_;
  std::vector<std::uint64_t> ends_;  // cumulative number of samples up to the end of each file
  [[no_unique_address]] record_extents<Record> lengths_;
};

static_assert(dataset<cifar_dataset<>> && dataset<cifar_dataset<cifar100_record>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
