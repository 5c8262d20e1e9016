// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The positions of the ragged fields in a slab, with one element per ragged field.
template <std::size_t Count>
struct ragged_places {
  std::array<std::size_t, Count> offsets_at{};  ///< position in the slab of each offset array
  std::array<std::size_t, Count> capacity{};    ///< capacity of each field in values
  friend constexpr bool operator==(const ragged_places&, const ragged_places&) = default;
};
template <>
struct ragged_places<0> {
  friend constexpr bool operator==(const ragged_places&, const ragged_places&) = default;
};

}  // namespace detail

/// The layout of a batch in its slab.
///
/// A contiguous slab contains all fields of the batch in field order. Each field stores its samples
/// contiguously and starts at a multiple of 256 bytes, which is the alignment of `cudaMalloc` and
/// sufficient for any vector load. A shorter batch has the same layout.
///
/// A ragged field has two parts. The `batch_size() + 1` offsets are 32-bit integers, and are stored
/// at the position of the field. The values are stored after all fields, so that unused capacity is
/// at the end of the slab and need not be copied. The values are aligned to the page size, 4,096
/// bytes, because reads that bypass the page cache require it.
template <record_type Record>
class batch_layout {
 public:
  using record_type = Record;
  /// The alignment of each field in bytes.
  static constexpr std::size_t alignment = 256;
  /// The alignment of ragged values in bytes, for each field.
  static constexpr std::size_t page = 4096;
  /// The number of fields.
  static constexpr std::size_t field_count = Record::size;

  /// Throws `layout_error` if an extent is 0 or the size does not fit into `std::size_t`.
  constexpr batch_layout(const record_extents<Record>& lengths, std::size_t batch_size)
      : lengths_(lengths), batch_size_(batch_size) {
    place(std::make_index_sequence<field_count>{});
  }

  /// Returns the capacity of the slab in samples.
  [[nodiscard]] constexpr std::size_t batch_size() const noexcept { return batch_size_; }

  /// Returns the slab size in bytes, which is a multiple of 256, or 4,096 if the record has ragged
  /// fields.
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return bytes_; }

  /// Returns the number of bytes to copy for `samples` samples, up to the end of the last field. If
  /// the record has ragged fields, this number is always the slab size, regardless of the lengths.
  [[nodiscard]] constexpr std::size_t used_bytes(std::size_t samples) const noexcept {
    if constexpr (Record::ragged_fields > 0) {
      return bytes_;
    } else {
      return offsets_[field_count - 1] + samples * sample_bytes<field_count - 1>();
    }
  }

  /// Returns the number of bytes to copy for the `samples` samples in `slab`, up to the end of the
  /// last value. `slab` must be accessible to the caller. The result never exceeds `bytes()`, even
  /// if the offsets in the slab are wrong.
  [[nodiscard]] std::size_t used_bytes(std::size_t samples, const std::byte* slab) const noexcept
    requires(Record::ragged_fields > 0)
  {
    constexpr std::size_t last = Record::last_ragged();
    const auto used = static_cast<std::uint32_t>(value_begin<last>(slab, samples));
    const std::size_t end =
        offsets_[last] + sizeof(typename Record::template field_at<last>::value_type) * used;
    return end < bytes_ ? end : bytes_;
  }

  /// Returns the sample size in bytes, without padding. Ragged fields count with their maximum
  /// length.
  [[nodiscard]] constexpr std::size_t sample_bytes() const noexcept {
    std::size_t sum = 0;
    for (const std::size_t count : sample_bytes_) sum += count;
    return sum;
  }

  /// Returns the sample extents.
  [[nodiscard]] constexpr const record_extents<Record>& extents() const noexcept {
    return lengths_;
  }

  /// Returns the offset in bytes of field `Index` in the slab. For a ragged field, this is the
  /// offset of the values.
  template <std::size_t Index>
  [[nodiscard]] constexpr std::size_t offset() const noexcept {
    return offsets_[Index];
  }

  /// Returns the size in bytes of field `Index` in one sample. For a ragged field, this is the
  /// maximum size.
  template <std::size_t Index>
  [[nodiscard]] constexpr std::size_t sample_bytes() const noexcept {
    using field = typename Record::template field_at<Index>;
    if constexpr (field::extents_type::dynamic_rank == 0) {
      // The value is a compile-time constant, so copying a sample with fixed extents compiles to
      // straight-line code.
      return typename field::extents_type{}.size() * sizeof(typename field::value_type);
    } else {
      return sample_bytes_[Index];
    }
  }

  /// Returns the slab position in bytes of the offset array for the ragged field `Index`.
  template <std::size_t Index>
    requires(Record::template field_at<Index>::is_ragged)
  [[nodiscard]] constexpr std::size_t offsets_at() const noexcept {
    return ragged_.offsets_at[Record::template ragged_index<Index>()];
  }
  /// Returns the capacity of the ragged field `Index` in values per batch.
  template <std::size_t Index>
    requires(Record::template field_at<Index>::is_ragged)
  [[nodiscard]] constexpr std::size_t capacity() const noexcept {
    return ragged_.capacity[Record::template ragged_index<Index>()];
  }
  /// Returns the offset, in values, to the first value of the sample at `position` in the batch in
  /// `slab`. `position` may be one past the last sample.
  template <std::size_t Index>
    requires(Record::template field_at<Index>::is_ragged)
  [[nodiscard]] std::int32_t value_begin(const std::byte* slab,
                                         std::size_t position) const noexcept {
    return reinterpret_cast<const std::int32_t*>(slab + offsets_at<Index>())[position];
  }

  friend constexpr bool operator==(const batch_layout&, const batch_layout&) = default;

 private:
  // Returns a * b, or a value greater than `limit` if the product exceeds `limit`. b must not be 0.
  static constexpr std::size_t multiply(std::size_t a, std::size_t b) noexcept {
    return a > limit / b ? limit + 1 : a * b;
  }

  template <std::size_t Index>
  [[noreturn, gnu::cold]] static void reject(std::initializer_list<detail::str_cat_arg> problem) {
    throw layout_error(
        detail::str_cat({"batch_layout: field \"", Record::template field_at<Index>::key.str(),
                         "\": ", detail::str_cat(problem)}));
  }

  template <std::size_t Index>
  [[noreturn, gnu::cold]] void reject_size(std::size_t end) const {
    using field = typename Record::template field_at<Index>;
    const auto lengths = lengths_.template at<Index>();
    std::string text = detail::str_cat({batch_size_, " samples"});
    for (std::size_t d = 0; d != field::extents_type::rank; ++d)
      text += detail::str_cat({" x ", lengths[d]});
    reject<Index>(
        {text, " x ", sizeof(typename field::value_type), " bytes, after ", end,
         (" bytes of other fields, exceed the address space: lower batch_size or the extents")});
  }

  template <std::size_t... Is>
  constexpr void place(std::index_sequence<Is...>) {
    if (batch_size_ == 0)
      throw layout_error("batch_layout: the batch size must be at least 1, but is 0");
    std::size_t end = 0;
    (place_head<Is>(end), ...);
    (place_values<Is>(end), ...);
    bytes_ = end;
  }

  /// Places a field, or the offset array of a ragged field.
  template <std::size_t Index>
  constexpr void place_head(std::size_t& end) {
    if constexpr (Record::template field_at<Index>::is_ragged) {
      constexpr std::size_t max = (std::numeric_limits<std::int32_t>::max)();
      if (batch_size_ >= max) reject<Index>({"batch_size must be below 2^31 - 1"});
      ragged_.offsets_at[Record::template ragged_index<Index>()] = end;
      pass<Index>(end, (batch_size_ + 1) * sizeof(std::int32_t));
    } else {
      place_field<Index>(end);
    }
  }

  template <std::size_t Index>
  constexpr void place_values(std::size_t& end) {
    using field = typename Record::template field_at<Index>;
    if constexpr (field::is_ragged) {
      const auto lengths = lengths_.template at<Index>();
      if (lengths.longest == 0)
        reject<Index>({"the longest sample must have at least 1 value, but has 0"});
      if (lengths.max_values_per_batch != 0 && lengths.max_values_per_batch < lengths.longest) {
        reject<Index>({"max_values_per_batch is ", lengths.max_values_per_batch,
                       ", but the longest sample has ", lengths.longest,
                       ": raise it to at least that"});
      }
      const std::size_t capacity = lengths.size_of_batch(batch_size_);
      if (capacity > std::size_t{(std::numeric_limits<std::int32_t>::max)()}) {
        reject<Index>({batch_size_, " samples of up to ", lengths.longest,
                       " values exceed 32-bit offsets: set a smaller max_values_per_batch"});
      }
      ragged_.capacity[Record::template ragged_index<Index>()] = capacity;
      sample_bytes_[Index] = multiply(sizeof(typename field::value_type), lengths.longest);
      pass<Index>(end, 0, page);
      offsets_[Index] = end;
      pass<Index>(end, multiply(sizeof(typename field::value_type), capacity), page);
    }
  }

  template <std::size_t Index>
  constexpr void place_field(std::size_t& end) {
    using field = typename Record::template field_at<Index>;
    const auto lengths = lengths_.template at<Index>();
    std::size_t bytes = sizeof(typename field::value_type);
    for (std::size_t d = 0; d != field::extents_type::rank; ++d) {
      if (lengths[d] == 0)
        reject<Index>({"the extent of dimension ", d, " must be at least 1, but is 0"});
      bytes = multiply(bytes, lengths[d]);
    }
    sample_bytes_[Index] = bytes;
    offsets_[Index] = end;
    pass<Index>(end, multiply(bytes, batch_size_));
  }

  /// Advances `end` by the `used` bytes of field `Index`, rounded up to a multiple of `next`.
  /// Throws `layout_error` if the slab becomes too large.
  template <std::size_t Index>
  constexpr void pass(std::size_t& end, std::size_t used, std::size_t next = alignment) const {
    if (used > limit - end) reject_size<Index>(end);
    end = (end + used + next - 1) / next * next;
  }

  // The limit is about half of the range, so that the sum of two checked terms does not wrap. The
  // limit is also a multiple of the alignment, so that rounding up does not exceed the limit.
  static constexpr std::size_t limit = (std::numeric_limits<std::size_t>::max)() / 2 / page * page;

  record_extents<Record> lengths_;
  std::size_t batch_size_;
  std::size_t bytes_ = 0;
  std::array<std::size_t, field_count> offsets_{};
  std::array<std::size_t, field_count> sample_bytes_{};
  [[no_unique_address]] detail::ragged_places<Record::ragged_fields> ragged_{};
};

namespace detail {

/// Formats sample extents for messages, as in "x: 3 x 32, label: 1, tokens: up to 512".
template <record_type Record>
[[nodiscard, gnu::cold]] std::string shape_text(const record_extents<Record>& lengths) {
  std::string text;
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    const auto add = [&]<std::size_t Index>() {
      using field = typename Record::template field_at<Index>;
      const auto of = lengths.template at<Index>();
      text += str_cat({Index == 0 ? "" : ", ", field::key.str(), ": "});
      if constexpr (field::is_ragged) {
        text += str_cat({"up to ", of.longest});
        if (of.max_values_per_batch != 0)
          text += str_cat({", ", of.max_values_per_batch, " per batch"});
      } else {
        if constexpr (field::extents_type::rank == 0) text += '1';
        for (std::size_t d = 0; d != field::extents_type::rank; ++d) {
          text += str_cat({d == 0 ? "" : " x ", of[d]});
        }
      }
    };
    (add.template operator()<Is>(), ...);
  }(std::make_index_sequence<Record::size>{});
  return text;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
