// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A table is not what it should be. Says which one, which of its columns, what was expected and
/// what was found; the types derived from it say what kind of problem it is.
class [[gnu::visibility("default")]] table_error : public error {
 public:
  /// `where` is a file or what was to be made of the table. `column` is "" where it is none's
  /// fault. `advice` says what to do.
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

/// A producer of an Arrow stream said that it failed; `found()` has its words.
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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
