// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if an array passed to `memory_dataset` has the wrong number of elements for the record,
/// the extents and the other arrays.
class [[gnu::visibility("default")]] array_mismatch : public error {
 public:
  array_mismatch(std::string field, const std::string& expected, std::uint64_t found)
      : error(detail::str_cat({"memory_dataset: field \"", field, "\": expected ", expected,
                               " elements, found ", found})),
        field_(std::move(field)),
        found_(found) {}

  /// Returns the field whose array has the wrong size.
  [[nodiscard]] const std::string& field() const noexcept { return field_; }
  /// Returns the number of elements in the array.
  [[nodiscard]] std::uint64_t found() const noexcept { return found_; }

 private:
  std::string field_;
  std::uint64_t found_;
};

/// A dataset over existing arrays, one contiguous array of samples for each field, in record order.
/// The arrays are referenced, and must outlive the dataset unchanged.
///
///     using digit = record<field<"image", std::uint8_t, 28, 28>, field<"label", std::uint8_t>>;
///     memory_dataset<digit> digits{pixels, labels};              // spans, vectors, arrays
///     memory_dataset<text> lines{{{length}, {}}, tokens, labels};  // dyn extents first
///
/// Reading is thread-safe. Prefetches rows into the CPU cache, four samples ahead.
template <penstock::record_type Record>
class memory_dataset {
 public:
  using record_type = Record;
  static constexpr bool borrows = true;
  static_assert(Record::ragged_fields == 0,
                "penstock::memory_dataset: an array does not contain the beginnings of the samples "
                "of a ragged field: write your own dataset, see docs/ragged.md");

  /// References `arrays`, contiguous ranges with the field types. Each array must have as many
  /// elements as the number of samples times the product of the field extents. The first array
  /// determines the number of samples. Throws `array_mismatch`, and `layout_error` if an extent is
  /// 0.
  template <class... Arrays>
    requires(sizeof...(Arrays) == Record::size)
  explicit memory_dataset(const record_extents<Record>& lengths, Arrays&&... arrays)
      : layout_(lengths, 1) {
    // Uses std::span, because including <ranges> for a concept would increase the preprocessed size
    // by a tenth.
    constexpr bool all_stay = ((std::is_lvalue_reference_v<Arrays> ||
                                std::ranges::enable_borrowed_range<std::remove_cvref_t<Arrays>>) &&
                               ...);
    static_assert(all_stay,
                  "penstock::memory_dataset: it refers to its arrays, and a temporary array is "
                  "destroyed before the first read");
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (set<Is>(std::span<const value_type<Is>>{arrays}), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// References the arrays of a record without dynamic extents.
  template <class... Arrays>
    requires(sizeof...(Arrays) == Record::size && !Record::has_dynamic_extents &&
             !(std::is_same_v<std::remove_cvref_t<Arrays>, memory_dataset> || ...))
  explicit memory_dataset(Arrays&&... arrays)
      : memory_dataset(record_extents<Record>{}, std::forward<Arrays>(arrays)...) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }

  /// Copies the samples with the given `indices` into `out`. Throws `index_error` if an index is
  /// out of range.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    detail::copy_rows(*this, layout_, indices, out, context);
  }

  /// Returns a view of a sample in the arrays. Throws `index_error` if `index` is out of range.
  [[nodiscard]] const_sample<Record> view(std::uint64_t index) const {
    if (index >= size_) throw index_error("memory_dataset", index, size_);
    return {rows(index, std::make_index_sequence<Record::size>{}), layout_.extents()};
  }

  /// Prefetches a sample into the CPU cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size_) return;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      const auto row = rows(index, std::make_index_sequence<Record::size>{});
      (detail::prefetch_row(row[Is], layout_.template sample_bytes<Is>()), ...);
    }(std::make_index_sequence<Record::size>{});
  }

 private:
  template <std::size_t Index>
  using value_type = typename Record::template field_at<Index>::value_type;

  template <std::size_t Index>
  void set(std::span<const value_type<Index>> array) {
    const auto name_of = [] { return Record::template field_at<Index>::key.str(); };
    const std::size_t elements = layout_.extents().template at<Index>().size();
    if constexpr (Index == 0) {
      if (array.size() % elements != 0) {
        throw array_mismatch(name_of(), detail::str_cat({"a multiple of ", elements}),
                             array.size());
      }
      size_ = array.size() / elements;
    } else {
      // Divides instead of multiplying, because the product could overflow.
      if (array.size() % elements != 0 || array.size() / elements != size_) {
        throw array_mismatch(name_of(), detail::str_cat({size_, " x ", elements}), array.size());
      }
    }
    bases_[Index] = reinterpret_cast<const std::byte*>(array.data());
  }

  template <std::size_t... Is>
  [[nodiscard]] std::array<const std::byte*, Record::size> rows(
      std::uint64_t index, std::index_sequence<Is...>) const noexcept {
    return {(bases_[Is] + index * layout_.template sample_bytes<Is>())...};
  }

  batch_layout<Record> layout_;
  std::uint64_t size_ = 0;
  std::array<const std::byte*, Record::size> bases_{};
};

static_assert(dataset<memory_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
