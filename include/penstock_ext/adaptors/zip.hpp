// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/order/support/word_hash.hpp>
#include <penstock_ext/adaptors/support/joined_record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown by `zip` if the datasets have different sizes.
class [[gnu::visibility("default")]] zip_mismatch : public error {
 public:
  zip_mismatch(std::uint64_t first, std::uint64_t second)
      : error("zip: the first dataset has " + std::to_string(first) + " samples, the second " +
              std::to_string(second) + ": shorten one of them with subset"),
        first_(first),
        second_(second) {}
  /// Returns the size of the first dataset.
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }
  /// Returns the size of the second dataset.
  [[nodiscard]] std::uint64_t second() const noexcept { return second_; }

 private:
  std::uint64_t first_;
  std::uint64_t second_;
};

namespace detail {

/// Two datasets, joined sample by sample (see `zip`).
template <dataset First, dataset Second>
class zip_dataset {
  using first_record = typename First::record_type;
  using second_record = typename Second::record_type;

 public:
  using record_type = joined_record_t<first_record, second_record>;
  static constexpr bool borrows = detail::borrows<First> || detail::borrows<Second>;
  static constexpr bool looks_ahead = detail::looks_ahead<First> || detail::looks_ahead<Second>;
  static_assert(record_type::ragged_fields == 0,
                "penstock::zip: it does not support ragged fields, whose values are stored after "
                "all other fields: read the fields of both in one dataset");

  /// Throws `zip_mismatch` if the sizes differ.
  zip_dataset(First first, Second second)
      : first_(std::move(first)),
        second_(std::move(second)),
        first_lengths_(extents_of(first_)),
        second_lengths_(extents_of(second_)) {
    const std::uint64_t other = second_.size();
    if (first_.size() != other) throw zip_mismatch(first_.size(), other);
  }

  [[nodiscard]] std::uint64_t size() const { return first_.size(); }
  [[nodiscard]] record_extents<record_type> extents() const {
    return joined_extents(first_lengths_, second_lengths_);
  }
  [[nodiscard]] std::size_t scratch_bytes() const {
    return (std::max)(scratch_bytes_of(first_), scratch_bytes_of(second_));
  }
  [[nodiscard]] std::uint32_t stages() const { return stages_of(first_) + stages_of(second_) + 1; }
  [[nodiscard]] std::uint64_t fingerprint() const {
    const std::uint64_t first = fingerprint_of(first_);
    const std::uint64_t second = fingerprint_of(second_);
    if (first == 0 && second == 0) return 0;
    word_hash hash{first};
    hash.add(second);
    return hash.value();
  }

  /// Reads the chunk from both datasets in place, each into its own fields.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    const fields_in_place<first_record, 0> first{out, first_lengths_};
    penstock::read_chunk(first_, indices, first.view(), context);
    const fields_in_place<second_record, first_record::size> second{out, second_lengths_};
    penstock::read_chunk(second_, indices, second.view(), context.beside(stages_of(first_) + 1));
  }

  void prefetch(std::uint64_t index) const noexcept
    requires(prefetches<First> && prefetches<Second>)
  {
    first_.prefetch(index);
    second_.prefetch(index);
  }
  /// Calls `f` with both datasets.
  template <class F>
  void each_base(std::span<const std::uint64_t> indices, const F& f) const {
    f(first_, indices);
    f(second_, indices);
  }
  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    return origin_of(first_, index);
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const { return base_sizes_of(first_); }

 private:
  First first_;
  Second second_;
  record_extents<first_record> first_lengths_;
  record_extents<second_record> second_lengths_;
};

}  // namespace detail

/// Joins two datasets of equal size sample by sample. Sample i of `zip(images, labels)` has the
/// fields of sample i of `first`, followed by those of `second`. Throws `zip_mismatch` if the sizes
/// differ. Duplicate field names are a compile-time error. Lvalues are referenced and must outlive
/// the result, and rvalues are moved in.
///
/// Each dataset is read in place and has its own random bits. The random bits of `first` are the
/// same as without `second`. Failures report the sample origin in `first`.
template <class First, class Second>
[[nodiscard]] auto zip(First&& first, Second&& second) {
  detail::require_dataset<std::remove_cvref_t<First>>();
  detail::require_dataset<std::remove_cvref_t<Second>>();
  detail::reject_batch_maps<std::remove_cvref_t<First>>();
  detail::reject_batch_maps<std::remove_cvref_t<Second>>();
  if constexpr (dataset<std::remove_cvref_t<First>> && dataset<std::remove_cvref_t<Second>>) {
    constexpr bool names_differ =
        detail::can_be_joined<typename std::remove_cvref_t<First>::record_type,
                              typename std::remove_cvref_t<Second>::record_type>;
    static_assert(names_differ,
                  "penstock::zip: a field of the first dataset and a field of the second have the "
                  "same name: rename one with map<Out>");
    if constexpr (names_differ) {
      return detail::zip_dataset<stored_dataset_t<First>, stored_dataset_t<Second>>{
          stored_dataset_t<First>(std::forward<First>(first)),
          stored_dataset_t<Second>(std::forward<Second>(second))};
    }
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
