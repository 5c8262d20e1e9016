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

/// The column that a field requires.
struct column_wish {
  std::string column;   // name of the column
  std::string element;  // the element's type for people: "float32"
  std::size_t element_bytes = 0;
  bool (*takes)(const arrow_type&) = nullptr;  // true if the field can read the type
  std::span<const std::size_t> extents = {};   // the field's extents, each fixed or `dyn`
};

/// A list around the elements of a column.
struct list_level {
  arrow_kind kind = arrow_kind::fixed_list;
  std::uint64_t length = 0;  // 0 if unknown, until the first row sets it
};

/// A step from a table, or from a struct inside it, to a member.
struct member_step {
  std::size_t child = 0;     // index of the member
  std::int64_t members = 0;  // number of members at that level
};

/// The path to a column: from the table, through structs.
using column_path = std::vector<member_step>;

/// The path to a column in its table, and the structure of its rows.
struct column_plan {
  std::string where = {};  // the table for messages: a file, or the object to create
  std::string name = {};
  std::string words = {};  // the column's type, for people
  column_path path = {};
  std::vector<list_level> lists = {};  // the outermost first
  arrow_type element = {};             // the type inside the lists

  /// Returns the number of elements of a row in all lists together. Returns 0 if a length is
  /// unknown.
  [[nodiscard]] std::uint64_t row_elements() const noexcept {
    std::uint64_t all = 1;
    for (const list_level& one : lists) all *= one.length;
    return all;
  }
};

/// Throws `column_type_mismatch`, with advice for the type.
[[noreturn]] inline void refuse_type(const column_plan& plan, std::string expected) {
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

/// Returns the indices of the children of `node` that have the name `name`.
[[nodiscard]] inline std::vector<std::size_t> children_called(const ArrowSchema& node,
                                                              std::string_view name) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < static_cast<std::size_t>(node.n_children); ++i) {
    if (arrow_name(*node.children[i]) == name) found.push_back(i);
  }
  return found;
}

/// Finds the child of `table` with the name `name`, or a member of structs in it ("image.bytes"),
/// and the lists and elements of that column. Throws `missing_column`, and `column_type_mismatch`
/// for a dictionary. `expected` describes the expected type in messages.
[[nodiscard]] inline column_plan plan_column(const ArrowSchema& table, std::string_view where,
                                             const std::string& name, std::string expected) {
  column_plan plan{.where = std::string{where}, .name = name};
  const ArrowSchema* node = &table;
  std::string_view rest = name;
  while (true) {
    std::string_view part = rest;
    std::vector<std::size_t> found = children_called(*node, part);
    // Tries shorter and shorter prefixes of the name that end before a dot, until a struct has that
    // name.
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

/// Finds a column of byte strings. Throws `missing_column` and `column_type_mismatch`.
[[nodiscard]] inline column_plan plan_blobs(const ArrowSchema& table, std::string_view where,
                                            const std::string& column) {
  const std::string expected = "binary, utf8, large_binary, large_utf8 or fixed_size_binary";
  column_plan plan = plan_column(table, where, column, expected);
  const arrow_kind kind = plan.element.kind;
  const bool is_bytes = kind == arrow_kind::binary || kind == arrow_kind::large_binary ||
                        kind == arrow_kind::fixed_binary;
  if (!is_bytes || !plan.lists.empty()) refuse_type(plan, expected);
  return plan;
}

/// Finds a column of labels. Throws `missing_column` and `column_type_mismatch`.
[[nodiscard]] inline column_plan plan_labels(const ArrowSchema& table, std::string_view where,
                                             const std::string& column) {
  const std::string expected = "a column of integers or bool";
  column_plan plan = plan_column(table, where, column, expected);
  const arrow_kind kind = plan.element.kind;
  const bool is_number = kind == arrow_kind::boolean || kind == arrow_kind::signed_integer ||
                         kind == arrow_kind::unsigned_integer;
  if (!is_number || !plan.lists.empty()) refuse_type(plan, expected);
  return plan;
}

/// A bitmap of nulls for the rows of a batch, or for the contents of their lists.
struct null_level {
  const std::byte* bits;  // a bit of 0 means null
  std::uint64_t begin;    // the bit of row 0
  std::uint64_t per_row;  // bits per row
  std::size_t bytes;      // bytes of the field per bit
};

/// The rows of a column in a batch. All rows have the same length.
struct column_rows {
  const std::byte* first = nullptr;  // the byte of row 0, or the byte from which `first_bit` counts
  std::uint64_t first_bit = 0;       // the bit of row 0, if values are bits
  std::size_t row_bytes = 0;         // size in the field; each bit becomes a byte
  bool is_bits = false;
  std::vector<null_level> nulls = {};  // empty if no value is null

  /// Copies row `row` to `place`. `bytes` must equal `row_bytes`. The copy is fastest if `bytes` is
  /// a constant.
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

  /// Prefetches row `row` into the cache.
  void prefetch(std::uint64_t row) const noexcept {
    if (!is_bits) prefetch_row(first + row * row_bytes, row_bytes);
  }

  /// Copies the rows `indices`, which count from `first_row`, to consecutive memory.
  void gather(std::span<const std::uint64_t> indices, std::uint64_t first_row, std::byte* place,
              std::size_t bytes) const noexcept {
    const std::size_t count = indices.size();
    if (is_bits || !nulls.empty()) {
      for (std::size_t i = 0; i < count; ++i) {
        copy(indices[i] - first_row, place + i * bytes, bytes);
      }
      return;
    }
    // Numbers are moved in registers, because a memcpy call per row takes most of a row's time.
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
    // Neighboring short rows share a cache line, so a prefetch costs more than it saves.
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
    constexpr std::size_t at_once = 16 / Bytes;  // the values of a 16-byte register
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
  /// Each row of `rows` is a single number.
  label_rows(column_rows rows, bool is_signed) : rows_(std::move(rows)), is_signed_(is_signed) {}

  /// Returns the label of row `row` of the batch.
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
  // The size is known at compile time, because a call of memcpy takes most of the time.
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
  /// Takes strings between offsets.
  blob_rows(const std::byte* data, arrow_offsets offsets, std::vector<null_level> nulls)
      : data_(data), offsets_(offsets), nulls_(std::move(nulls)) {}
  /// Takes strings of `size` bytes each, without gaps.
  blob_rows(const std::byte* data, std::uint64_t size, std::vector<null_level> nulls)
      : data_(data), size_(size), nulls_(std::move(nulls)) {}

  /// Returns the byte string of row `row` of the batch, or an empty span if it is null.
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
  std::uint64_t size_ = 0;  // if 0, `offsets_` is used
  std::vector<null_level> nulls_;
};

/// A batch of a table, with at least one row.
struct batch_place {
  const ArrowArray& batch;
  std::uint64_t first_row;  // the row's number in the table, for messages
  null_values null;
};

/// Finds the values of a column in a batch. Use an object for a single column and batch. Checks
/// each array before using it. Throws `null_in_column` and `arrow_invalid`.
class column_walk {
 public:
  /// Keeps references to `plan` and to the batch of `of`.
  column_walk(column_plan& plan, const batch_place& of) noexcept
      : plan_(plan), of_(of), check_(plan.where, plan.name) {}

  /// Returns the rows of the column in the table's memory. Takes unknown list lengths from the
  /// first row, and writes them to the plan. Also throws `column_shape_mismatch`.
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

  /// Returns the rows of a column of labels. Also throws `table_error` if a number does not fit in
  /// a label.
  [[nodiscard]] label_rows labels() {
    const bool is_signed = plan_.element.kind == arrow_kind::signed_integer;
    label_rows all{rows(), is_signed};
    // Only 64-bit unsigned integers can be too large.
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

  /// Returns the rows of a column of byte strings.
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
      check_.refuse("a buffer of bytes", "a null pointer");
    }
    return {data, offsets, std::move(nulls_)};
  }

 private:
  // A part of an array: the `count` values that start at `begin`.
  struct array_part {
    const ArrowArray* array;
    std::uint64_t begin;
    std::uint64_t count;
  };

  // Follows the path through the enclosing structs to the column's array.
  [[nodiscard]] array_part column() {
    array_part at{&of_.batch, static_cast<std::uint64_t>(of_.batch.offset),
                  static_cast<std::uint64_t>(of_.batch.length)};
    for (std::size_t i = 0; i < plan_.path.size(); ++i) {
      // The table itself was checked when it was added.
      if (i > 0) at = enter(at, 1, plan_.path[i].members, 1);
      at.array = at.array->children[plan_.path[i].child];
    }
    return at;
  }

  // Checks an array that has `per_row` values per row, and adds its offset. Throws if a value is
  // null and nulls are refused. Otherwise stores the bitmap of nulls.
  [[nodiscard]] array_part enter(array_part at, std::int64_t buffers, std::int64_t children,
                                 std::uint64_t per_row) {
    check_.require_array(*at.array, buffers, children, at.begin, at.count);
    at.begin += static_cast<std::uint64_t>(at.array->offset);
    const auto* const bits = static_cast<const std::byte*>(at.array->buffers[0]);
    if (bits == nullptr) return at;
    // The bitmap is decisive, not null_count.
    const std::uint64_t place = first_zero_bit(bits, at.begin, at.count);
    if (place == at.count) return at;
    if (of_.null == null_values::refuse) {
      throw null_in_column(plan_.where, plan_.name, of_.first_row + place / per_row,
                           "fill or drop nulls first, or set .null = "
                           "null_values::value_initialised for zeros");
    }
    nulls_.push_back({bits, at.begin, per_row, 0});
    return at;
  }

  // Moves from lists to their contents.
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

  // Throws if these values have more bytes than an address can count.
  void require_room(std::uint64_t values, std::uint64_t size) const {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(values, size, &bytes)) {
      check_.refuse("values within the address space",
                    std::to_string(values) + " of " + std::to_string(size) + " bytes");
    }
  }

  column_plan& plan_;
  batch_place of_;
  arrow_check check_;
  std::vector<null_level> nulls_;  // the stored bitmaps
};

/// A column as the values of a field. These are all the rules:
/// - Nested lists are the field's extents, one list per extent, or a single list is all extents.
/// - Lists of variable length need the same length in all rows; the first row sets a `dyn` extent.
/// - A fixed_size_binary is the bytes of the whole field in the machine's byte order. The field can
///   have any type except bool.
class field_column {
 public:
  /// Throws `missing_column`, `column_type_mismatch` and `column_shape_mismatch`. Messages name
  /// `where`.
  field_column(const ArrowSchema& table, std::string_view where, column_wish wish)
      : wish_(std::move(wish)), plan_(plan_column(table, where, wish_.column, expected())) {
    is_bytes_ = plan_.element.kind == arrow_kind::fixed_binary && plan_.lists.empty();
    // A bool has only two valid values, but a byte can have any value.
    const bool fits = is_bytes_ ? wish_.element != "bool" : wish_.takes(plan_.element);
    if (!fits) refuse_type(plan_, expected());
    const std::size_t rank = wish_.extents.size();
    const bool is_flat = plan_.lists.size() == 1 && rank > 1;
    if (!is_bytes_ && !is_flat && plan_.lists.size() != rank) refuse_shape(plan_.words);
    // A list of variable length must have the field's length, if that is fixed.
    for (std::size_t d = 0; d < plan_.lists.size(); ++d) {
      std::uint64_t& length = plan_.lists[d].length;
      if (length > 0) continue;
      if (is_flat) {
        length = fixed_product().second == 0 ? fixed_product().first : 0;
      } else if (wish_.extents[d] != dyn) {
        length = wish_.extents[d];
      }
    }
    if (is_determined()) (void)extents();
  }

  /// Returns true if all lengths are known. Otherwise the rows of the first batch determine the
  /// unknown lengths.
  [[nodiscard]] bool is_determined() const noexcept {
    return is_bytes_ || plan_.row_elements() > 0;
  }

  /// Returns the field's extents. Throws `column_shape_mismatch`, also if a length is unknown.
  [[nodiscard]] std::vector<std::size_t> extents() const {
    if (!is_determined()) refuse_shape("no row, so the length of its lists is unknown");
    const std::size_t rank = wish_.extents.size();
    std::vector<std::size_t> found{wish_.extents.begin(), wish_.extents.end()};
    if (!is_bytes_ && plan_.lists.size() == rank) {
      for (std::size_t d = 0; d < rank; ++d) {
        found[d] = static_cast<std::size_t>(plan_.lists[d].length);
        if (wish_.extents[d] != dyn && wish_.extents[d] != found[d]) refuse_shape(plan_.words);
      }
      return found;
    }
    const auto [product, dynamic] = fixed_product();
    const std::uint64_t bytes = plan_.row_elements() * plan_.element.size;
    const std::uint64_t fixed_bytes = product * wish_.element_bytes;
    if (dynamic > 1 || bytes % fixed_bytes != 0 || (dynamic == 0 && bytes != fixed_bytes)) {
      refuse_shape(plan_.words);
    }
    std::replace(found.begin(), found.end(), dyn, static_cast<std::size_t>(bytes / fixed_bytes));
    return found;
  }

  /// Returns the rows of a batch. Throws what `column_walk::rows` throws, and
  /// `column_shape_mismatch`.
  [[nodiscard]] column_rows rows(const batch_place& of) {
    column_rows found = column_walk{plan_, of}.rows();
    (void)extents();
    return found;
  }

  [[nodiscard]] const column_plan& plan() const noexcept { return plan_; }

  /// Returns a message if the column is slow to decode, otherwise "".
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
  // Returns the product of the fixed extents, and the number of dynamic extents. A product that is
  // longer than any list becomes `too_long`.
  [[nodiscard]] std::pair<std::uint64_t, std::size_t> fixed_product() const noexcept {
    constexpr std::uint64_t too_long = std::uint64_t{1} << 45;
    std::pair<std::uint64_t, std::size_t> found{1, 0};
    for (const std::size_t extent : wish_.extents) {
      if (extent == dyn) {
        ++found.second;
      } else {
        found.first = extent > too_long / found.first ? too_long : found.first * extent;
      }
    }
    return found;
  }

  [[nodiscard]] std::string expected() const {
    std::string text = wish_.element;
    for (const std::size_t extent : wish_.extents) {
      text += extent == dyn ? "[any]" : "[" + std::to_string(extent) + "]";
    }
    return text;
  }

  [[noreturn]] void refuse_shape(const std::string& found) const {
    throw column_shape_mismatch(
        plan_.where, plan_.name, expected(), found,
        "either nested lists are the field's extents, or one list holds all of them; for one list, "
        "or a fixed_size_binary, one extent may be dyn");
  }

  column_wish wish_;
  column_plan plan_;
  bool is_bytes_ = false;
};

/// Returns the end of the run of `indices` that starts at position `i` and whose samples are all
/// among the `rows` rows starting at `first`. Sample `i` must be among them.
[[nodiscard]] inline std::size_t run_end(std::span<const std::uint64_t> indices, std::size_t i,
                                         std::uint64_t first, std::uint64_t rows) noexcept {
  std::size_t end = i + 1;
  while (end < indices.size() && indices[end] >= first && indices[end] - first < rows) ++end;
  return end;
}

/// The columns of a table that become the fields of a record.
class table_columns {
 public:
  /// Finds the columns in the table's type. Throws `missing_column`, `column_type_mismatch`,
  /// `column_shape_mismatch` and `extra_column`. Throws `option_error` if the number of columns
  /// differs from the number of fields. Messages name `where`.
  table_columns(const ArrowSchema& table, std::vector<column_wish> wishes,
                const table_options& options, std::string_view where)
      : null_(options.null) {
    if (!options.columns.empty() && options.columns.size() != wishes.size()) {
      refuse_option("columns",
                    {"must name ", wishes.size(),
                     " columns, one for each field, or none, but names ", options.columns.size()});
    }
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      if (!options.columns.empty()) wishes[i].column = options.columns[i];
      fields_.emplace_back(table, where, std::move(wishes[i]));
    }
    if (options.extra == extra_columns::refuse) require_no_other(table, where);
  }

  /// Returns true if the type alone determines the extents of all fields.
  [[nodiscard]] bool is_determined() const noexcept {
    return std::all_of(fields_.begin(), fields_.end(),
                       [](const field_column& one) { return one.is_determined(); });
  }

  /// Returns the rows of a batch, field by field. `first_row` is the number of the batch's first
  /// row in the table. The first batch also determines the extents that are not in the type. Throws
  /// what `field_column::rows` throws.
  [[nodiscard]] std::vector<column_rows> rows(const ArrowArray& batch, std::uint64_t first_row) {
    std::vector<column_rows> all;
    all.reserve(fields_.size());
    for (field_column& field : fields_) all.push_back(field.rows({batch, first_row, null_}));
    return all;
  }

  /// Returns the extents of field `index`. Throws `column_shape_mismatch` if the type does not
  /// determine them and `rows` has not been called.
  [[nodiscard]] std::vector<std::size_t> extents(std::size_t index) const {
    return fields_[index].extents();
  }

  /// Returns the name of the column of field `index`.
  [[nodiscard]] const std::string& column(std::size_t index) const noexcept {
    return fields_[index].plan().name;
  }

  /// Returns messages about the columns that are slow to decode.
  [[nodiscard]] std::vector<std::string> warnings() const {
    std::vector<std::string> all;
    for (const field_column& one : fields_) {
      if (auto text = one.warning(); !text.empty()) all.push_back(std::move(text));
    }
    return all;
  }

  /// Returns the paths to the columns of the fields, in the record's order.
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

/// Returns the kind of column elements that can be read as T.
template <class T>
[[nodiscard]] consteval arrow_kind element_kind() {
  if (std::same_as<T, bool>) return arrow_kind::boolean;
  if (std::same_as<T, std::byte>) return arrow_kind::unsigned_integer;
  if (std::integral<T>) {
    return std::is_signed_v<T> ? arrow_kind::signed_integer : arrow_kind::unsigned_integer;
  }
  // `__half` and similar types have two bytes.
  return std::floating_point<T> || sizeof(T) == 2 ? arrow_kind::floating : arrow_kind::other;
}

/// Returns true if column elements of this type can be read as T. A bool is converted by value, and
/// all other elements are copied bit by bit.
template <class T>
[[nodiscard]] bool takes_elements(const arrow_type& type) noexcept {
  const bool is_half = type.kind == arrow_kind::floating && type.size == 2;
  if (std::same_as<T, std::uint8_t> && type.kind == arrow_kind::boolean) return true;
  if (std::same_as<T, std::uint16_t> && is_half) return true;
  return type.kind == element_kind<T>() && type.size == sizeof(T) &&
         (!is_half || is_half_float<T>());
}

/// Returns the name of the column type whose elements can be read as T.
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

/// Returns what a field of type T with these extents requires of the column `name`.
template <class T, std::size_t... Extents>
[[nodiscard]] column_wish wish_of(std::string name, std::type_identity<extents<Extents...>>) {
  static constexpr std::array<std::size_t, sizeof...(Extents)> lengths{Extents...};
  return {std::move(name), element_words<T>(), sizeof(T), &takes_elements<T>, lengths};
}

/// Returns what each field of a record requires of the column that has its name.
template <class... Fields>
[[nodiscard]] std::vector<column_wish> wishes_of(std::type_identity<record<Fields...>>) {
  return {wish_of<typename Fields::value_type>(
      Fields::key.str(), std::type_identity<typename Fields::extents_type>{})...};
}

/// Returns the extents of the record's fields as the columns determine them. Throws
/// `column_shape_mismatch`, see `table_columns::extents`.
template <class Record>
[[nodiscard]] record_extents<Record> extents_of_columns(const table_columns& columns) {
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return record_extents<Record>{
        extents_in<typename Record::template field_at<Is>::extents_type>(columns.extents(Is))...};
  }(std::make_index_sequence<Record::size>{});
}

/// A table with the locations of the columns that become fields.
template <class Record>
class table_rows {
 public:
  /// `columns` are the columns of `table`. Row numbers in messages start at `first_row`. Throws
  /// what `table_columns::rows` throws.
  table_rows(arrow_table table, table_columns& columns, std::uint64_t first_row)
      : table_(std::move(table)) {
    for (std::size_t i = 0; i < table_.batches(); ++i) {
      auto rows = columns.rows(table_.batch(i), first_row + table_.first_row(i));
      std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
    }
  }

  /// Returns the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return table_.size(); }

  /// Copies sample `indices[i]` to its place in `out`, and the samples after it that are in the
  /// same batch. Copies column by column, so that the type of a column is checked once per run. The
  /// first row of the table is sample `first`. Returns the position in `indices` of the first
  /// sample that was not copied.
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

  /// Prefetches row `index`, which must be below `size()`, into the cache.
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
