// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/data/support/dataset_members.hpp>
#include <penstock/data/support/row_copy.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/detail/arrow_check.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/detail/column_plan.hpp>
#include <penstock_ext/table/detail/null_bits.hpp>
#include <penstock_ext/table/table_error.hpp>
#include <penstock_ext/table/table_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Nulls among the rows of a batch: of the rows themselves, or of what is inside of their lists.
struct null_level {
  const std::byte* bits;  // 0: null
  std::uint64_t begin;    // the bit of row 0
  std::uint64_t per_row;  // bits a row
  std::size_t bytes;      // of the field, for each bit
};

/// The rows of one column in one batch, of one length each.
struct column_rows {
  const std::byte* first = nullptr;  // the byte of row 0, or of its bits
  std::uint64_t first_bit = 0;       // where values are bits
  std::size_t row_bytes = 0;         // of the field; of bits, as many bytes as bits
  bool is_bits = false;
  std::vector<null_level> nulls = {};  // none where none is null

  /// Row `row` to `place`. `bytes` is `row_bytes` as the caller knows it, a constant at best.
  void copy(std::uint64_t row, std::byte* place, std::size_t bytes) const noexcept {
    if (is_bits) {
      const std::uint64_t begin = first_bit + row * bytes;
      for (std::size_t i = 0; i < bytes; ++i) place[i] = std::byte{bit_at(first, begin + i)};
    } else {
      std::memcpy(place, first + row * bytes, bytes);
    }
    for (const null_level& level : nulls) {
      const std::uint64_t begin = level.begin + row * level.per_row;
      for (std::uint64_t i = 0; i < level.per_row; ++i) {
        if (!bit_at(level.bits, begin + i)) std::memset(place + i * level.bytes, 0, level.bytes);
      }
    }
  }

  /// Brings row `row` nearer.
  void prefetch(std::uint64_t row) const noexcept {
    if (!is_bits) prefetch_row(first + row * row_bytes, row_bytes);
  }

  /// The rows `indices`, counted from `first_row` on, to places one after the other.
  void gather(std::span<const std::uint64_t> indices, std::uint64_t first_row, std::byte* place,
              std::size_t bytes) const noexcept {
    const std::size_t count = indices.size();
    if (is_bits || !nulls.empty()) {
      for (std::size_t i = 0; i < count; ++i) {
        copy(indices[i] - first_row, place + i * bytes, bytes);
      }
      return;
    }
    // Short rows come with their neighbours; a prefetch costs more than it brings.
    const bool is_long = bytes >= 64;
    for (std::size_t i = 0; i < count; ++i) {
      if (is_long && i + prefetch_distance < count) {
        prefetch(indices[i + prefetch_distance] - first_row);
      }
      std::memcpy(place + i * bytes, first + (indices[i] - first_row) * bytes, bytes);
    }
  }
};

/// A part of an array: `count` of its values from `begin` on, its offset counted.
struct array_part {
  const ArrowArray* array;
  std::uint64_t begin;
  std::uint64_t count;
};

/// Goes from a batch of a table to the values of one of its columns, and looks at each array on the
/// way before it is relied on.
class column_walk {
 public:
  /// `first_row` is the number of the batch's first row in the table, for messages.
  column_walk(std::string_view where, const column_plan& plan, std::uint64_t first_row,
              null_values null) noexcept
      : where_(where), plan_(plan), check_(where, plan.name), first_row_(first_row), null_(null) {}

  /// The array of the column, behind the structs around it. Throws `null_in_column` for a struct
  /// that is null, and `arrow_invalid`.
  [[nodiscard]] array_part column(const ArrowArray& batch) {
    array_part at{&batch, static_cast<std::uint64_t>(batch.offset),
                  static_cast<std::uint64_t>(batch.length)};
    rows_ = at.count;
    for (std::size_t i = 0; i < plan_.path.size(); ++i) {
      if (i > 0) {  // the table itself was looked at as it came
        at = enter(at, 1, plan_.path[i].members);
        note_nulls(at, 1);
      }
      at.array = at.array->children[plan_.path[i].child];
    }
    return at;
  }

  /// The rows of the column where they lie. Lengths of lists that are not known are taken from the
  /// first row, and written to `plan`. Throws `null_in_column`, `column_shape_mismatch` and
  /// `arrow_invalid`.
  [[nodiscard]] column_rows rows(const ArrowArray& batch, column_plan& plan,
                                 std::size_t element_bytes) {
    array_part at = column(batch);
    std::uint64_t per_row = 1;
    for (list_level& list : plan.lists) {
      at = enter(at, list.kind == arrow_kind::fixed_list ? 1 : 2, 1);
      note_nulls(at, per_row);
      open(at, list, per_row);
      per_row *= list.length;
    }
    at = enter(at, 2, 0);
    note_nulls(at, per_row);
    column_rows found;
    found.is_bits = plan.element.kind == arrow_kind::boolean;
    const bool is_bytes = plan.element.kind == arrow_kind::fixed_binary;
    const auto size = static_cast<std::size_t>(is_bytes ? plan.element.size : element_bytes);
    found.row_bytes = static_cast<std::size_t>(per_row) * size;
    require_room(at.begin + at.count, size);
    if (rows_ > 0) found.first = check_.require_buffer(*at.array, 1);
    if (found.is_bits) {
      found.first_bit = at.begin;
    } else {
      found.first += at.begin * size;
    }
    for (null_level& level : nulls_) {
      level.bytes = found.row_bytes / static_cast<std::size_t>(level.per_row);
    }
    found.nulls = std::move(nulls_);
    return found;
  }

  /// Looks at the values of an array that `column` returned: as `rows` does at each.
  [[nodiscard]] array_part enter(array_part at, std::int64_t buffers, std::int64_t children) const {
    check_.require_array(*at.array, buffers, children, at.begin, at.count);
    at.begin += static_cast<std::uint64_t>(at.array->offset);
    return at;
  }

  /// Refuses nulls among values that `enter` returned, `per_row` a row, or keeps where they are.
  void note_nulls(const array_part& at, std::uint64_t per_row) {
    const auto* const bits = static_cast<const std::byte*>(at.array->buffers[0]);
    if (bits == nullptr) return;
    // Whatever null_count says: the bitmap counts.
    const std::uint64_t place = first_zero_bit(bits, at.begin, at.count);
    if (place == at.count) return;
    if (null_ == null_values::refuse) {
      throw null_in_column(std::string{where_}, plan_.name, first_row_ + place / per_row,
                           "fill or drop nulls before, or set .null = "
                           "null_values::value_initialised for zeros");
    }
    nulls_.push_back({bits, at.begin, per_row, 0});
  }

  /// Throws where so many values have more bytes than an address can count.
  void require_room(std::uint64_t values, std::uint64_t size) const {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(values, size, &bytes)) {
      check_.refuse("values within the address space",
                    std::to_string(values) + " of " + std::to_string(size) + " bytes");
    }
  }

  /// The nulls that were kept.
  [[nodiscard]] const std::vector<null_level>& nulls() const noexcept { return nulls_; }
  /// What looks at arrays.
  [[nodiscard]] const arrow_check& check() const noexcept { return check_; }

 private:
  // From lists to what is inside of them.
  void open(array_part& at, list_level& list, std::uint64_t per_row) const {
    const ArrowArray* const inside = at.array->children[0];
    if (list.kind == arrow_kind::fixed_list) {
      require_room(at.begin + at.count, list.length);
      at = {inside, at.begin * list.length, at.count * list.length};
    } else if (at.count == 0) {
      at = {inside, 0, 0};
    } else if (list.kind == arrow_kind::list) {
      open_by_offsets<std::int32_t>(at, list, per_row);
    } else {
      open_by_offsets<std::int64_t>(at, list, per_row);
    }
  }

  template <class Offset>
  void open_by_offsets(array_part& at, list_level& list, std::uint64_t per_row) const {
    const std::byte* const offsets = check_.require_buffer(*at.array, 1);
    check_.require_offsets<Offset>(offsets, at.begin, at.count);
    const auto offset = [&](std::uint64_t i) {
      return static_cast<std::uint64_t>(check_.offset_at<Offset>(offsets, at.begin + i));
    };
    if (list.length == 0) list.length = offset(1) - offset(0);
    for (std::uint64_t i = 0; i < at.count; ++i) {
      const std::uint64_t found = offset(i + 1) - offset(i);
      if (found == list.length && found > 0) continue;
      throw column_shape_mismatch(
          std::string{where_}, plan_.name,
          list.length == 0 ? "lists that are not empty"
                           : "lists of " + std::to_string(list.length) + " in all rows",
          std::to_string(found) + " in row " + std::to_string(first_row_ + i / per_row),
          "pad them, or write fixed_size_list; a list that is null has to have that length too");
    }
    at = {at.array->children[0], offset(0), at.count * list.length};
  }

  std::string_view where_;
  const column_plan& plan_;
  arrow_check check_;
  std::uint64_t first_row_;
  null_values null_;
  std::uint64_t rows_ = 0;
  std::vector<null_level> nulls_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
