// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
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
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A label of a row of a CIFAR file.
struct cifar_label {
  const char* name;
  std::uint8_t classes;
};

inline constexpr std::size_t cifar_image_bytes = std::size_t{3} * 32 * 32;

/// What a CIFAR file is, found out by its first bytes, where it is not one: with what to do, after
/// a comma; else "".
[[nodiscard]] inline std::string_view foreign_to_cifar(std::span<const std::byte> bytes) noexcept {
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  if (text.starts_with("\x1f\x8b")) return ", a gzip file: unpack it by tar -xzf";
  if (text.size() > 262 && text.substr(257, 5) == "ustar") return ", a tar file: unpack it";
  if (text.starts_with("\x80\x02") || text.starts_with("\x80\x03")) {
    return ", a pickle of Python: take the binary version of the data set";
  }
  return {};
}

/// Reads a file of CIFAR's binary version: rows of a byte for each of `labels` and an image. Throws
/// `file_truncated` where it ends within a row or has none, `file_format_error` for a label that no
/// class has, and what the source throws. Takes no more memory than what the file holds and a
/// mebibyte, unless it grows meanwhile.
template <byte_source Source>
[[nodiscard]] std::vector<std::byte> read_cifar(Source& source,
                                                std::span<const cifar_label> labels) {
  std::vector<std::byte> bytes;
  append_bytes(source, bytes, source.available());
  std::byte next{};
  if (source.read({&next, 1}) != 0) {  // the source did not know how much there was
    bytes.push_back(next);
    append_bytes(source, bytes, (std::numeric_limits<std::uint64_t>::max)());
  }
  const std::size_t row = labels.size() + cifar_image_bytes;
  const std::string foreign{foreign_to_cifar(bytes)};
  if (bytes.empty() || bytes.size() % row != 0) {
    throw file_truncated(
        source.path(), bytes.size(), "the end of a row of " + std::to_string(row) + " bytes",
        "the end of the file" +
            (bytes.empty()
                 ? ", which is empty"
                 : ", " + std::to_string(bytes.size() % row) + " bytes after the last whole row") +
            foreign);
  }
  for (std::size_t begin = 0; begin < bytes.size(); begin += row) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const auto found = std::to_integer<unsigned>(bytes[begin + i]);
      if (found < labels[i].classes) continue;
      throw file_format_error(
          source.path(), begin + i,
          std::string{labels[i].name} + " below " + std::to_string(unsigned{labels[i].classes}),
          std::to_string(found) + foreign);
    }
  }
  return bytes;
}

}  // namespace detail

/// A sample of CIFAR-10: red, green and blue of 32 rows of 32 pixels, and one of ten classes.
using cifar10_record =
    record<field<"image", std::uint8_t, 3, 32, 32>, field<"label", std::uint8_t>>;

/// A sample of CIFAR-100: as one of CIFAR-10, with one of a hundred classes, and one of the twenty
/// that those are sorted into.
using cifar100_record = record<field<"image", std::uint8_t, 3, 32, 32>,
                               field<"label", std::uint8_t>, field<"coarse_label", std::uint8_t>>;

/// A dataset out of files of the binary version of CIFAR-10 or CIFAR-100, read into memory by the
/// constructor, one after the other:
///
///     cifar_dataset train{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
///                         "data_batch_4.bin", "data_batch_5.bin"};
///     cifar_dataset<cifar100_record> test{"test.bin"};
///
/// The files are those of the archive unpacked. Their names do not matter. Movable, not copyable.
/// Reading is thread-safe.
template <penstock::record_type Record = cifar10_record>
class cifar_dataset {
  static_assert(std::is_same_v<Record, cifar10_record> || std::is_same_v<Record, cifar100_record>,
                "penstock::cifar_dataset: the record is cifar10_record or cifar100_record");

 public:
  using record_type = Record;

  /// Throws, for each file in turn, `file_unreadable`, `file_truncated` where it is no whole number
  /// of rows, one or more, and `file_format_error` for a label that no class has.
  template <std::convertible_to<std::string>... Paths>
    requires(sizeof...(Paths) > 0)
  explicit cifar_dataset(Paths&&... paths)
      : cifar_dataset(std::vector<std::string>{std::string(std::forward<Paths>(paths))...}) {}

  /// The samples of any number of files, one after the other.
  explicit cifar_dataset(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      file_source source{path};
      files_.push_back(detail::read_cifar(source, labels));
      ends_.push_back(size() + files_.back().size() / row_bytes);
    }
  }

  cifar_dataset(cifar_dataset&&) = default;
  cifar_dataset& operator=(cifar_dataset&&) = default;

  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }

  /// Copies the samples `indices` into `out`. Throws `index_error`.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    detail::copy_rows(*this, batch_layout<Record>{lengths_, 1}, indices, out, context);
  }

  /// The sample where it lies. Throws `index_error`.
  [[nodiscard]] const_sample<Record> view(std::uint64_t index) const {
    if (index >= size()) throw index_error("cifar_dataset", index, size());
    const std::byte* const row = row_of(index);
    std::array<const std::byte*, Record::size> fields{row + labels.size()};
    // The file has the coarse label first, the record has it last.
    for (std::size_t f = 1; f < fields.size(); ++f) fields[f] = row + (labels.size() - f);
    return {fields, lengths_};
  }

  /// Brings the sample nearer; does nothing for an index out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size()) detail::prefetch_row(row_of(index), row_bytes);
  }

 private:
  // In the file's order.
  static constexpr auto labels = [] {
    if constexpr (Record::size == 2) {
      return std::array{detail::cifar_label{"a label", 10}};
    } else {
      return std::array{detail::cifar_label{"a coarse label", 20},
                        detail::cifar_label{"a label", 100}};
    }
  }();
  static constexpr std::size_t row_bytes = labels.size() + detail::cifar_image_bytes;

  [[nodiscard]] const std::byte* row_of(std::uint64_t index) const noexcept {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto file = static_cast<std::size_t>(end - ends_.begin());
    const std::uint64_t first = file == 0 ? 0 : ends_[file - 1];
    return files_[file].data() + static_cast<std::size_t>(index - first) * row_bytes;
  }

  std::vector<std::vector<std::byte>> files_;
  std::vector<std::uint64_t> ends_;  // of the files, in samples, from the first file's start
  [[no_unique_address]] record_extents<Record> lengths_;
};

static_assert(dataset<cifar_dataset<>> && dataset<cifar_dataset<cifar100_record>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
