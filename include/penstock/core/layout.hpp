// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Where the fields of a batch lie in its slab.
///
/// One contiguous slab holds the whole batch: field after field in the record's order, each with
/// its samples stored contiguously, each starting at a multiple of 256 bytes (the alignment of
/// `cudaMalloc`, enough for any vector load). A shorter batch keeps the offsets.
template <record_type Record>
class batch_layout {
 public:
  using record_type = Record;
  /// Each field starts at a multiple of this many bytes.
  static constexpr std::size_t alignment = 256;
  /// How many fields there are.
  static constexpr std::size_t field_count = Record::size;

  /// Throws `layout_error` on an extent of 0 and when the bytes do not fit into `std::size_t`.
  constexpr batch_layout(const record_extents<Record>& lengths, std::size_t batch_size)
      : lengths_(lengths), batch_size_(batch_size) {
    place(std::make_index_sequence<field_count>{});
  }

  /// The number of samples that the slab has room for.
  [[nodiscard]] constexpr std::size_t batch_size() const noexcept { return batch_size_; }

  /// The bytes of the slab, a multiple of 256.
  [[nodiscard]] constexpr std::size_t bytes() const noexcept { return bytes_; }

  /// The bytes from the slab's start to the end of the last field when it holds `samples` samples:
  /// what one copy has to move.
  [[nodiscard]] constexpr std::size_t used_bytes(std::size_t samples) const noexcept {
    return offsets_[field_count - 1] + samples * sample_bytes<field_count - 1>();
  }

  /// The bytes of one sample, all fields, without padding.
  [[nodiscard]] constexpr std::size_t sample_bytes() const noexcept {
    std::size_t sum = 0;
    for (const std::size_t count : sample_bytes_) sum += count;
    return sum;
  }

  /// The extents of one sample's fields.
  [[nodiscard]] constexpr const record_extents<Record>& extents() const noexcept {
    return lengths_;
  }

  /// The offset in bytes of field `Index` in the slab.
  template <std::size_t Index>
  [[nodiscard]] constexpr std::size_t offset() const noexcept {
    return offsets_[Index];
  }

  /// The bytes of field `Index` in one sample.
  template <std::size_t Index>
  [[nodiscard]] constexpr std::size_t sample_bytes() const noexcept {
    using field = typename Record::template field_at<Index>;
    if constexpr (field::extents_type::dynamic_rank == 0) {
      // A constant: the copy of a sample of fixed extents compiles to straight code.
      return typename field::extents_type{}.size() * sizeof(typename field::value_type);
    } else {
      return sample_bytes_[Index];
    }
  }

  friend constexpr bool operator==(const batch_layout&, const batch_layout&) = default;

 private:
  // Above `limit` where the product is; b is not 0.
  static constexpr std::size_t multiply(std::size_t a, std::size_t b) noexcept {
    return a > limit / b ? limit + 1 : a * b;
  }

  template <std::size_t Index>
  [[noreturn]] static void refuse(const std::string& problem) {
    throw layout_error("batch_layout: field \"" + Record::template field_at<Index>::key.str() +
                       "\": " + problem);
  }

  template <std::size_t Index>
  [[noreturn]] void refuse_size(std::size_t end) const {
    using field = typename Record::template field_at<Index>;
    const auto lengths = lengths_.template at<Index>();
    std::string text = std::to_string(batch_size_) + " samples";
    for (std::size_t d = 0; d != field::extents_type::rank; ++d)
      text += " x " + std::to_string(lengths[d]);
    refuse<Index>(text + " x " + std::to_string(sizeof(typename field::value_type)) +
                  " bytes, after the " + std::to_string(end) +
                  " bytes of other fields, are more than an address can count: lower batch_size or "
                  "the extents");
  }

  template <std::size_t... Is>
  constexpr void place(std::index_sequence<Is...>) {
    if (batch_size_ == 0)
      throw layout_error("batch_layout: the batch size must be at least 1, is 0");
    std::size_t end = 0;
    (place_field<Is>(end), ...);
    bytes_ = end;
  }

  template <std::size_t Index>
  constexpr void place_field(std::size_t& end) {
    using field = typename Record::template field_at<Index>;
    const auto lengths = lengths_.template at<Index>();
    std::size_t bytes = sizeof(typename field::value_type);
    for (std::size_t d = 0; d != field::extents_type::rank; ++d) {
      if (lengths[d] == 0)
        refuse<Index>("the extent of dimension " + std::to_string(d) + " must be at least 1, is 0");
      bytes = multiply(bytes, lengths[d]);
    }
    sample_bytes_[Index] = bytes;
    offsets_[Index] = end;
    const std::size_t used = multiply(bytes, batch_size_);
    if (used > limit - end) refuse_size<Index>(end);
    end = (end + used + alignment - 1) / alignment * alignment;
  }

  // About half the range, so that sums of two checked terms can't wrap, and a multiple of the
  // alignment, so that rounding up does not pass it.
  static constexpr std::size_t limit =
      (std::numeric_limits<std::size_t>::max)() / 2 / alignment * alignment;

  record_extents<Record> lengths_;
  std::size_t batch_size_;
  std::size_t bytes_ = 0;
  std::array<std::size_t, field_count> offsets_{};
  std::array<std::size_t, field_count> sample_bytes_{};
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
