// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/files/support/half_float.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/arrow_table.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Requirements of a field for its column.
struct column_spec {
  std::string column;   // column name
  std::string element;  // element type for messages, such as "float32"
  std::size_t element_bytes = 0;
  bool (*takes)(const arrow_type&) = nullptr;  // returns true if the field can read the type
  std::span<const std::size_t> extents = {};   // field extents, each fixed or `dyn`
};

/// A list that encloses the elements of a column.
struct list_level {
  arrow_kind kind = arrow_kind::fixed_list;
  std::uint64_t length = 0;  // 0 until the first row determines it
};

/// A step from a table or struct to one of its members.
struct member_step {
  std::size_t child = 0;     // member index
  std::int64_t members = 0;  // number of members at that level
};

/// The path from a table through structs to a column.
using column_path = std::vector<member_step>;

/// The location of a column in its table, and the layout of its rows.
struct column_plan {
  std::string where = {};  // table name for messages: a file, or the object under construction
  std::string name = {};
  std::string words = {};  // column type for messages
  column_path path = {};
  std::vector<list_level> lists = {};  // lists, outermost first
  arrow_type element = {};             // type of the innermost elements

  /// Returns the number of elements in a row over all lists, or 0 if a list length is unknown.
  [[nodiscard]] std::uint64_t row_elements() const noexcept {
    std::uint64_t all = 1;
    for (const list_level& one : lists) all *= one.length;
    return all;
  }
};

/// Throws `column_type_mismatch` with advice for the column type.
[[noreturn]] inline void reject_type(const column_plan& plan, std::string expected) {
  std::string advice = "convert the column, or use its type in the record";
  const arrow_kind kind = plan.element.kind;
  if (kind == arrow_kind::view) {
    advice =
        "views have a different layout: cast to binary, utf8 or list first, in polars with "
        "to_arrow(compat_level=CompatLevel.oldest())";
  } else if (kind == arrow_kind::binary || kind == arrow_kind::large_binary) {
    advice =
        "rows of different lengths are not a field: read them with arrow_blobs, or write "
        "fixed_size_binary";
  }
  throw column_type_mismatch(plan.where, plan.name, std::move(expected), plan.words, advice);
}

/// Returns the indices of the children of `node` with the name `name`.
[[nodiscard]] inline std::vector<std::size_t> children_called(const ArrowSchema& node,
                                                              std::string_view name) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < static_cast<std::size_t>(node.n_children); ++i) {
    if (arrow_name(*node.children[i]) == name) found.push_back(i);
  }
  return found;
}

/// Returns the location and the layout of the column `name` in `table`. A name such as
/// "image.bytes" can refer to a member of a struct. Throws `missing_column` unless exactly one
/// column has this name. Throws `column_type_mismatch` if the column is dictionary-encoded.
/// `expected` is the expected type for messages.
[[nodiscard]] inline column_plan plan_column(const ArrowSchema& table, std::string_view where,
                                             const std::string& name, std::string expected) {
  column_plan plan{.where = std::string{where}, .name = name};
  const ArrowSchema* node = &table;
  std::string_view rest = name;
  while (true) {
    std::string_view part = rest;
    std::vector<std::size_t> found = children_called(*node, part);
    // Tries successively shorter prefixes of the name up to a dot, until a struct with that name is
    // found.
    while (found.empty() && part.rfind('.') != std::string_view::npos) {
      part = part.substr(0, part.rfind('.'));
      found = children_called(*node, part);
      if (found.size() == 1 &&
          (node->children[found[0]]->dictionary != nullptr ||
           arrow_type_of(node->children[found[0]]->format).kind != arrow_kind::structure)) {
        found.clear();
      }
    }
    if (found.size() != 1) {
      throw missing_column(
          plan.where, name, "exactly one column of this name",
          (found.empty() ? "" : std::to_string(found.size()) + " among ") + arrow_columns(table),
          "name it in .columns, or select and rename columns first");
    }
    plan.path.push_back({found[0], node->n_children});
    node = node->children[found[0]];
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
  plan.words = arrow_words(*node);
  while (true) {
    plan.element = arrow_type_of(node->format);
    if (node->dictionary != nullptr) {
      throw column_type_mismatch(
          plan.where, name, std::move(expected), plan.words,
          "decode the dictionary first, in pyarrow with column.cast(column.type.value_type)");
    }
    if (!is_list(plan.element.kind)) return plan;
    plan.lists.push_back({plan.element.kind, plan.element.size});
    node = node->children[0];
  }
}

/// Plans a blob column. Throws `missing_column` and `column_type_mismatch`.
[[nodiscard]] inline column_plan plan_blobs(const ArrowSchema& table, std::string_view where,
                                            const std::string& column) {
  const std::string expected = "binary, utf8, large_binary, large_utf8 or fixed_size_binary";
  column_plan plan = plan_column(table, where, column, expected);
  const arrow_kind kind = plan.element.kind;
  const bool is_bytes = kind == arrow_kind::binary || kind == arrow_kind::large_binary ||
                        kind == arrow_kind::fixed_binary;
  if (!is_bytes || !plan.lists.empty()) reject_type(plan, expected);
  return plan;
}

/// Plans a label column. Throws `missing_column` and `column_type_mismatch`.
[[nodiscard]] inline column_plan plan_labels(const ArrowSchema& table, std::string_view where,
                                             const std::string& column) {
  const std::string expected = "a column of integers or bool";
  column_plan plan = plan_column(table, where, column, expected);
  const arrow_kind kind = plan.element.kind;
  const bool is_number = kind == arrow_kind::boolean || kind == arrow_kind::signed_integer ||
                         kind == arrow_kind::unsigned_integer;
  if (!is_number || !plan.lists.empty()) reject_type(plan, expected);
  return plan;
}

/// A validity bitmap for the rows of a batch, or for the elements of their lists.
struct null_level {
  const std::byte* bits;  // 0 means null
  std::uint64_t begin;    // bit of row 0
  std::uint64_t per_row;  // number of bits for each row
  std::size_t bytes;      // number of field bytes for each bit
};

/// The rows of a column in one batch. All rows have the same size.
struct column_rows {
  // First byte of row 0, or the byte from which `first_bit` counts.
  const std::byte* first = nullptr;
  std::uint64_t first_bit = 0;  // bit of row 0 if values are bits
  std::size_t row_bytes = 0;    // row size in the field, where each bit occupies a byte
  bool is_bits = false;
  std::vector<null_level> nulls = {};  // empty if no value is null

  /// Copies row `row` to `place`. `bytes` must equal `row_bytes`. A compile-time constant makes the
  /// copy fastest.
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

  /// Prefetches row `row` into the CPU cache.
  void prefetch(std::uint64_t row) const noexcept {
    if (!is_bits) prefetch_row(first + row * row_bytes, row_bytes);
  }

  /// Copies the rows `indices` to contiguous memory. The indices are relative to `first_row`.
  void gather(std::span<const std::uint64_t> indices, std::uint64_t first_row, std::byte* place,
              std::size_t bytes) const noexcept {
    const std::size_t count = indices.size();
    if (is_bits || !nulls.empty()) {
      for (std::size_t i = 0; i < count; ++i) {
        copy(indices[i] - first_row, place + i * bytes, bytes);
      }
      return;
    }
    // Moves numbers in registers, because a memcpy call for each row would dominate the time.
    switch (bytes) {
      case 1:
        return gather_values<1>(indices, first_row, place);
      case 2:
        return gather_values<2>(indices, first_row, place);
      case 4:
        return gather_values<4>(indices, first_row, place);
      case 8:
        return gather_values<8>(indices, first_row, place);
      default:
        break;
    }
    // Neighboring short rows share cache lines, so a prefetch would cost more than it saves.
    const bool is_long = bytes >= 64;
    for (std::size_t i = 0; i < count; ++i) {
      if (is_long && i + prefetch_distance < count) {
        prefetch(indices[i + prefetch_distance] - first_row);
      }
      std::memcpy(place + i * bytes, first + (indices[i] - first_row) * bytes, bytes);
    }
  }

 private:
  template <std::size_t Bytes>
  void gather_values(std::span<const std::uint64_t> indices, std::uint64_t first_row,
                     std::byte* place) const noexcept {
    constexpr std::size_t at_once = 16 / Bytes;  // number of values in a 16-byte register
    std::size_t i = 0;
    for (; i + at_once <= indices.size(); i += at_once) {
      std::array<std::byte, at_once * Bytes> values;
      for (std::size_t k = 0; k < at_once; ++k) {
        std::memcpy(values.data() + k * Bytes, first + (indices[i + k] - first_row) * Bytes, Bytes);
      }
      std::memcpy(place + i * Bytes, values.data(), values.size());
    }
    for (; i < indices.size(); ++i) {
      std::memcpy(place + i * Bytes, first + (indices[i] - first_row) * Bytes, Bytes);
    }
  }
};

/// The labels of a batch, which are integers of any size or bits.
class label_rows {
 public:
  /// Each row of `rows` must be a single number.
  label_rows(column_rows rows, bool is_signed) : rows_(std::move(rows)), is_signed_(is_signed) {}

  /// Returns the label of batch row `row`.
  [[nodiscard]] std::int64_t at(std::uint64_t row) const noexcept {
    switch (rows_.row_bytes) {
      case 1:
        return is_signed_ ? number<std::int8_t>(row) : number<std::uint8_t>(row);
      case 2:
        return is_signed_ ? number<std::int16_t>(row) : number<std::uint16_t>(row);
      case 4:
        return is_signed_ ? number<std::int32_t>(row) : number<std::uint32_t>(row);
      default:
        return number<std::int64_t>(row);
    }
  }

 private:
  // The template makes the size a compile-time constant, because a memcpy call would dominate the
  // time.
  template <class T>
  [[nodiscard]] std::int64_t number(std::uint64_t row) const noexcept {
    T value{};
    rows_.copy(row, reinterpret_cast<std::byte*>(&value), sizeof value);
    return value;
  }

  column_rows rows_;
  bool is_signed_;
};

/// The byte strings of a batch.
class blob_rows {
 public:
  /// References strings delimited by offsets.
  blob_rows(const std::byte* data, arrow_offsets offsets, std::vector<null_level> nulls)
      : data_(data), offsets_(offsets), nulls_(std::move(nulls)) {}
  /// References contiguous strings of `size` bytes each.
  blob_rows(const std::byte* data, std::uint64_t size, std::vector<null_level> nulls)
      : data_(data), size_(size), nulls_(std::move(nulls)) {}

  /// Returns the byte string of batch row `row`, or an empty span if it is null.
  [[nodiscard]] std::span<const std::byte> at(std::uint64_t row) const noexcept {
    for (const null_level& level : nulls_) {
      if (!bit_at(level.bits, level.begin + row)) return {};
    }
    if (size_ > 0) return {data_ + row * size_, static_cast<std::size_t>(size_)};
    const std::int64_t begin = offsets_[row];
    return {data_ + begin, static_cast<std::size_t>(offsets_[row + 1] - begin)};
  }

 private:
  const std::byte* data_;
  arrow_offsets offsets_ = {};
  std::uint64_t size_ = 0;  // if 0, the offsets are used
  std::vector<null_level> nulls_;
};

/// A non-empty batch of a table.
struct batch_place {
  const ArrowArray& batch;
  std::uint64_t first_row;  // index of the first row in the table, for messages
  null_values null;
};

/// Locates the values of a column in a batch. Each object handles a single column and batch.
/// Validates each array before use. Throws `null_in_column` and `arrow_invalid`.
class column_walk {
 public:
  /// References `plan` and the batch of `of`.
  column_walk(column_plan& plan, const batch_place& of) noexcept
      : plan_(plan), of_(of), check_(plan.where, plan.name) {}

  /// Returns the rows of the column in table memory. Determines unknown list lengths from the first
  /// row and writes them to the plan. Also throws `column_shape_mismatch`.
  [[nodiscard]] column_rows rows() {
    array_part at = column();
    std::uint64_t per_row = 1;
    for (list_level& list : plan_.lists) {
      at = enter(at, list.kind == arrow_kind::fixed_list ? 1 : 2, 1, per_row);
      open(at, list, per_row);
      per_row *= list.length;
    }
    at = enter(at, 2, 0, per_row);
    column_rows found;
    found.is_bits = plan_.element.kind == arrow_kind::boolean;
    const auto size = static_cast<std::size_t>(plan_.element.size);
    found.row_bytes = static_cast<std::size_t>(per_row) * size;
    require_room(at.begin + at.count, size);
    found.first = check_.require_buffer(*at.array, 1);
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

  /// Returns the rows of a label column. Also throws `table_error` if a value does not fit into a
  /// label.
  [[nodiscard]] label_rows labels() {
    const bool is_signed = plan_.element.kind == arrow_kind::signed_integer;
    label_rows all{rows(), is_signed};
    // Only unsigned 64-bit integers can be too large.
    const bool is_wide = !is_signed && plan_.element.size == sizeof(std::int64_t);
    const auto count = static_cast<std::uint64_t>(of_.batch.length);
    for (std::uint64_t row = 0; is_wide && row < count; ++row) {
      if (all.at(row) >= 0) continue;
      throw table_error(plan_.where, plan_.name,
                        "labels below 2^63 in row " + std::to_string(of_.first_row + row),
                        std::to_string(static_cast<std::uint64_t>(all.at(row))));
    }
    return all;
  }

  /// Returns the rows of a blob column.
  [[nodiscard]] blob_rows blobs() {
    const bool is_fixed = plan_.element.kind == arrow_kind::fixed_binary;
    const array_part at = enter(column(), is_fixed ? 2 : 3, 0, 1);
    if (is_fixed) {
      const std::byte* const first = check_.require_buffer(*at.array, 1);
      require_room(at.begin + at.count, plan_.element.size);
      return {first + at.begin * plan_.element.size, plan_.element.size, std::move(nulls_)};
    }
    const bool is_large = plan_.element.kind == arrow_kind::large_binary;
    const arrow_offsets offsets = check_.require_offsets(*at.array, is_large, at.begin, at.count);
    const auto* const data = static_cast<const std::byte*>(at.array->buffers[2]);
    if (data == nullptr && offsets[at.count] > 0) {
      check_.reject("a buffer of bytes", "a null pointer");
    }
    return {data, offsets, std::move(nulls_)};
  }

 private:
  // The `count` values of an array starting at `begin`.
  struct array_part {
    const ArrowArray* array;
    std::uint64_t begin;
    std::uint64_t count;
  };

  // Follows the path through the enclosing structs to the column array.
  [[nodiscard]] array_part column() {
    array_part at{&of_.batch, static_cast<std::uint64_t>(of_.batch.offset),
                  static_cast<std::uint64_t>(of_.batch.length)};
    for (std::size_t i = 0; i < plan_.path.size(); ++i) {
      // The table itself was validated by `arrow_table`.
      if (i > 0) at = enter(at, 1, plan_.path[i].members, 1);
      at.array = at.array->children[plan_.path[i].child];
    }
    return at;
  }

  // Validates an array with `per_row` values for each row, and adds its offset. Throws if a value
  // is null and nulls are not allowed. Otherwise stores the validity bitmap.
  [[nodiscard]] array_part enter(array_part at, std::int64_t buffers, std::int64_t children,
                                 std::uint64_t per_row) {
    check_.require_array(*at.array, buffers, children, at.begin, at.count);
    at.begin += static_cast<std::uint64_t>(at.array->offset);
    const auto* const bits = static_cast<const std::byte*>(at.array->buffers[0]);
    if (bits == nullptr) return at;
    // The bitmap is authoritative, not null_count.
    const std::uint64_t place = first_zero_bit(bits, at.begin, at.count);
    if (place == at.count) return at;
    if (of_.null == null_values::reject) {
      throw null_in_column(plan_.where, plan_.name, of_.first_row + place / per_row,
                           "fill or drop nulls first, or set .null = "
                           "null_values::value_initialised for zeros");
    }
    nulls_.push_back({bits, at.begin, per_row, 0});
    return at;
  }

  // Descends from lists to their elements.
  void open(array_part& at, list_level& list, std::uint64_t per_row) const {
    const ArrowArray* const inside = at.array->children[0];
    if (list.kind == arrow_kind::fixed_list) {
      require_room(at.begin + at.count, list.length);
      at = {inside, at.begin * list.length, at.count * list.length};
      return;
    }
    const arrow_offsets offsets =
        check_.require_offsets(*at.array, list.kind == arrow_kind::large_list, at.begin, at.count);
    const auto length = [&](std::uint64_t i) {
      return static_cast<std::uint64_t>(offsets[i + 1] - offsets[i]);
    };
    if (list.length == 0) list.length = length(0);
    for (std::uint64_t i = 0; i < at.count; ++i) {
      if (length(i) == list.length && list.length > 0) continue;
      throw column_shape_mismatch(
          plan_.where, plan_.name,
          list.length == 0 ? "lists that are not empty"
                           : "lists of " + std::to_string(list.length) + " in all rows",
          std::to_string(length(i)) + " in row " + std::to_string(of_.first_row + i / per_row),
          "pad them, or write fixed_size_list; a null list must also have that length");
    }
    at = {inside, static_cast<std::uint64_t>(offsets[0]), at.count * list.length};
  }

  // Throws if the total size of these values exceeds the address space.
  void require_room(std::uint64_t values, std::uint64_t size) const {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(values, size, &bytes)) {
      check_.reject("values within the address space",
                    std::to_string(values) + " of " + std::to_string(size) + " bytes");
    }
  }

  column_plan& plan_;
  batch_place of_;
  arrow_check check_;
  std::vector<null_level> nulls_;  // validity bitmaps of columns with nulls
};

/// A column as the values of a field. The rules are:
/// - Nested lists correspond to the field extents, one list level for each extent. A single list
///   can also hold all elements.
/// - Variable-size lists must have the same length in all rows. The first row determines a `dyn`
///   extent.
/// - A fixed_size_binary contains the bytes of the whole field in native byte order. The field can
///   have any type except bool.
class field_column {
 public:
  /// Finds the column. Throws `missing_column`, `column_type_mismatch` and `column_shape_mismatch`.
  /// `where` is used in messages.
  field_column(const ArrowSchema& table, std::string_view where, column_spec spec)
      : spec_(std::move(spec)), plan_(plan_column(table, where, spec_.column, expected())) {
    is_bytes_ = plan_.element.kind == arrow_kind::fixed_binary && plan_.lists.empty();
    // A bool from raw bytes is rejected, because most byte values are not valid bools.
    const bool fits = is_bytes_ ? spec_.element != "bool" : spec_.takes(plan_.element);
    if (!fits) reject_type(plan_, expected());
    const std::size_t rank = spec_.extents.size();
    const bool is_flat = plan_.lists.size() == 1 && rank > 1;
    if (!is_bytes_ && !is_flat && plan_.lists.size() != rank) reject_shape(plan_.words);
    // A variable-size list must have the length of the field extent if the extent is fixed.
    for (std::size_t d = 0; d < plan_.lists.size(); ++d) {
      std::uint64_t& length = plan_.lists[d].length;
      if (length > 0) continue;
      if (is_flat) {
        length = fixed_product().second == 0 ? fixed_product().first : 0;
      } else if (spec_.extents[d] != dyn) {
        length = spec_.extents[d];
      }
    }
    if (is_determined()) (void)extents();
  }

  /// Returns true if all list lengths are known. Otherwise the first batch determines them.
  [[nodiscard]] bool is_determined() const noexcept {
    return is_bytes_ || plan_.row_elements() > 0;
  }

  /// Returns the field extents. Throws `column_shape_mismatch` if they do not match or a list
  /// length is unknown.
  [[nodiscard]] std::vector<std::size_t> extents() const {
    if (!is_determined()) reject_shape("no row, so the length of its lists is unknown");
    const std::size_t rank = spec_.extents.size();
    std::vector<std::size_t> found{spec_.extents.begin(), spec_.extents.end()};
    if (!is_bytes_ && plan_.lists.size() == rank) {
      for (std::size_t d = 0; d < rank; ++d) {
        found[d] = static_cast<std::size_t>(plan_.lists[d].length);
        if (spec_.extents[d] != dyn && spec_.extents[d] != found[d]) reject_shape(plan_.words);
      }
      return found;
    }
    const auto [product, dynamic] = fixed_product();
    const std::uint64_t bytes = plan_.row_elements() * plan_.element.size;
    const std::uint64_t fixed_bytes = product * spec_.element_bytes;
    if (dynamic > 1 || bytes % fixed_bytes != 0 || (dynamic == 0 && bytes != fixed_bytes)) {
      reject_shape(plan_.words);
    }
    std::replace(found.begin(), found.end(), dyn, static_cast<std::size_t>(bytes / fixed_bytes));
    return found;
  }

  /// Returns the rows of a batch. Throws the same errors as `column_walk::rows`, and
  /// `column_shape_mismatch`.
  [[nodiscard]] column_rows rows(const batch_place& of) {
    column_rows found = column_walk{plan_, of}.rows();
    (void)extents();
    return found;
  }

  [[nodiscard]] const column_plan& plan() const noexcept { return plan_; }

  /// Returns a warning if the column is slow to decode, otherwise "".
  [[nodiscard]] std::string warning() const {
    if (plan_.lists.empty() || plan_.element.size != 1) return {};
    const std::string length =
        plan_.row_elements() == 0 ? "" : "(" + std::to_string(plan_.row_elements()) + ")";
    return plan_.where + ": column \"" + plan_.name + "\" is " + plan_.words +
           ": Parquet decodes lists of bytes value by value, which is many times slower than "
           "fixed_size_binary" +
           length + " of the same bytes: write the column as fixed_size_binary";
  }

 private:
  // Returns the product of the fixed extents, and the number of dynamic extents. A product larger
  // than any list becomes `too_long`.
  [[nodiscard]] std::pair<std::uint64_t, std::size_t> fixed_product() const noexcept {
    constexpr std::uint64_t too_long = std::uint64_t{1} << 45;
    std::pair<std::uint64_t, std::size_t> found{1, 0};
    for (const std::size_t extent : spec_.extents) {
      if (extent == dyn) {
        ++found.second;
      } else {
        found.first = extent > too_long / found.first ? too_long : found.first * extent;
      }
    }
    return found;
  }

  [[nodiscard]] std::string expected() const {
    std::string text = spec_.element;
    for (const std::size_t extent : spec_.extents) {
      text += extent == dyn ? "[any]" : "[" + std::to_string(extent) + "]";
    }
    return text;
  }

  [[noreturn]] void reject_shape(const std::string& found) const {
    throw column_shape_mismatch(
        plan_.where, plan_.name, expected(), found,
        "either nested lists are the field's extents, or one list holds all of them; for one list, "
        "or a fixed_size_binary, one extent may be dyn");
  }

  column_spec spec_;
  column_plan plan_;
  bool is_bytes_ = false;
};

/// Returns the end of the longest run of `indices`, starting at position `i`, whose samples are all
/// in [first, first + rows). `indices[i]` must be in this range.
[[nodiscard]] inline std::size_t run_end(std::span<const std::uint64_t> indices, std::size_t i,
                                         std::uint64_t first, std::uint64_t rows) noexcept {
  std::size_t end = i + 1;
  while (end < indices.size() && indices[end] >= first && indices[end] - first < rows) ++end;
  return end;
}

/// The columns of a table that correspond to the fields of a record.
class table_columns {
 public:
  /// Finds the columns in the table schema. Throws `missing_column`, `column_type_mismatch`,
  /// `column_shape_mismatch`, `extra_column`, and `option_error` if the numbers of columns and
  /// fields differ. `where` is used in messages.
  table_columns(const ArrowSchema& table, std::vector<column_spec> specs,
                const table_options& options, std::string_view where)
      : null_(options.null) {
    if (!options.columns.empty() && options.columns.size() != specs.size()) {
      throw_option_error(
          "columns", {"must name ", specs.size(),
                      " columns, one for each field, or none, but names ", options.columns.size()});
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!options.columns.empty()) specs[i].column = options.columns[i];
      fields_.emplace_back(table, where, std::move(specs[i]));
    }
    if (options.extra == extra_columns::reject) require_no_other(table, where);
  }

  /// Returns true if the schema alone determines the extents of all fields.
  [[nodiscard]] bool is_determined() const noexcept {
    return std::all_of(fields_.begin(), fields_.end(),
                       [](const field_column& one) { return one.is_determined(); });
  }

  /// Returns the rows of a batch, indexed by field. `first_row` is the index of the batch's first
  /// row in the table. The first batch also determines extents that are not in the schema. Throws
  /// the same errors as `field_column::rows`.
  [[nodiscard]] std::vector<column_rows> rows(const ArrowArray& batch, std::uint64_t first_row) {
    std::vector<column_rows> all;
    all.reserve(fields_.size());
    for (field_column& field : fields_) all.push_back(field.rows({batch, first_row, null_}));
    return all;
  }

  /// Returns the extents of field `index`. Throws `column_shape_mismatch` if the schema does not
  /// determine them and `rows` has not been called.
  [[nodiscard]] std::vector<std::size_t> extents(std::size_t index) const {
    return fields_[index].extents();
  }

  /// Returns the column name of field `index`.
  [[nodiscard]] const std::string& column(std::size_t index) const noexcept {
    return fields_[index].plan().name;
  }

  /// Returns warnings about columns that are slow to decode.
  [[nodiscard]] std::vector<std::string> warnings() const {
    std::vector<std::string> all;
    for (const field_column& one : fields_) {
      if (auto text = one.warning(); !text.empty()) all.push_back(std::move(text));
    }
    return all;
  }

  /// Returns the column paths in field order.
  [[nodiscard]] std::vector<column_path> paths() const {
    std::vector<column_path> all;
    for (const field_column& one : fields_) all.push_back(one.plan().path);
    return all;
  }

 private:
  void require_no_other(const ArrowSchema& table, std::string_view where) const {
    std::string others;
    for (std::size_t i = 0; i < static_cast<std::size_t>(table.n_children); ++i) {
      const bool is_taken = std::any_of(fields_.begin(), fields_.end(), [&](const auto& one) {
        return one.plan().path[0].child == i;
      });
      if (is_taken) continue;
      const ArrowSchema& other = *table.children[i];
      others += (others.empty() ? "" : ", ") + arrow_name(other) + ": " + arrow_words(other);
    }
    if (others.empty()) return;
    throw extra_column(std::string{where}, {}, "only the columns of the fields", others,
                       "select the columns first, or keep .extra = extra_columns::ignore");
  }

  null_values null_;
  std::vector<field_column> fields_;
};

/// Returns the kind of column elements that can be read as `T`.
template <class T>
[[nodiscard]] consteval arrow_kind element_kind() {
  if (std::same_as<T, bool>) return arrow_kind::boolean;
  if (std::same_as<T, std::byte>) return arrow_kind::unsigned_integer;
  if (std::integral<T>) {
    return std::is_signed_v<T> ? arrow_kind::signed_integer : arrow_kind::unsigned_integer;
  }
  // Two-byte types such as `__half` are floating-point types.
  return std::floating_point<T> || sizeof(T) == 2 ? arrow_kind::floating : arrow_kind::other;
}

/// Returns true if column elements of type `type` can be read as `T`. A bool is converted by value.
/// All other elements are copied bitwise.
template <class T>
[[nodiscard]] bool takes_elements(const arrow_type& type) noexcept {
  const bool is_half = type.kind == arrow_kind::floating && type.size == 2;
  if (std::same_as<T, std::uint8_t> && type.kind == arrow_kind::boolean) return true;
  if (std::same_as<T, std::uint16_t> && is_half) return true;
  return type.kind == element_kind<T>() && type.size == sizeof(T) &&
         (!is_half || is_half_float<T>());
}

/// Returns the name of the column type whose elements can be read as `T`.
template <class T>
[[nodiscard]] std::string element_words() {
  const std::string bits = std::to_string(8 * sizeof(T));
  switch (element_kind<T>()) {
    case arrow_kind::boolean:
      return "bool";
    case arrow_kind::signed_integer:
      return "int" + bits;
    case arrow_kind::unsigned_integer:
      return "uint" + bits;
    case arrow_kind::floating:
      return "float" + bits;
    default:
      return "fixed_size_binary(" + std::to_string(sizeof(T)) + ")";
  }
}

/// Returns the requirements of a field with elements of type `T` for the column `name`.
template <class T, std::size_t... Extents>
[[nodiscard]] column_spec spec_of(std::string name, std::type_identity<extents<Extents...>>) {
  static constexpr std::array<std::size_t, sizeof...(Extents)> lengths{Extents...};
  return {std::move(name), element_words<T>(), sizeof(T), &takes_elements<T>, lengths};
}

/// Returns the requirements of each record field for the column with its name.
template <class... Fields>
[[nodiscard]] std::vector<column_spec> specs_of(std::type_identity<record<Fields...>>) {
  return {spec_of<typename Fields::value_type>(
      Fields::key.str(), std::type_identity<typename Fields::extents_type>{})...};
}

/// Returns the extents of the record fields, as determined by the columns. Throws the same errors
/// as `table_columns::extents`.
template <class Record>
[[nodiscard]] record_extents<Record> extents_of_columns(const table_columns& columns) {
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return record_extents<Record>{
        extents_in<typename Record::template field_at<Is>::extents_type>(columns.extents(Is))...};
  }(std::make_index_sequence<Record::size>{});
}

/// A table, with the location of the column for each field of `Record`.
template <class Record>
class table_rows {
 public:
  /// `columns` are the columns of `table`. Row numbers in messages start at `first_row`. Throws the
  /// same errors as `table_columns::rows`.
  table_rows(arrow_table table, table_columns& columns, std::uint64_t first_row)
      : table_(std::move(table)) {
    for (std::size_t i = 0; i < table_.batches(); ++i) {
      auto rows = columns.rows(table_.batch(i), first_row + table_.first_row(i));
      std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
    }
  }

  /// Returns the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return table_.size(); }

  /// Copies sample `indices[i]` and the following samples in the same batch to `out`. Copies column
  /// by column, so that the column type is checked once for each run. `first` is the sample index
  /// of the table's first row. Returns the position in `indices` of the first sample that was not
  /// copied.
  std::size_t copy(std::uint64_t first, std::span<const std::uint64_t> indices, std::size_t i,
                   batch_view<Record> out, const chunk_context& context,
                   const batch_layout<Record>& layout) const {
    const std::size_t batch = table_.batch_of(indices[i] - first);
    const std::uint64_t begin = first + table_.first_row(batch);
    const std::size_t end =
        run_end(indices, i, begin, static_cast<std::uint64_t>(table_.batch(batch).length));
    const auto run = indices.subspan(i, end - i);
    context.subchunk(i, run.size()).at_all();
    const auto place = out.subchunk(i, run.size())[0];
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (columns_of(batch)[Is].gather(run, begin, place.address(Is),
                                    layout.template sample_bytes<Is>()),
       ...);
    }(std::make_index_sequence<Record::size>{});
    return end;
  }

  /// Prefetches row `index` into the CPU cache. `index` must be less than `size()`.
  void prefetch(std::uint64_t index) const noexcept {
    const std::size_t batch = table_.batch_of(index);
    for (std::size_t f = 0; f < Record::size; ++f) {
      columns_of(batch)[f].prefetch(index - table_.first_row(batch));
    }
  }

 private:
  [[nodiscard]] const column_rows* columns_of(std::size_t batch) const noexcept {
    return rows_.data() + batch * Record::size;
  }

  arrow_table table_;
  std::vector<column_rows> rows_;  // indexed by batch, then by field
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
