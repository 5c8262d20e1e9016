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
/// `arrow_stream`. Move-only. Holds the structure itself: the specification lets it be copied to
/// another place, as long as one copy is left.
template <class Struct>
class arrow_owner {
 public:
  /// Owns nothing. `address()` is then what a producer writes to.
  arrow_owner() noexcept = default;
  /// Takes what `*given` owns, and marks it as released: its place, which the caller keeps, may go
  /// then. Owns nothing where `given` is null or was released.
  explicit arrow_owner(Struct* given) noexcept {
    if (given == nullptr) return;
    value_ = *given;
    given->release = nullptr;
  }
  arrow_owner(arrow_owner&& other) noexcept : arrow_owner(&other.value_) {}
  /// Releases what it owned.
  arrow_owner& operator=(arrow_owner&& other) noexcept {
    arrow_owner taken{std::move(other)};
    std::swap(value_, taken.value_);
    return *this;
  }
  ~arrow_owner() {
    if (value_.release != nullptr) value_.release(&value_);
  }

  /// Whether it owns something.
  [[nodiscard]] explicit operator bool() const noexcept { return value_.release != nullptr; }
  /// The structure, to read.
  [[nodiscard]] const Struct& operator*() const noexcept { return value_; }
  /// Its members, to read.
  [[nodiscard]] const Struct* operator->() const noexcept { return &value_; }
  /// The structure's address, for calls of the C interface. What is written there is owned; so
  /// nothing may be owned before.
  [[nodiscard]] Struct* address() noexcept { return &value_; }
  /// Gives the structure away: the caller releases it.
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

/// What is done with values of a type. Dates, times and durations are signed integers here.
enum class arrow_kind : std::uint8_t {
  boolean,
  signed_integer,
  unsigned_integer,
  floating,
  fixed_binary,
  binary,        // and texts, with offsets of 32 bits
  large_binary,  // with offsets of 64 bits
  list,
  large_list,
  fixed_list,
  structure,
  view,  // of binary, texts and lists: in a layout of their own
  other
};

/// Whether a type is made of values of another one, with a length of its own or none.
[[nodiscard]] constexpr bool is_list(arrow_kind kind) noexcept {
  return kind == arrow_kind::list || kind == arrow_kind::large_list ||
         kind == arrow_kind::fixed_list;
}

/// A type, parsed from a format string.
struct arrow_type {
  arrow_kind kind = arrow_kind::other;
  std::uint64_t size = 0;  // bytes of a number or a fixed binary; elements of a fixed list
  std::string words = {};  // its name for people: "float32"
};

/// The number after the colon of "w:784"; 0 for what is none, or has no room in 31 bits.
[[nodiscard]] inline std::uint64_t arrow_length(std::string_view digits) noexcept {
  std::int32_t number = 0;
  const auto read_to = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_all = read_to.ec == std::errc{} && read_to.ptr == digits.data() + digits.size();
  return is_all && number > 0 ? static_cast<std::uint64_t>(number) : 0;
}

/// The type of a format string. An unknown one is `other`, with the format as its name.
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

/// The name of a column; "" where it has none.
[[nodiscard]] inline std::string arrow_name(const ArrowSchema& node) {
  return node.name == nullptr ? "" : node.name;
}

/// The type of `node` for people: "fixed_size_list<uint8>[784]". The schema was looked at by
/// `require_schema`.
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

/// The columns of a table for people: "label: int64, image: fixed_size_list<uint8>[784]".
[[nodiscard]] inline std::string arrow_columns(const ArrowSchema& table) {
  std::string all = arrow_words(table).substr(std::string_view{"struct<"}.size());
  all.pop_back();
  return all.empty() ? "no column" : all;
}

}  // namespace detail

/// A table is not what it should be. Says which one, which of its columns, what was expected and
/// what was found; the types derived from it say what kind of problem it is.
class [[gnu::visibility("default")]] table_error : public error {
 public:
  /// `where` is a file or what was to be made of the table. `column` is "" where it is none's
  /// fault. `advice` is the remedy.
  table_error(std::string where, std::string column, std::string expected, std::string found,
              const std::string& advice = {})
      : error(where + ": " + (column.empty() ? "" : "column \"" + column + "\": ") + "expected " +
              expected + ", found " + found + (advice.empty() ? "" : ": " + advice)),
        where_(std::move(where)),
        column_(std::move(column)),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// The file, or what was to be made of the table.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }
  /// The column's name, or "".
  [[nodiscard]] const std::string& column() const noexcept { return column_; }
  /// What should have been there.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// What is there.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string where_;
  std::string column_;
  std::string expected_;
  std::string found_;
};

/// There is no column of this name, or there are several; `found()` lists all that there are.
class [[gnu::visibility("default")]] missing_column : public table_error {
 public:
  using table_error::table_error;
};

/// There are columns that no field takes, and `extra_columns::refuse` was asked for; `found()`
/// lists them.
class [[gnu::visibility("default")]] extra_column : public table_error {
 public:
  using table_error::table_error;
};

/// A column is of another type than its field, or of one that is not read.
class [[gnu::visibility("default")]] column_type_mismatch : public table_error {
 public:
  using table_error::table_error;
};

/// The lists of a column have other lengths than the field's extents, or are of several lengths.
class [[gnu::visibility("default")]] column_shape_mismatch : public table_error {
 public:
  using table_error::table_error;
};

/// A value is null, and `null_values::refuse` is set, as it is by default.
class [[gnu::visibility("default")]] null_in_column : public table_error {
 public:
  /// `row` counts from 0 over the whole table.
  null_in_column(std::string where, std::string column, std::uint64_t row,
                 const std::string& advice)
      : table_error(std::move(where), std::move(column), "a value in row " + std::to_string(row),
                    "null", advice),
        row_(row) {}

  /// The row, from 0, over all batches.
  [[nodiscard]] std::uint64_t row() const noexcept { return row_; }

 private:
  std::uint64_t row_;
};

/// What a producer handed over by Arrow's C data interface can't be: a count, a length, an offset
/// or a pointer is wrong. Nothing of it was read.
class [[gnu::visibility("default")]] arrow_invalid : public table_error {
 public:
  using table_error::table_error;
};

/// The producer of an Arrow stream reported a failure; `found()` has its message.
class [[gnu::visibility("default")]] arrow_stream_failed : public table_error {
 public:
  /// `code` is what the producer returned, an errno.
  arrow_stream_failed(std::string where, std::string expected, std::string found, int code)
      : table_error(std::move(where), {}, std::move(expected), std::move(found)), code_(code) {}

  /// The errno that the producer returned.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

namespace detail {

/// Offsets of 32 or of 64 bits, at any address.
class arrow_offsets {
 public:
  /// None.
  arrow_offsets() noexcept = default;
  /// Those in a buffer from number `begin` on.
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

/// Looks at what a producer says before anyone relies on it. What memory holds is looked at by its
/// reader; how large it is can't be known: the interface does not say.
class arrow_check {
 public:
  /// `where` and `column` stand in messages, and must outlive this.
  constexpr arrow_check(std::string_view where, std::string_view column) noexcept
      : where_(where), column_(column) {}

  [[noreturn]] void refuse(std::string expected, std::string found) const {
    throw arrow_invalid(std::string{where_}, std::string{column_}, std::move(expected),
                        std::move(found),
                        "the producer of the Arrow data is wrong, or the structures were freed");
  }

  /// A type, and those that it is made of.
  void require_schema(const ArrowSchema& node, int depth = 0) const {
    constexpr int deepest = 64;
    if (depth > deepest) refuse("at most 64 types inside each other", "more");
    if (node.release == nullptr) refuse("a type", "one that was released");
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

  /// The values [`begin`, `begin + count`) of an array with these numbers of buffers and children:
  /// that it has them, and a place for what it says. Nulls may have no bitmap only where there are
  /// none.
  void require_array(const ArrowArray& array, std::int64_t buffers, std::int64_t children,
                     std::uint64_t begin, std::uint64_t count) const {
    if (array.release == nullptr) refuse("an array", "one that was released");
    if (array.length < 0) refuse("a length of 0 or more", std::to_string(array.length));
    if (array.offset < 0) refuse("an offset of 0 or more", std::to_string(array.offset));
    if (array.length > most || array.offset > most) {
      refuse("at most " + std::to_string(most) + " values",
             std::to_string(array.length) + " from " + std::to_string(array.offset) + " on");
    }
    const auto length = static_cast<std::uint64_t>(array.length);
    if (begin > length || count > length - begin) {
      refuse(std::to_string(count) + " values from " + std::to_string(begin) + " on",
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
      refuse("no dictionary, as the type says", "an array with a dictionary");
    }
    if (array.n_children != children) {
      refuse(std::to_string(children) + " children", std::to_string(array.n_children));
    }
    if (children > 0 && array.children == nullptr) refuse("children", "a null pointer");
    for (std::int64_t i = 0; i < children; ++i) {
      if (array.children[i] == nullptr) refuse("a child", "a null pointer");
    }
  }

  /// Buffer `index` of an array, of which something is to be read.
  [[nodiscard]] const std::byte* require_buffer(const ArrowArray& array, std::int64_t index) const {
    if (array.buffers[index] == nullptr) refuse("a buffer of values", "a null pointer");
    return static_cast<const std::byte*>(array.buffers[index]);
  }

  /// The offsets of an array from number `begin` on, one more than `count`: 0 or more, and none
  /// below the one before it.
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
  // Sums of a few such numbers do not wrap; products with sizes are looked at where they are made.
  static constexpr std::int64_t most = std::int64_t{1} << 40;

  std::string_view where_;
  std::string_view column_;
};

/// Bit `index`, as Arrow counts: from the lowest of the first byte.
[[nodiscard]] inline bool bit_at(const std::byte* bits, std::uint64_t index) noexcept {
  return (std::to_integer<unsigned>(bits[index / 8]) >> (index % 8) & 1U) != 0;
}

/// The place of the first 0 among `count` bits from `begin` on, counted from there; `count` where
/// all are 1.
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

/// What becomes of a value that is null.
enum class null_values : std::uint8_t {
  refuse,            ///< `null_in_column` names column and row, when the table is opened
  value_initialised  ///< it is 0; an empty byte string; a list of zeros
};

/// What becomes of columns that no field takes.
enum class extra_columns : std::uint8_t {
  ignore,  ///< they are not looked at
  refuse   ///< `extra_column` lists them
};

/// How the columns of a table become the fields of a record.
struct table_options {
  /// A column's name for each field, in the record's order; without any, those of the fields.
  /// "image.bytes" is the member `bytes` of the structs in column `image`, unless a column is
  /// called so.
  std::vector<std::string> columns = {};
  /// What becomes of a value that is null.
  null_values null = null_values::refuse;
  /// What becomes of columns that no field takes.
  extra_columns extra = extra_columns::ignore;
};

/// A table of another library's: a type, and batches of rows, numbered through. Nothing is copied.
///
///     ps::arrow_table table{ps::arrow_stream{&stream}};   // an ArrowArrayStream of pyarrow's
///     ps::arrow_dataset<digit> digits{table};
///
/// Copies have the batches in common, and the last one releases them, on its thread: a producer's
/// `release` takes Python's interpreter lock itself where it needs it. The memory must not change
/// meanwhile. Reading is thread-safe.
class arrow_table {
 public:
  /// Reads all batches of `stream`, and keeps them. Throws `arrow_stream_failed` where the producer
  /// does, and `arrow_invalid` for what is no table. The stream is released in any case.
  arrow_table(arrow_stream stream)  // NOLINT: implicit, so that a dataset takes a stream
      : content_(read(std::move(stream))) {}
  /// The batches, which are structs of the type `schema`. Throws `arrow_invalid`; all are
  /// released then.
  arrow_table(arrow_schema schema, std::vector<arrow_array> batches)
      : content_(std::make_shared<content>()) {
    content_->schema = std::move(schema);
    require_table(*content_);
    for (arrow_array& batch : batches) add(*content_, std::move(batch));
  }
  /// One batch.
  arrow_table(arrow_schema schema, arrow_array batch)
      : arrow_table(std::move(schema), std::vector<arrow_array>{}) {
    add(*content_, std::move(batch));
  }

  /// How many rows there are.
  [[nodiscard]] std::uint64_t size() const noexcept {
    return content_->ends.empty() ? 0 : content_->ends.back();
  }
  /// How many batches have rows.
  [[nodiscard]] std::size_t batches() const noexcept { return content_->batches.size(); }
  /// The type of the batches.
  [[nodiscard]] const ArrowSchema& schema() const noexcept { return *content_->schema; }
  /// Batch `number`, below `batches()`.
  [[nodiscard]] const ArrowArray& batch(std::size_t number) const noexcept {
    return *content_->batches[number];
  }
  /// The number of the first row of batch `number`, below `batches()`.
  [[nodiscard]] std::uint64_t first_row(std::size_t number) const noexcept {
    return number == 0 ? 0 : content_->ends[number - 1];
  }
  /// The batch of row `index`, below `size()`. O(log batches).
  [[nodiscard]] std::size_t batch_of(std::uint64_t index) const noexcept {
    const auto after = std::upper_bound(content_->ends.begin(), content_->ends.end(), index);
    return static_cast<std::size_t>(after - content_->ends.begin());
  }

 private:
  struct content {
    arrow_schema schema;
    std::vector<arrow_array> batches;  // none without rows
    std::vector<std::uint64_t> ends;   // of the batches, in rows from the first one's start
  };

  static constexpr std::string_view name{"arrow_table"};  // of messages
  static constexpr detail::arrow_check check{name, {}};

  static void require_table(const content& table) {
    if (!table.schema) check.refuse("a type", "none, or one that was released");
    check.require_schema(*table.schema);
    if (std::string_view{table.schema->format} != "+s" || table.schema->dictionary != nullptr) {
      check.refuse("a struct, whose members are the columns", detail::arrow_words(*table.schema));
    }
  }

  static void add(content& table, arrow_array batch) {
    if (!batch) check.refuse("a batch", "none, or one that was released");
    const auto rows = static_cast<std::uint64_t>(batch->length);
    check.require_array(*batch, 1, table.schema->n_children, 0, batch->length < 0 ? 0 : rows);
    const auto offset = static_cast<std::uint64_t>(batch->offset);
    const auto* const bits = static_cast<const std::byte*>(batch->buffers[0]);
    if (bits != nullptr && detail::first_zero_bit(bits, offset, rows) < rows) {
      check.refuse("rows", "a row that is null as a whole");
    }
    if (rows == 0) return;
    const std::uint64_t before = table.ends.empty() ? 0 : table.ends.back();
    table.batches.push_back(std::move(batch));
    table.ends.push_back(before + rows);
  }

  [[nodiscard]] static std::shared_ptr<content> read(arrow_stream stream) {
    if (!stream) check.refuse("a stream", "none, or one that was released");
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
