// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/table/arrow_abi.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Owns an Arrow C structure and calls its `release` exactly once. The aliases are `arrow_schema`,
/// `arrow_array` and `arrow_stream`. Move-only. Contains the structure itself, because the
/// specification allows moving it to another address.
template <class Struct>
class arrow_owner {
 public:
  /// Creates an empty owner. A producer can write a structure to `address()`.
  arrow_owner() noexcept = default;
  /// Takes ownership of `*given` and marks `*given` as released, so that the caller can free its
  /// memory. Creates an empty owner if `given` is null or was released.
  explicit arrow_owner(Struct* given) noexcept {
    if (given == nullptr) return;
    value_ = *given;
    given->release = nullptr;
  }
  arrow_owner(arrow_owner&& other) noexcept : arrow_owner(&other.value_) {}
  /// Releases the previous structure.
  arrow_owner& operator=(arrow_owner&& other) noexcept {
    arrow_owner taken{std::move(other)};
    std::swap(value_, taken.value_);
    return *this;
  }
  ~arrow_owner() {
    if (value_.release != nullptr) value_.release(&value_);
  }

  /// Returns true if this object owns a structure.
  [[nodiscard]] explicit operator bool() const noexcept { return value_.release != nullptr; }
  /// Returns the structure.
  [[nodiscard]] const Struct& operator*() const noexcept { return value_; }
  /// Provides access to the members of the owned structure.
  [[nodiscard]] const Struct* operator->() const noexcept { return &value_; }
  /// Returns the address of the structure as an output parameter for the C interface. The owner
  /// must be empty, and then owns the structure that is written.
  [[nodiscard]] Struct* address() noexcept { return &value_; }
  /// Returns the structure without releasing it. The caller must release it.
  [[nodiscard]] Struct release() noexcept {
    const Struct given = value_;
    value_.release = nullptr;
    return given;
  }

 private:
  Struct value_{};
};

/// Owns a schema.
using arrow_schema = arrow_owner<ArrowSchema>;
/// Owns an array, which is a record batch.
using arrow_array = arrow_owner<ArrowArray>;
/// Owns a stream of record batches.
using arrow_stream = arrow_owner<ArrowArrayStream>;

static_assert(!std::is_copy_constructible_v<arrow_array>);
static_assert(std::is_nothrow_move_assignable_v<arrow_array>);

namespace detail {

/// Kinds of column values. Dates, times and durations are signed integers.
enum class arrow_kind : std::uint8_t {
  boolean,
  signed_integer,
  unsigned_integer,
  floating,
  fixed_binary,
  binary,        // byte strings or texts with 32-bit offsets
  large_binary,  // byte strings or texts with 64-bit offsets
  list,
  large_list,
  fixed_list,
  structure,
  view,  // binary, text and list views, which have their own layout
  other
};

/// Returns true for list types of fixed or variable size.
[[nodiscard]] constexpr bool is_list(arrow_kind kind) noexcept {
  return kind == arrow_kind::list || kind == arrow_kind::large_list ||
         kind == arrow_kind::fixed_list;
}

/// A type parsed from a format string.
struct arrow_type {
  arrow_kind kind = arrow_kind::other;
  // Bytes of a number or fixed-size binary, or elements of a fixed-size list.
  std::uint64_t size = 0;
  std::string words = {};  // type name for messages, such as "float32"
};

/// Returns the number after the colon in a format string such as "w:784". Returns 0 if `digits` is
/// not a positive number or does not fit into 31 bits.
[[nodiscard]] inline std::uint64_t arrow_length(std::string_view digits) noexcept {
  std::int32_t number = 0;
  const auto read_to = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_all = read_to.ec == std::errc{} && read_to.ptr == digits.data() + digits.size();
  return is_all && number > 0 ? static_cast<std::uint64_t>(number) : 0;
}

/// Parses a format string. For an unknown format, returns the kind `other` with the format as the
/// name.
[[nodiscard]] inline arrow_type arrow_type_of(std::string_view format) {
  using kind = arrow_kind;
  struct row {
    std::string_view format;
    kind is;
    std::uint64_t size;
    std::string_view words;
  };
  constexpr std::array rows{row{"b", kind::boolean, 1, "bool"},
                            row{"c", kind::signed_integer, 1, "int8"},
                            row{"C", kind::unsigned_integer, 1, "uint8"},
                            row{"s", kind::signed_integer, 2, "int16"},
                            row{"S", kind::unsigned_integer, 2, "uint16"},
                            row{"i", kind::signed_integer, 4, "int32"},
                            row{"I", kind::unsigned_integer, 4, "uint32"},
                            row{"l", kind::signed_integer, 8, "int64"},
                            row{"L", kind::unsigned_integer, 8, "uint64"},
                            row{"e", kind::floating, 2, "float16"},
                            row{"f", kind::floating, 4, "float32"},
                            row{"g", kind::floating, 8, "float64"},
                            row{"z", kind::binary, 0, "binary"},
                            row{"Z", kind::large_binary, 0, "large_binary"},
                            row{"u", kind::binary, 0, "utf8"},
                            row{"U", kind::large_binary, 0, "large_utf8"},
                            row{"vz", kind::view, 0, "binary_view"},
                            row{"vu", kind::view, 0, "utf8_view"},
                            row{"n", kind::other, 0, "null"},
                            row{"tdD", kind::signed_integer, 4, "date32"},
                            row{"tdm", kind::signed_integer, 8, "date64"},
                            row{"tts", kind::signed_integer, 4, "time32"},
                            row{"ttm", kind::signed_integer, 4, "time32"},
                            row{"ttu", kind::signed_integer, 8, "time64"},
                            row{"ttn", kind::signed_integer, 8, "time64"},
                            row{"tDs", kind::signed_integer, 8, "duration"},
                            row{"tDm", kind::signed_integer, 8, "duration"},
                            row{"tDu", kind::signed_integer, 8, "duration"},
                            row{"tDn", kind::signed_integer, 8, "duration"},
                            row{"+s", kind::structure, 0, "struct"},
                            row{"+l", kind::list, 0, "list"},
                            row{"+L", kind::large_list, 0, "large_list"},
                            row{"+vl", kind::view, 0, "list_view"},
                            row{"+vL", kind::view, 0, "large_list_view"},
                            row{"+m", kind::other, 0, "map"},
                            row{"+r", kind::other, 0, "run_end_encoded"}};
  for (const row& one : rows) {
    if (one.format == format) return {one.is, one.size, std::string{one.words}};
  }
  if (format.starts_with("w:")) {
    const std::uint64_t bytes = arrow_length(format.substr(2));
    if (bytes > 0) {
      return {kind::fixed_binary, bytes, "fixed_size_binary(" + std::to_string(bytes) + ")"};
    }
  }
  if (format.starts_with("+w:")) {
    const std::uint64_t length = arrow_length(format.substr(3));
    if (length > 0) return {kind::fixed_list, length, "fixed_size_list"};
  }
  if (format.size() > 3 && format.starts_with("ts") && format[3] == ':' &&
      std::string_view{"smun"}.find(format[2]) != std::string_view::npos) {
    return {kind::signed_integer, 8, "timestamp"};
  }
  return {kind::other, 0, "type '" + std::string{format.substr(0, 40)} + "'"};
}

/// Returns the column name, or "" for a column without a name.
[[nodiscard]] inline std::string arrow_name(const ArrowSchema& node) {
  return node.name == nullptr ? "" : node.name;
}

/// Formats the type of `node` for messages, for example "fixed_size_list<uint8>[784]".
/// `require_schema` must have checked the schema.
[[nodiscard]] inline std::string arrow_words(const ArrowSchema& node) {
  const arrow_type type = arrow_type_of(node.format);
  if (node.dictionary != nullptr) return "dictionary<" + type.words + ">";
  if (is_list(type.kind)) {
    const bool is_fixed = type.kind == arrow_kind::fixed_list;
    return type.words + "<" + arrow_words(*node.children[0]) + ">" +
           (is_fixed ? "[" + std::to_string(type.size) + "]" : "");
  }
  if (type.kind != arrow_kind::structure) return type.words;
  std::string all = "struct<";
  for (std::int64_t i = 0; i < node.n_children; ++i) {
    const ArrowSchema& child = *node.children[i];
    all += (i == 0 ? "" : ", ") + arrow_name(child) + ": " + arrow_words(child);
  }
  return all + ">";
}

/// Formats the columns of a table for messages, for example "label: int64, image:
/// fixed_size_list<uint8>[784]".
[[nodiscard]] inline std::string arrow_columns(const ArrowSchema& table) {
  std::string all = arrow_words(table).substr(std::string_view{"struct<"}.size());
  all.pop_back();
  return all.empty() ? "no column" : all;
}

}  // namespace detail

/// Thrown if a table does not have the expected form. The error names the table and the column, and
/// describes what was expected and what was found. Each kind of problem has its own derived type.
class [[gnu::visibility("default")]] table_error : public error {
 public:
  /// `where` is a file name or the object under construction. `column` is "" if the problem does
  /// not concern a single column. `advice` describes a remedy.
  table_error(std::string where, std::string column, std::string expected, std::string found,
              const std::string& advice = {})
      : error(where + ": " + (column.empty() ? "" : "column \"" + column + "\": ") + "expected " +
              expected + ", found " + found + (advice.empty() ? "" : ": " + advice)),
        where_(std::move(where)),
        column_(std::move(column)),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// Returns the file name or the object under construction.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  /// Returns the column name, or "" if the problem does not concern a single column.
  [[nodiscard]] const std::string& column() const noexcept { return column_; }
  /// Returns a description of what was expected.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// Returns a description of what was found.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string where_;
  std::string column_;
  std::string expected_;
  std::string found_;
};

/// Thrown if the table has no column with the required name, or several. `found()` lists all
/// columns.
class [[gnu::visibility("default")]] missing_column : public table_error {
 public:
  using table_error::table_error;
};

/// Thrown if the table has columns that no field reads and `extra_columns::reject` is set.
/// `found()` lists the extra columns.
class [[gnu::visibility("default")]] extra_column : public table_error {
 public:
  using table_error::table_error;
};

/// Thrown if a column type differs from its field or is not supported.
class [[gnu::visibility("default")]] column_type_mismatch : public table_error {
 public:
  using table_error::table_error;
};

/// Thrown if the lists of a column do not match the field extents, or differ in length between
/// rows.
class [[gnu::visibility("default")]] column_shape_mismatch : public table_error {
 public:
  using table_error::table_error;
};

/// Thrown if a value is null and `null_values::reject` is set, which is the default.
class [[gnu::visibility("default")]] null_in_column : public table_error {
 public:
  /// `row` is the row index in the whole table.
  null_in_column(std::string where, std::string column, std::uint64_t row,
                 const std::string& advice)
      : table_error(std::move(where), std::move(column), "a value in row " + std::to_string(row),
                    "null", advice),
        row_(row) {}

  /// Returns the row index, counted over all batches.
  [[nodiscard]] std::uint64_t row() const noexcept { return row_; }

 private:
  std::uint64_t row_;
};

/// Thrown if Arrow structures from a producer are invalid, for example because of a wrong count,
/// length, offset or pointer. No values were read.
class [[gnu::visibility("default")]] arrow_invalid : public table_error {
 public:
  using table_error::table_error;
};

/// Thrown if the producer of an Arrow stream reports a failure. `found()` returns the producer's
/// message.
class [[gnu::visibility("default")]] arrow_stream_failed : public table_error {
 public:
  /// `code` is the errno value returned by the producer.
  arrow_stream_failed(std::string where, std::string expected, std::string found, int code)
      : table_error(std::move(where), {}, std::move(expected), std::move(found)), code_(code) {}

  /// Returns the errno value returned by the producer.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

/// 32-bit or 64-bit offsets at any alignment.
class arrow_offsets {
 public:
  /// Creates an empty object.
  arrow_offsets() noexcept = default;
  /// References the offsets in `buffer`, starting at index `begin`.
  arrow_offsets(const std::byte* buffer, bool is_large, std::uint64_t begin) noexcept
      : first_(buffer + begin * (is_large ? sizeof(std::int64_t) : sizeof(std::int32_t))),
        is_large_(is_large) {}

  [[nodiscard]] std::int64_t operator[](std::uint64_t index) const noexcept {
    return is_large_ ? value<std::int64_t>(index) : value<std::int32_t>(index);
  }

 private:
  template <class Offset>
  [[nodiscard]] Offset value(std::uint64_t index) const noexcept {
    Offset found = 0;
    std::memcpy(&found, first_ + index * sizeof found, sizeof found);
    return found;
  }

  const std::byte* first_ = nullptr;
  bool is_large_ = false;
};

/// Validates Arrow structures from a producer before they are used. Buffer contents are checked
/// when they are read. Buffer sizes cannot be checked, because the interface does not contain them.
class arrow_check {
 public:
  /// `where` and `column` are used in messages and must outlive this object.
  constexpr arrow_check(std::string_view where, std::string_view column) noexcept
      : where_(where), column_(column) {}

  [[noreturn]] void reject(std::string expected, std::string found) const {
    throw arrow_invalid(std::string{where_}, std::string{column_}, std::move(expected),
                        std::move(found),
                        "the producer of the Arrow data is faulty, or the structures were freed");
  }

  /// Validates a schema and its children.
  void require_schema(const ArrowSchema& node, int depth = 0) const {
    constexpr int deepest = 64;
    if (depth > deepest) reject("types nested at most 64 deep", "deeper nesting");
    if (node.release == nullptr) reject("a type", "a released type");
    if (node.format == nullptr) reject("a type's format", "a null pointer");
    if (node.n_children < 0) reject("0 or more children", std::to_string(node.n_children));
    if (node.n_children > 0 && node.children == nullptr) {
      reject(std::to_string(node.n_children) + " children", "a null pointer");
    }
    if (is_list(arrow_type_of(node.format).kind) && node.n_children != 1) {
      reject("1 child of a list", std::to_string(node.n_children));
    }
    for (std::int64_t i = 0; i < node.n_children; ++i) {
      if (node.children[i] == nullptr) reject("a child", "a null pointer");
      require_schema(*node.children[i], depth + 1);
    }
  }

  /// Validates that an array has the given numbers of buffers and children, and contains the values
  /// [`begin`, `begin + count`). The validity bitmap may be missing only if no value is null.
  void require_array(const ArrowArray& array, std::int64_t buffers, std::int64_t children,
                     std::uint64_t begin, std::uint64_t count) const {
    if (array.release == nullptr) reject("an array", "a released array");
    if (array.length < 0) reject("a length of 0 or more", std::to_string(array.length));
    if (array.offset < 0) reject("an offset of 0 or more", std::to_string(array.offset));
    if (array.length > max || array.offset > max) {
      reject("at most " + std::to_string(max) + " values",
             std::to_string(array.length) + " at offset " + std::to_string(array.offset));
    }
    const auto length = static_cast<std::uint64_t>(array.length);
    if (begin > length || count > length - begin) {
      reject(std::to_string(count) + " values at offset " + std::to_string(begin),
             "an array of " + std::to_string(length));
    }
    if (array.null_count < -1 || array.null_count > array.length) {
      reject("0 to " + std::to_string(array.length) + " nulls", std::to_string(array.null_count));
    }
    if (array.n_buffers != buffers) {
      reject(std::to_string(buffers) + " buffers", std::to_string(array.n_buffers));
    }
    if (array.buffers == nullptr) reject("buffers", "a null pointer");
    if (array.null_count > 0 && array.buffers[0] == nullptr) {
      reject("a bitmap for " + std::to_string(array.null_count) + " nulls", "a null pointer");
    }
    if (array.dictionary != nullptr) {
      reject("no dictionary, according to the type", "an array with a dictionary");
    }
    if (array.n_children != children) {
      reject(std::to_string(children) + " children", std::to_string(array.n_children));
    }
    if (children > 0 && array.children == nullptr) reject("children", "a null pointer");
    for (std::int64_t i = 0; i < children; ++i) {
      if (array.children[i] == nullptr) reject("a child", "a null pointer");
    }
  }

  /// Returns buffer `index` of an array. Throws `arrow_invalid` if the buffer is null.
  [[nodiscard]] const std::byte* require_buffer(const ArrowArray& array, std::int64_t index) const {
    if (array.buffers[index] == nullptr) reject("a buffer of values", "a null pointer");
    return static_cast<const std::byte*>(array.buffers[index]);
  }

  /// Returns the `count + 1` offsets of an array starting at index `begin`. Throws `arrow_invalid`
  /// if the first offset is negative, or if an offset is smaller than the previous offset.
  [[nodiscard]] arrow_offsets require_offsets(const ArrowArray& array, bool is_large,
                                              std::uint64_t begin, std::uint64_t count) const {
    const arrow_offsets all{require_buffer(array, 1), is_large, begin};
    if (all[0] < 0) reject("an offset of 0 or more", std::to_string(all[0]));
    for (std::uint64_t i = 1; i <= count; ++i) {
      if (all[i] >= all[i - 1]) continue;
      reject("offset " + std::to_string(begin + i) + " to be " + std::to_string(all[i - 1]) +
                 " or more",
             std::to_string(all[i]));
    }
    return all;
  }

 private:
  // Prevents overflow in sums of several such values. Products with sizes are checked separately.
  static constexpr std::int64_t max = std::int64_t{1} << 40;

  std::string_view where_;
  std::string_view column_;
};

/// Returns bit `index` in Arrow bit order, least significant bit first.
[[nodiscard]] inline bool bit_at(const std::byte* bits, std::uint64_t index) noexcept {
  return (std::to_integer<unsigned>(bits[index / 8]) >> (index % 8) & 1U) != 0;
}

/// Returns the position, relative to `begin`, of the first 0 among the `count` bits starting at
/// `begin`. Returns `count` if all bits are 1.
[[nodiscard]] inline std::uint64_t first_zero_bit(const std::byte* bits, std::uint64_t begin,
                                                  std::uint64_t count) noexcept {
  std::uint64_t i = 0;
  while (i < count) {
    if ((begin + i) % 8 == 0 && count - i >= 64) {
      std::uint64_t word = 0;
      std::memcpy(&word, bits + (begin + i) / 8, sizeof word);
      if (word == ~std::uint64_t{0}) {
        i += 64;
        continue;
      }
    }
    if (!bit_at(bits, begin + i)) return i;
    ++i;
  }
  return count;
}

}  // namespace detail

/// Handling of null values.
enum class null_values : std::uint8_t {
  reject,            ///< throws `null_in_column` with the column and the row
  value_initialised  ///< reads 0, an empty byte string or a list of zeros
};

/// Handling of columns that no field reads.
enum class extra_columns : std::uint8_t {
  ignore,  ///< ignores extra columns
  reject   ///< throws `extra_column` with the names of the extra columns
};

/// Maps table columns to record fields.
struct table_options {
  /// Column names in field order. If empty, each field reads the column with its own name.
  /// "image.bytes" is the member `bytes` of the struct column `image`, unless a column has that
  /// exact name.
  std::vector<std::string> columns = {};
  /// Handling of null values.
  null_values null = null_values::reject;
  /// Handling of columns that no field reads.
  extra_columns extra = extra_columns::ignore;
};

/// A table from another library: a schema and record batches. Row indices continue across batches.
/// No data is copied.
///
///     ps::arrow_table table{ps::arrow_stream{&stream}};   // an ArrowArrayStream from pyarrow
///     ps::arrow_dataset<digit> digits{table};
///
/// Copies share the batches. The thread that destroys the last copy releases the batches. A
/// producer's `release` must acquire the Python GIL itself if needed. The memory must not change
/// while the table exists. Reading is thread-safe.
class arrow_table {
 public:
  /// Reads and keeps all batches of `stream`. Throws `arrow_stream_failed` if the producer reports
  /// a failure, and `arrow_invalid` if the batches are not a valid table. Always releases the
  /// stream.
  arrow_table(arrow_stream stream)  // NOLINT: implicit, so that a stream converts to a table
      : content_(read(std::move(stream))) {}
  /// Creates a table from batches of structs with the type `schema`. Throws `arrow_invalid` after
  /// releasing all batches.
  arrow_table(arrow_schema schema, std::vector<arrow_array> batches)
      : content_(std::make_shared<content>()) {
    content_->schema = std::move(schema);
    require_table(*content_);
    for (arrow_array& batch : batches) add(*content_, std::move(batch));
  }
  /// Creates a table from one batch. Throws the same errors as the constructor for several batches.
  arrow_table(arrow_schema schema, arrow_array batch)
      : arrow_table(std::move(schema), std::vector<arrow_array>{}) {
    add(*content_, std::move(batch));
  }

  /// Returns the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept {
    return content_->ends.empty() ? 0 : content_->ends.back();
  }
  /// Returns the number of non-empty batches.
  [[nodiscard]] std::size_t batches() const noexcept { return content_->batches.size(); }
  /// Returns the schema of the batches.
  [[nodiscard]] const ArrowSchema& schema() const noexcept { return *content_->schema; }
  /// Returns batch `number`. `number` must be less than `batches()`.
  [[nodiscard]] const ArrowArray& batch(std::size_t number) const noexcept {
    return *content_->batches[number];
  }
  /// Returns the index of the first row in batch `number`. `number` must be less than `batches()`.
  [[nodiscard]] std::uint64_t first_row(std::size_t number) const noexcept {
    return number == 0 ? 0 : content_->ends[number - 1];
  }
  /// Returns the index of the batch that contains row `index`, in O(log batches) time. `index` must
  /// be less than `size()`.
  [[nodiscard]] std::size_t batch_of(std::uint64_t index) const noexcept {
    const auto after = std::upper_bound(content_->ends.begin(), content_->ends.end(), index);
    return static_cast<std::size_t>(after - content_->ends.begin());
  }

 private:
  struct content {
    arrow_schema schema;
    std::vector<arrow_array> batches;  // non-empty batches only
    std::vector<std::uint64_t> ends;   // one past the last row of each batch
  };

  static constexpr std::string_view name{"arrow_table"};  // name in messages
  static constexpr detail::arrow_check check{name, {}};

  static void require_table(const content& table) {
    if (!table.schema) check.reject("a type", "no type, or a released type");
    check.require_schema(*table.schema);
    if (std::string_view{table.schema->format} != "+s" || table.schema->dictionary != nullptr) {
      check.reject("a struct, whose members are the columns", detail::arrow_words(*table.schema));
    }
  }

  static void add(content& table, arrow_array batch) {
    if (!batch) check.reject("a batch", "no batch, or a released batch");
    const auto rows = static_cast<std::uint64_t>(batch->length);
    check.require_array(*batch, 1, table.schema->n_children, 0, batch->length < 0 ? 0 : rows);
    const auto offset = static_cast<std::uint64_t>(batch->offset);
    const auto* const bits = static_cast<const std::byte*>(batch->buffers[0]);
    if (bits != nullptr && detail::first_zero_bit(bits, offset, rows) < rows) {
      check.reject("rows", "a row that is null");
    }
    if (rows == 0) return;
    const std::uint64_t before = table.ends.empty() ? 0 : table.ends.back();
    table.batches.push_back(std::move(batch));
    table.ends.push_back(before + rows);
  }

  [[nodiscard]] static std::shared_ptr<content> read(arrow_stream stream) {
    if (!stream) check.reject("a stream", "no stream, or a released stream");
    auto table = std::make_shared<content>();
    ArrowArrayStream* const from = stream.address();
    if (from->get_schema == nullptr || from->get_next == nullptr ||
        from->get_last_error == nullptr) {
      check.reject("a stream's functions", "a null pointer");
    }
    require_done(from, from->get_schema(from, table->schema.address()), "the type of a stream");
    require_table(*table);
    while (true) {
      arrow_array batch;
      require_done(from, from->get_next(from, batch.address()), "the next batch of a stream");
      if (!batch) return table;
      add(*table, std::move(batch));
    }
  }

  static void require_done(ArrowArrayStream* stream, int code, const char* expected) {
    if (code == 0) return;
    const char* const words = stream->get_last_error(stream);
    throw arrow_stream_failed(std::string{name}, expected,
                              words == nullptr ? "error " + std::to_string(code) : words, code);
  }

  std::shared_ptr<content> content_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
