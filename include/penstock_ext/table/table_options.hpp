// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What becomes of a value that is null.
enum class null_values : std::uint8_t {
  refuse,            ///< `null_in_column` says which column and row, when the table is opened
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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
