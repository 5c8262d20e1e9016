// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A field's values of all samples: one row a sample, at any address, aligned or not.
struct mapped_field {
  const std::byte* first = nullptr;  ///< the row of sample 0
  std::uint64_t stride = 0;          ///< bytes from a row to the next; rows may overlap
  bool is_swapped = false;           ///< whether the elements are in the other byte order
};

/// The samples of mapped files, copied row by row: the base of datasets that own the files. Reading
/// is thread-safe.
template <record_type Record>
class mapped_rows {
  static_assert(Record::ragged_fields == 0,
                "penstock::npy_dataset, raw_records: the rows of a file have one length: write a "
                "dataset of your own for a ragged field, see docs/ragged.md");

 public:
  /// `size` samples, whose rows are all mapped, of the dataset `name`, for messages.
  mapped_rows(const char* name, const batch_layout<Record>& layout, std::uint64_t size,
              const std::array<mapped_field, Record::size>& fields)
      : name_(name), layout_(layout), size_(size), fields_(fields) {}

  /// How many samples there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The extents of a sample's fields.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }

  /// Copies the samples `indices` into `out`. Throws `index_error`.
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

  /// Brings the sample nearer; does nothing for an index out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size_) return;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (prefetch_row(row(Is, index), layout_.template sample_bytes<Is>()), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// Has the system read the samples that it does not have in memory; those out of range are left
  /// alone.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (read_rows_soon<Is>(indices), ...);
    }(std::make_index_sequence<Record::size>{});
  }
  /// The bytes of a sample in the files.
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
    if constexpr (std::is_same_v<value_type, bool>) {  // which has two values, and a file any
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
}  // namespace PENSTOCK_ABI
}  // namespace penstock
