// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/data/run_context.hpp>
#include <penstock_ext/files/detail/cifar_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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
  void read_run(std::span<const std::uint64_t> indices, batch_view<Record> out,
                const run_context& context) const {
    const std::size_t count = indices.size();
    constexpr std::size_t ahead = detail::prefetch_distance;
    for (std::size_t i = 0; i < (std::min)(ahead, count); ++i) prefetch(indices[i]);
    for (std::size_t i = 0; i < count; ++i) {
      context.at(i);
      if (i + ahead < count) prefetch(indices[i + ahead]);
      const auto in = view(indices[i]);
      const auto place = out[i];
      std::memcpy(place.address(0), in.address(0), detail::cifar_image_bytes);
      for (std::size_t f = 1; f < Record::size; ++f) *place.address(f) = *in.address(f);
    }
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
