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

/// Owns one of Arrow's structures and calls its `release` once: `arrow_schema`, `arrow_array` and
/// `arrow_stream`. Move-only. Stores the structure itself. The specification allows copying it to
/// another address if only one copy stays in use.
template <class Struct>
class arrow_owner {
 public:
  /// Creates an owner of nothing. A producer can write a structure to `address()`.
  arrow_owner() noexcept = default;
  /// Takes ownership of `*given`, and marks `*given` as released, so that the caller can free its
  /// memory. Owns nothing if `given` is null or was released.
  explicit arrow_owner(Struct* given) noexcept {
    if (given == nullptr) return;
    value_ = *given;
    given->release = nullptr;
  }
  arrow_owner(arrow_owner&& other) noexcept : arrow_owner(&other.value_) {}
  /// Releases the structure that it owned.
  arrow_owner& operator=(arrow_owner&& other) noexcept {
    arrow_owner taken{std::move(other)};
    std::swap(value_, taken.value_);
    return *this;
  }
  ~arrow_owner() {
    if (value_.release != nullptr) value_.release(&value_);
  }

  /// Returns true if it owns a structure.
  [[nodiscard]] explicit operator bool() const noexcept { return value_.release != nullptr; }
  /// Returns the structure for reading.
  [[nodiscard]] const Struct& operator*() const noexcept { return value_; }
  /// Gives access to the members of the structure for reading.
  [[nodiscard]] const Struct* operator->() const noexcept { return &value_; }
  /// Returns the structure's address, which a call to the C interface may write to. This object
  /// must be empty before, and owns the structure that is written.
  [[nodiscard]] Struct* address() noexcept { return &value_; }
  /// Gives up ownership and returns the structure. The caller must release it.
  [[nodiscard]] Struct release() noexcept {
    const Struct given = value_;
    value_.release = nullptr;
    return given;
  }

 private:
  Struct value_{};
};

/// Owns a type.
using arrow_schema = arrow_owner<ArrowSchema>;
/// Owns values: a batch of rows.
using arrow_array = arrow_owner<ArrowArray>;
/// Owns a stream of batches.
using arrow_stream = arrow_owner<ArrowArrayStream>;

static_assert(!std::is_copy_constructible_v<arrow_array>);
static_assert(std::is_nothrow_move_assignable_v<arrow_array>);

namespace detail {

/// The kind of values that a type has. Dates, times and durations are signed integers here.
enum class arrow_kind : std::uint8_t {
  boolean,
  signed_integer,
  unsigned_integer,
  floating,
  fixed_binary,
  binary,        // byte strings or texts, with offsets of 32 bits
  large_binary,  // byte strings or texts, with offsets of 64 bits
  list,
  large_list,
  fixed_list,
  structure,
  view,  // views of binary, texts and lists, which have their own layout
  other
};

/// Returns true for types whose values are lists of another type, of fixed or variable length.
[[nodiscard]] constexpr bool is_list(arrow_kind kind) noexcept {
  return kind == arrow_kind::list || kind == arrow_kind::large_list ||
         kind == arrow_kind::fixed_list;
}

/// A type, parsed from a format string.
struct arrow_type {
  arrow_kind kind = arrow_kind::other;
  std::uint64_t size = 0;  // bytes of a number or fixed binary; elements of a fixed list
  std::string words = {};  // name for people: "float32"
};

/// Returns the number in the digits after a colon, as in "w:784". Returns 0 if `digits` is not a
/// positive number or does not fit in 31 bits.
[[nodiscard]] inline std::uint64_t arrow_length(std::string_view digits) noexcept {
  std::int32_t number = 0;
  const auto read_to = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_all = read_to.ec == std::errc{} && read_to.ptr == digits.data() + digits.size();
  return is_all && number > 0 ? static_cast<std::uint64_t>(number) : 0;
}

/// Parses a format string. An unknown format has the kind `other`, with the format as its name.
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

/// Returns the name of a column, or "" if it has no name.
[[nodiscard]] inline std::string arrow_name(const ArrowSchema& node) {
  return node.name == nullptr ? "" : node.name;
}

/// Formats the type of `node` for people: "fixed_size_list<uint8>[784]". `require_schema` must have
/// checked the schema.
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

/// Formats the columns of a table for people: "label: int64, image: fixed_size_list<uint8>[784]".
[[nodiscard]] inline std::string arrow_columns(const ArrowSchema& table) {
  std::string all = arrow_words(table).substr(std::string_view{"struct<"}.size());
  all.pop_back();
  return all.empty() ? "no column" : all;
}

}  // namespace detail

/// Thrown if a table does not have the expected form. Contains the table, the column, what was
/// expected and what was found. The derived types distinguish the problems.
class [[gnu::visibility("default")]] table_error : public error {
 public:
  /// `where` is a file, or the object that is created from the table. `column` is "" if the problem
  /// is not in one column. `advice` is the remedy.
  table_error(std::string where, std::string column, std::string expected, std::string found,
              const std::string& advice = {})
      : error(where + ": " + (column.empty() ? "" : "column \"" + column + "\": ") + "expected " +
              expected + ", found " + found + (advice.empty() ? "" : ": " + advice)),
        where_(std::move(where)),
        column_(std::move(column)),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// Returns the file, or the object that is created from the table.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  /// Returns the column's name, or "".
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

/// The table has no column of this name, or has several. `found()` lists all columns.
class [[gnu::visibility("default")]] missing_column : public table_error {
 public:
  using table_error::table_error;
};

/// The table has columns that no field reads, although `extra_columns::refuse` is set. `found()`
/// lists them.
class [[gnu::visibility("default")]] extra_column : public table_error {
 public:
  using table_error::table_error;
};

/// A column has another type than its field, or a type that is not supported.
class [[gnu::visibility("default")]] column_type_mismatch : public table_error {
 public:
  using table_error::table_error;
};

/// The lists of a column do not match the field's extents, or differ in length between rows.
class [[gnu::visibility("default")]] column_shape_mismatch : public table_error {
 public:
  using table_error::table_error;
};

/// A value is null, although `null_values::refuse` is set, which is the default.
class [[gnu::visibility("default")]] null_in_column : public table_error {
 public:
  /// `row` counts from 0 over the whole table.
  null_in_column(std::string where, std::string column, std::uint64_t row,
                 const std::string& advice)
      : table_error(std::move(where), std::move(column), "a value in row " + std::to_string(row),
                    "null", advice),
        row_(row) {}

  /// Returns the row, counted from 0 over all batches.
  [[nodiscard]] std::uint64_t row() const noexcept { return row_; }

 private:
  std::uint64_t row_;
};

/// The structures that a producer passed by Arrow's C data interface are invalid: a count, a
/// length, an offset or a pointer is wrong. No values were read.
class [[gnu::visibility("default")]] arrow_invalid : public table_error {
 public:
  using table_error::table_error;
};

/// The producer of an Arrow stream reported a failure; `found()` has its message.
class [[gnu::visibility("default")]] arrow_stream_failed : public table_error {
 public:
  /// `code` is the errno that the producer returned.
  arrow_stream_failed(std::string where, std::string expected, std::string found, int code)
      : table_error(std::move(where), {}, std::move(expected), std::move(found)), code_(code) {}

  /// Returns the errno that the producer returned.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

/// Offsets of 32 or of 64 bits, at any address.
class arrow_offsets {
 public:
  /// Has no offsets.
  arrow_offsets() noexcept = default;
  /// Reads the offsets in `buffer`, starting at number `begin`.
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

/// Checks the structures of a producer before they are used. The readers of a buffer check its
/// contents. The size of a buffer cannot be checked, because the interface does not contain it.
class arrow_check {
 public:
  /// Messages name `where` and `column`, which must outlive this object.
  constexpr arrow_check(std::string_view where, std::string_view column) noexcept
      : where_(where), column_(column) {}

  [[noreturn]] void refuse(std::string expected, std::string found) const {
    throw arrow_invalid(std::string{where_}, std::string{column_}, std::move(expected),
                        std::move(found),
                        "the producer of the Arrow data is faulty, or the structures were freed");
  }

  /// Checks a type and its children.
  void require_schema(const ArrowSchema& node, int depth = 0) const {
    constexpr int deepest = 64;
    if (depth > deepest) refuse("types nested at most 64 deep", "deeper nesting");
    if (node.release == nullptr) refuse("a type", "a released type");
    if (node.format == nullptr) refuse("a type's format", "a null pointer");
    if (node.n_children < 0) refuse("0 or more children", std::to_string(node.n_children));
    if (node.n_children > 0 && node.children == nullptr) {
      refuse(std::to_string(node.n_children) + " children", "a null pointer");
    }
    if (is_list(arrow_type_of(node.format).kind) && node.n_children != 1) {
      refuse("1 child of a list", std::to_string(node.n_children));
    }
    for (std::int64_t i = 0; i < node.n_children; ++i) {
      if (node.children[i] == nullptr) refuse("a child", "a null pointer");
      require_schema(*node.children[i], depth + 1);
    }
  }

  /// Checks that an array has these numbers of buffers and children, and the values [`begin`,
  /// `begin + count`). The bitmap of nulls may be missing only if no value is null.
  void require_array(const ArrowArray& array, std::int64_t buffers, std::int64_t children,
                     std::uint64_t begin, std::uint64_t count) const {
    if (array.release == nullptr) refuse("an array", "a released array");
    if (array.length < 0) refuse("a length of 0 or more", std::to_string(array.length));
    if (array.offset < 0) refuse("an offset of 0 or more", std::to_string(array.offset));
    if (array.length > max || array.offset > max) {
      refuse("at most " + std::to_string(max) + " values",
             std::to_string(array.length) + " at offset " + std::to_string(array.offset));
    }
    const auto length = static_cast<std::uint64_t>(array.length);
    if (begin > length || count > length - begin) {
      refuse(std::to_string(count) + " values at offset " + std::to_string(begin),
             "an array of " + std::to_string(length));
    }
    if (array.null_count < -1 || array.null_count > array.length) {
      refuse("0 to " + std::to_string(array.length) + " nulls", std::to_string(array.null_count));
    }
    if (array.n_buffers != buffers) {
      refuse(std::to_string(buffers) + " buffers", std::to_string(array.n_buffers));
    }
    if (array.buffers == nullptr) refuse("buffers", "a null pointer");
    if (array.null_count > 0 && array.buffers[0] == nullptr) {
      refuse("a bitmap for " + std::to_string(array.null_count) + " nulls", "a null pointer");
    }
    if (array.dictionary != nullptr) {
      refuse("no dictionary, according to the type", "an array with a dictionary");
    }
    if (array.n_children != children) {
      refuse(std::to_string(children) + " children", std::to_string(array.n_children));
    }
    if (children > 0 && array.children == nullptr) refuse("children", "a null pointer");
    for (std::int64_t i = 0; i < children; ++i) {
      if (array.children[i] == nullptr) refuse("a child", "a null pointer");
    }
  }

  /// Returns buffer `index` of an array. Throws `arrow_invalid` if it is null.
  [[nodiscard]] const std::byte* require_buffer(const ArrowArray& array, std::int64_t index) const {
    if (array.buffers[index] == nullptr) refuse("a buffer of values", "a null pointer");
    return static_cast<const std::byte*>(array.buffers[index]);
  }

  /// Returns the `count + 1` offsets of an array that start at index `begin`. Throws
  /// `arrow_invalid` if the first offset is negative, or if an offset is less than its predecessor.
  [[nodiscard]] arrow_offsets require_offsets(const ArrowArray& array, bool is_large,
                                              std::uint64_t begin, std::uint64_t count) const {
    const arrow_offsets all{require_buffer(array, 1), is_large, begin};
    if (all[0] < 0) refuse("an offset of 0 or more", std::to_string(all[0]));
    for (std::uint64_t i = 1; i <= count; ++i) {
      if (all[i] >= all[i - 1]) continue;
      refuse("offset " + std::to_string(begin + i) + " to be " + std::to_string(all[i - 1]) +
                 " or more",
             std::to_string(all[i]));
    }
    return all;
  }

 private:
  // The limit keeps sums of a few such numbers from overflowing. Products with sizes are checked
  // separately.
  static constexpr std::int64_t max = std::int64_t{1} << 40;

  std::string_view where_;
  std::string_view column_;
};

/// Returns bit `index` in Arrow's order, which starts at the lowest bit of the first byte.
[[nodiscard]] inline bool bit_at(const std::byte* bits, std::uint64_t index) noexcept {
  return (std::to_integer<unsigned>(bits[index / 8]) >> (index % 8) & 1U) != 0;
}

/// Returns the position of the first 0 among the `count` bits that start at `begin`, relative to
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

/// The action on a value that is null.
enum class null_values : std::uint8_t {
  refuse,            ///< throws `null_in_column` with the column and the row
  value_initialised  ///< reads 0, an empty byte string or a list of zeros
};

/// The action on columns that no field reads.
enum class extra_columns : std::uint8_t {
  ignore,  ///< allows such columns and ignores them
  refuse   ///< throws `extra_column`, which lists them
};

/// Options that map the columns of a table to the fields of a record.
struct table_options {
  /// The column of each field, in the record's order. If empty, each field reads the column of its
  /// own name. "image.bytes" is the member `bytes` of the structs in column `image`, unless a
  /// column has that name.
  std::vector<std::string> columns = {};
  /// The action on a value that is null.
  null_values null = null_values::refuse;
  /// The action on columns that no field reads.
  extra_columns extra = extra_columns::ignore;
};

/// A table of another library: a type and batches of rows, which are numbered consecutively.
/// Nothing is copied.
///
///     ps::arrow_table table{ps::arrow_stream{&stream}};   // an ArrowArrayStream of pyarrow's
///     ps::arrow_dataset<digit> digits{table};
///
/// Copies share the batches. The last copy releases them on the thread that destroys it. A
/// producer's `release` must acquire Python's interpreter lock itself if it needs it. The memory
/// must not change while the table exists. Reading is thread-safe.
class arrow_table {
 public:
  /// Reads all batches of `stream`, and keeps them. Throws `arrow_stream_failed` if the producer
  /// reports a failure, and `arrow_invalid` if the batches are not a valid table. The stream is
  /// released in any case.
  arrow_table(arrow_stream stream)  // NOLINT: implicit, so that a dataset takes a stream
      : content_(read(std::move(stream))) {}
  /// Takes batches that are structs of the type `schema`. Throws `arrow_invalid`, in which case all
  /// batches are released.
  arrow_table(arrow_schema schema, std::vector<arrow_array> batches)
      : content_(std::make_shared<content>()) {
    content_->schema = std::move(schema);
    require_table(*content_);
    for (arrow_array& batch : batches) add(*content_, std::move(batch));
  }
  /// Takes a table of one batch. Throws what the constructor for several batches throws.
  arrow_table(arrow_schema schema, arrow_array batch)
      : arrow_table(std::move(schema), std::vector<arrow_array>{}) {
    add(*content_, std::move(batch));
  }

  /// Returns the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept {
    return content_->ends.empty() ? 0 : content_->ends.back();
  }
  /// Returns the number of batches that have rows.
  [[nodiscard]] std::size_t batches() const noexcept { return content_->batches.size(); }
  /// Returns the type of the batches.
  [[nodiscard]] const ArrowSchema& schema() const noexcept { return *content_->schema; }
  /// Returns batch `number`, which must be below `batches()`.
  [[nodiscard]] const ArrowArray& batch(std::size_t number) const noexcept {
    return *content_->batches[number];
  }
  /// Returns the number of the first row of batch `number`, which must be below `batches()`.
  [[nodiscard]] std::uint64_t first_row(std::size_t number) const noexcept {
    return number == 0 ? 0 : content_->ends[number - 1];
  }
  /// Returns the batch that contains row `index`, which must be below `size()`. Takes O(log
  /// batches) time.
  [[nodiscard]] std::size_t batch_of(std::uint64_t index) const noexcept {
    const auto after = std::upper_bound(content_->ends.begin(), content_->ends.end(), index);
    return static_cast<std::size_t>(after - content_->ends.begin());
  }

 private:
  struct content {
    arrow_schema schema;
    std::vector<arrow_array> batches;  // only batches with rows
    std::vector<std::uint64_t> ends;   // one past the last row of each batch
  };

  static constexpr std::string_view name{"arrow_table"};  // name in messages
  static constexpr detail::arrow_check check{name, {}};

  static void require_table(const content& table) {
    if (!table.schema) check.refuse("a type", "no type, or a released type");
    check.require_schema(*table.schema);
    if (std::string_view{table.schema->format} != "+s" || table.schema->dictionary != nullptr) {
      check.refuse("a struct, whose members are the columns", detail::arrow_words(*table.schema));
    }
  }

  static void add(content& table, arrow_array batch) {
    if (!batch) check.refuse("a batch", "no batch, or a released batch");
    const auto rows = static_cast<std::uint64_t>(batch->length);
    check.require_array(*batch, 1, table.schema->n_children, 0, batch->length < 0 ? 0 : rows);
    const auto offset = static_cast<std::uint64_t>(batch->offset);
    const auto* const bits = static_cast<const std::byte*>(batch->buffers[0]);
    if (bits != nullptr && detail::first_zero_bit(bits, offset, rows) < rows) {
      check.refuse("rows", "a row that is null");
    }
    if (rows == 0) return;
    const std::uint64_t before = table.ends.empty() ? 0 : table.ends.back();
    table.batches.push_back(std::move(batch));
    table.ends.push_back(before + rows);
  }

  [[nodiscard]] static std::shared_ptr<content> read(arrow_stream stream) {
    if (!stream) check.refuse("a stream", "no stream, or a released stream");
    auto table = std::make_shared<content>();
    ArrowArrayStream* const from = stream.address();
    if (from->get_schema == nullptr || from->get_next == nullptr ||
        from->get_last_error == nullptr) {
      check.refuse("a stream's functions", "a null pointer");
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
