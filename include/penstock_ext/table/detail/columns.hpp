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
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/arrow_table.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a field asks of its column.
struct column_wish {
  std::string column;   // its name
  std::string element;  // the element's type for people: "float32"
  std::size_t element_bytes = 0;
  bool (*takes)(const arrow_type&) = nullptr;  // whether an element may be of this type
  std::span<const std::size_t> extents = {};   // of the field, each fixed or `dyn`
};

/// A list around the elements of a column.
struct list_level {
  arrow_kind kind = arrow_kind::fixed_list;
  std::uint64_t length = 0;  // 0: as long as the list of the first row, which was not seen yet
};

/// A step from a table, or a struct in it, to one of its members.
struct member_step {
  std::size_t child = 0;     // which one
  std::int64_t members = 0;  // of how many
};

/// The way to a column: from the table, through structs.
using column_path = std::vector<member_step>;

/// Where a column is in its table, and what its rows are made of.
struct column_plan {
  std::string where = {};  // of the table, for messages: a file, or what is to be made of it
  std::string name = {};
  std::string words = {};  // its type, for people
  column_path path = {};
  std::vector<list_level> lists = {};  // the outermost first
  arrow_type element = {};             // what is inside of them

  /// How many elements a row has, all lists taken together.
  [[nodiscard]] std::uint64_t row_elements() const noexcept {
    std::uint64_t all = 1;
    for (const list_level& one : lists) all *= one.length;
    return all;
  }
};

/// Throws `column_type_mismatch`, with what to do about the type.
[[noreturn]] inline void refuse_type(const column_plan& plan, std::string expected) {
  std::string advice = "convert the column, or name its own type in the record";
  const arrow_kind kind = plan.element.kind;
  if (kind == arrow_kind::view) {
    advice =
        "views have another layout: cast to binary, utf8 or list before, in polars by "
        "to_arrow(compat_level=CompatLevel.oldest())";
  } else if (kind == arrow_kind::binary || kind == arrow_kind::large_binary) {
    advice =
        "rows of different lengths are no field: read them by arrow_blobs, or write "
        "fixed_size_binary";
  }
  throw column_type_mismatch(plan.where, plan.name, std::move(expected), plan.words, advice);
}

/// The children of `node` called `name`.
[[nodiscard]] inline std::vector<std::size_t> children_called(const ArrowSchema& node,
                                                              std::string_view name) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < static_cast<std::size_t>(node.n_children); ++i) {
    if (arrow_name(*node.children[i]) == name) found.push_back(i);
  }
  return found;
}

/// The child of `table` called `name`, or of structs in it: "image.bytes"; and what is inside of
/// its lists. Throws `missing_column`, and `column_type_mismatch` for dictionaries, with the type
/// that is `expected`.
[[nodiscard]] inline column_plan plan_column(const ArrowSchema& table, std::string_view where,
                                             const std::string& name, std::string expected) {
  column_plan plan{.where = std::string{where}, .name = name};
  const ArrowSchema* node = &table;
  std::string_view rest = name;
  while (true) {
    std::string_view part = rest;
    std::vector<std::size_t> found = children_called(*node, part);
    // The longest beginning of the name up to a dot that is a struct's name.
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
          plan.where, name, "one such column",
          (found.empty() ? "" : std::to_string(found.size()) + " among ") + arrow_columns(table),
          "name it in .columns, or select and rename columns before");
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
          "decode the dictionary before, in pyarrow by column.cast(column.type.value_type)");
    }
    if (!is_list(plan.element.kind)) return plan;
    plan.lists.push_back({plan.element.kind, plan.element.size});
    node = node->children[0];
  }
}

/// A column of byte strings. Throws `missing_column` and `column_type_mismatch`.
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

/// A column of labels. Throws `missing_column` and `column_type_mismatch`.
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
    // Numbers are moved in registers: a call for each takes most of a row's time.
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
    // Short rows come with their neighbours; a prefetch costs more than it brings.
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
    constexpr std::size_t at_once = 16 / Bytes;  // one store of a register
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

/// Labels of one batch: integers of any size, or bits.
class label_rows {
 public:
  /// `rows` are of one number each.
  label_rows(column_rows rows, bool is_signed) : rows_(std::move(rows)), is_signed_(is_signed) {}

  /// Row `row` of the batch.
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
  // Of a size that the compiler knows: a call of memcpy takes most of the time.
  template <class T>
  [[nodiscard]] std::int64_t number(std::uint64_t row) const noexcept {
    T value{};
    rows_.copy(row, reinterpret_cast<std::byte*>(&value), sizeof value);
    return value;
  }

  column_rows rows_;
  bool is_signed_;
};

/// Byte strings of one batch.
class blob_rows {
 public:
  /// Those between offsets.
  blob_rows(const std::byte* data, arrow_offsets offsets, std::vector<null_level> nulls)
      : data_(data), offsets_(offsets), nulls_(std::move(nulls)) {}
  /// Those of `size` bytes each, without gaps.
  blob_rows(const std::byte* data, std::uint64_t size, std::vector<null_level> nulls)
      : data_(data), size_(size), nulls_(std::move(nulls)) {}

  /// Row `row` of the batch.
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
  std::uint64_t size_ = 0;  // 0: as the offsets say
  std::vector<null_level> nulls_;
};

/// A batch of a table. It has rows.
struct batch_place {
  const ArrowArray& batch;
  std::uint64_t first_row;  // its number in the table, for messages
  null_values null;
};

/// Goes from a batch of a table to the values of one of its columns, once, and looks at each array
/// on the way before it is relied on. Throws `null_in_column` and `arrow_invalid`.
class column_walk {
 public:
  /// Refers to the plan.
  column_walk(column_plan& plan, const batch_place& of) noexcept
      : plan_(plan), of_(of), check_(plan.where, plan.name) {}

  /// The rows of the column where they lie. Lengths of lists that are not known are taken from the
  /// first row, and written to the plan. Throws `column_shape_mismatch` too.
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

  /// Those of a column of labels. Throws `table_error` too, for a number that a label has no room
  /// for.
  [[nodiscard]] label_rows labels() {
    const bool is_signed = plan_.element.kind == arrow_kind::signed_integer;
    label_rows all{rows(), is_signed};
    // The one type whose numbers may not fit.
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

  /// Those of a column of byte strings.
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
  // A part of an array: `count` of its values from `begin` on.
  struct array_part {
    const ArrowArray* array;
    std::uint64_t begin;
    std::uint64_t count;
  };

  // Follows the enclosing structs down to the column's array.
  [[nodiscard]] array_part column() {
    array_part at{&of_.batch, static_cast<std::uint64_t>(of_.batch.offset),
                  static_cast<std::uint64_t>(of_.batch.length)};
    for (std::size_t i = 0; i < plan_.path.size(); ++i) {
      // The table itself was looked at as it came.
      if (i > 0) at = enter(at, 1, plan_.path[i].members, 1);
      at.array = at.array->children[plan_.path[i].child];
    }
    return at;
  }

  // Looks at an array, of whose values there are `per_row` a row, and counts its offset. Refuses
  // nulls among them, or keeps where they are.
  [[nodiscard]] array_part enter(array_part at, std::int64_t buffers, std::int64_t children,
                                 std::uint64_t per_row) {
    check_.require_array(*at.array, buffers, children, at.begin, at.count);
    at.begin += static_cast<std::uint64_t>(at.array->offset);
    const auto* const bits = static_cast<const std::byte*>(at.array->buffers[0]);
    if (bits == nullptr) return at;
    // The bitmap counts, not null_count.
    const std::uint64_t place = first_zero_bit(bits, at.begin, at.count);
    if (place == at.count) return at;
    if (of_.null == null_values::refuse) {
      throw null_in_column(plan_.where, plan_.name, of_.first_row + place / per_row,
                           "fill or drop nulls before, or set .null = "
                           "null_values::value_initialised for zeros");
    }
    nulls_.push_back({bits, at.begin, per_row, 0});
    return at;
  }

  // From lists to what is inside of them.
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
          "pad them, or write fixed_size_list; a list that is null has to have that length too");
    }
    at = {inside, static_cast<std::uint64_t>(offsets[0]), at.count * list.length};
  }

  // Throws where so many values have more bytes than an address can count.
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
  std::vector<null_level> nulls_;  // those that were kept
};

/// A column as the values of a field: by these rules, and no others.
/// - Lists inside each other are the field's extents, one each, or one list is all of them.
/// - Lists of variable length need one length in all rows; `dyn` takes that of the first row.
/// - A fixed_size_binary is the bytes of the whole field, of any type but bool, as the machine has
///   them.
class field_column {
 public:
  /// Throws `missing_column`, `column_type_mismatch` and `column_shape_mismatch`. `where` is said
  /// in messages.
  field_column(const ArrowSchema& table, std::string_view where, column_wish wish)
      : wish_(std::move(wish)), plan_(plan_column(table, where, wish_.column, expected())) {
    is_bytes_ = plan_.element.kind == arrow_kind::fixed_binary && plan_.lists.empty();
    // A bool has two values, and a byte any.
    const bool fits = is_bytes_ ? wish_.element != "bool" : wish_.takes(plan_.element);
    if (!fits) refuse_type(plan_, expected());
    const std::size_t rank = wish_.extents.size();
    const bool is_flat = plan_.lists.size() == 1 && rank > 1;
    if (!is_bytes_ && !is_flat && plan_.lists.size() != rank) refuse_shape(plan_.words);
    // A list of variable length has the field's length, where that is fixed.
    for (std::size_t d = 0; d < plan_.lists.size(); ++d) {
      std::uint64_t& length = plan_.lists[d].length;
      if (length > 0) continue;
      if (is_flat) {
        length = fixed_product().second == 0 ? fixed_product().first : 0;
      } else if (wish_.extents[d] != dyn) {
        length = wish_.extents[d];
      }
    }
    if (is_settled()) (void)extents();
  }

  /// Whether all lengths are known. If not, the rows of the first batch determine the others.
  [[nodiscard]] bool is_settled() const noexcept { return is_bytes_ || plan_.row_elements() > 0; }

  /// The field's extents. Throws `column_shape_mismatch`, also where not all lengths are known.
  [[nodiscard]] std::vector<std::size_t> extents() const {
    if (!is_settled()) refuse_shape("no row, which says how long its lists are");
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

  /// The rows of a batch. Throws what `column_walk::rows` throws, and `column_shape_mismatch`.
  [[nodiscard]] column_rows rows(const batch_place& of) {
    column_rows found = column_walk{plan_, of}.rows();
    (void)extents();
    return found;
  }

  [[nodiscard]] const column_plan& plan() const noexcept { return plan_; }

  /// What to say about a column that is slow to decode; "" for the others.
  [[nodiscard]] std::string warning() const {
    if (plan_.lists.empty() || plan_.element.size != 1) return {};
    const std::string length =
        plan_.row_elements() == 0 ? "" : "(" + std::to_string(plan_.row_elements()) + ")";
    return plan_.where + ": column \"" + plan_.name + "\" is " + plan_.words +
           ": Parquet decodes lists of bytes one by one, which takes many times as long as "
           "fixed_size_binary" +
           length + " of the same bytes: write it as that";
  }

 private:
  // The product of the fixed extents, or a number that no list is as long as; and how many extents
  // are dynamic.
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
        "lists inside each other are the field's extents, or one list is all of them; of one that "
        "is all, or of a fixed_size_binary, one extent may be dyn");
  }

  column_wish wish_;
  column_plan plan_;
  bool is_bytes_ = false;
};

/// The end of the samples `indices`, from number `i` on, that lie side by side among the `rows` rows
/// from `first` on; sample `i` does.
[[nodiscard]] inline std::size_t run_end(std::span<const std::uint64_t> indices, std::size_t i,
                                         std::uint64_t first, std::uint64_t rows) noexcept {
  std::size_t end = i + 1;
  while (end < indices.size() && indices[end] >= first && indices[end] - first < rows) ++end;
  return end;
}

/// The columns of a table that are the fields of a record.
class table_columns {
 public:
  /// Finds the columns in the table's type. Throws `missing_column`, `column_type_mismatch`,
  /// `column_shape_mismatch`, `extra_column`, and `option_error` for another number of columns than
  /// fields. `where` stands in messages.
  table_columns(const ArrowSchema& table, std::vector<column_wish> wishes,
                const table_options& options, std::string_view where)
      : null_(options.null) {
    if (!options.columns.empty() && options.columns.size() != wishes.size()) {
      refuse_option("columns",
                    {"must name ", wishes.size(), " columns, one for each field, or none; names ",
                     options.columns.size()});
    }
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      if (!options.columns.empty()) wishes[i].column = options.columns[i];
      fields_.emplace_back(table, where, std::move(wishes[i]));
    }
    if (options.extra == extra_columns::refuse) require_no_other(table, where);
  }

  /// Whether the type alone determines the extents of all fields.
  [[nodiscard]] bool is_settled() const noexcept {
    return std::all_of(fields_.begin(), fields_.end(),
                       [](const field_column& one) { return one.is_settled(); });
  }

  /// The rows of a batch, field by field; its first row is number `first_row` of the table. The
  /// first batch also determines the extents that the type leaves open. Throws what
  /// `field_column::rows` throws.
  [[nodiscard]] std::vector<column_rows> rows(const ArrowArray& batch, std::uint64_t first_row) {
    std::vector<column_rows> all;
    all.reserve(fields_.size());
    for (field_column& field : fields_) all.push_back(field.rows({batch, first_row, null_}));
    return all;
  }

  /// The extents of field `index`, once a batch was looked at. Throws `column_shape_mismatch` where
  /// there was none, and it should have said them.
  [[nodiscard]] std::vector<std::size_t> extents(std::size_t index) const {
    return fields_[index].extents();
  }

  /// The name of the column of field `index`.
  [[nodiscard]] const std::string& column(std::size_t index) const noexcept {
    return fields_[index].plan().name;
  }

  /// What there is to say about columns that are slow to decode.
  [[nodiscard]] std::vector<std::string> warnings() const {
    std::vector<std::string> all;
    for (const field_column& one : fields_) {
      if (auto text = one.warning(); !text.empty()) all.push_back(std::move(text));
    }
    return all;
  }

  /// The ways to the columns of the fields, in the record's order.
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
    throw extra_column(std::string{where}, {}, "no columns but those of the fields", others,
                       "select the columns before, or leave .extra at extra_columns::ignore");
  }

  null_values null_;
  std::vector<field_column> fields_;
};

/// Whether T, of two bytes, is a half as Arrow has it, and not a bfloat16: by the bits of its 1. A
/// type that no float makes is taken at its word.
template <class T>
[[nodiscard]] bool is_half_float() noexcept {
  if constexpr (sizeof(T) != 2) {
    return false;
  } else if constexpr (std::is_constructible_v<T, float> && !std::is_aggregate_v<T>) {
    return std::bit_cast<std::uint16_t>(static_cast<T>(1.0F)) == 0x3c00;
  } else {
    return true;
  }
}

/// What a column's elements are that are elements of T.
template <class T>
[[nodiscard]] consteval arrow_kind element_kind() {
  if (std::same_as<T, bool>) return arrow_kind::boolean;
  if (std::same_as<T, std::byte>) return arrow_kind::unsigned_integer;
  if (std::integral<T>) {
    return std::is_signed_v<T> ? arrow_kind::signed_integer : arrow_kind::unsigned_integer;
  }
  // __half and the like have two bytes.
  return std::floating_point<T> || sizeof(T) == 2 ? arrow_kind::floating : arrow_kind::other;
}

/// Whether a column's elements of this type are elements of T, bit by bit or, of bool, by value.
template <class T>
[[nodiscard]] bool takes_elements(const arrow_type& type) noexcept {
  const bool is_half = type.kind == arrow_kind::floating && type.size == 2;
  if (std::same_as<T, std::uint8_t> && type.kind == arrow_kind::boolean) return true;
  if (std::same_as<T, std::uint16_t> && is_half) return true;
  return type.kind == element_kind<T>() && type.size == sizeof(T) &&
         (!is_half || is_half_float<T>());
}

/// The name of a column's type whose elements are elements of T.
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

/// What a field of type T and these extents asks of a column called `name`.
template <class T, std::size_t... Extents>
[[nodiscard]] column_wish wish_of(std::string name, std::type_identity<extents<Extents...>>) {
  static constexpr std::array<std::size_t, sizeof...(Extents)> lengths{Extents...};
  return {std::move(name), element_words<T>(), sizeof(T), &takes_elements<T>, lengths};
}

/// What each field of a record asks of the column that is called as it.
template <class... Fields>
[[nodiscard]] std::vector<column_wish> wishes_of(std::type_identity<record<Fields...>>) {
  return {wish_of<typename Fields::value_type>(
      Fields::key.str(), std::type_identity<typename Fields::extents_type>{})...};
}

/// The extents of the record's fields, those that the columns have. Throws
/// `column_shape_mismatch`, see `table_columns::extents`.
template <class Record>
[[nodiscard]] record_extents<Record> extents_of_columns(const table_columns& columns) {
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return record_extents<Record>{
        extents_in<typename Record::template field_at<Is>::extents_type>(columns.extents(Is))...};
  }(std::make_index_sequence<Record::size>{});
}

/// A table, and where the columns that are fields lie in it.
template <class Record>
class table_rows {
 public:
  /// `columns` are the table's. Messages count its rows from `first_row` on. Throws what
  /// `table_columns::rows` throws.
  table_rows(arrow_table table, table_columns& columns, std::uint64_t first_row)
      : table_(std::move(table)) {
    for (std::size_t i = 0; i < table_.batches(); ++i) {
      auto rows = columns.rows(table_.batch(i), first_row + table_.first_row(i));
      std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
    }
  }

  /// How many rows there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return table_.size(); }

  /// Copies sample `i` of `indices` to its place in `out`, and those after it that lie in the same
  /// batch: column by column, so that what a column is is asked once. The first row is sample
  /// `first`. Returns the first sample that is left.
  std::size_t copy(std::uint64_t first, std::span<const std::uint64_t> indices, std::size_t i,
                   batch_view<Record> out, const chunk_context& context,
                   const batch_layout<Record>& layout) const {
    const std::size_t batch = table_.batch_of(indices[i] - first);
    const std::uint64_t begin = first + table_.first_row(batch);
    const std::size_t end =
        run_end(indices, i, begin, static_cast<std::uint64_t>(table_.batch(batch).length));
    const auto run = indices.subspan(i, end - i);
    context.subrun(i, run.size()).at_all();
    const auto place = out.subrun(i, run.size())[0];
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (columns_of(batch)[Is].gather(run, begin, place.address(Is),
                                    layout.template sample_bytes<Is>()),
       ...);
    }(std::make_index_sequence<Record::size>{});
    return end;
  }

  /// Brings row `index`, below `size()`, nearer.
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
  std::vector<column_rows> rows_;  // batch by batch, field by field
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
