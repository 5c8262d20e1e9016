// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// @file
/// The structures of Arrow's C data interface and C stream interface
/// (https://arrow.apache.org/docs/format/CDataInterface.html), by which table libraries hand each
/// other columns without a copy: pyarrow, DuckDB, polars, nanoarrow, arrow-rs. Written down here so
/// that no library is needed, outside of any namespace and under the guards that the specification
/// names, so that copies of other libraries' in one source are one and the same.

/// @cond specification
// NOLINTBEGIN: every name here is the specification's
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

extern "C" {

/// A type: of a column, or, with children, of a table.
struct ArrowSchema {
  const char* format;                    ///< which type, in a short code
  const char* name;                      ///< the column's; may be null
  const char* metadata;                  ///< keys and values; may be null
  std::int64_t flags;                    ///< bits, such as ARROW_FLAG_NULLABLE
  std::int64_t n_children;               ///< how many types this one is made of
  struct ArrowSchema** children;         ///< those
  struct ArrowSchema* dictionary;        ///< the values' type where indices are stored; else null
  void (*release)(struct ArrowSchema*);  ///< frees; null once it was called
  void* private_data;                    ///< the producer's
};

/// Values: of a column, or, with children, of a table's rows.
struct ArrowArray {
  std::int64_t length;                  ///< how many values
  std::int64_t null_count;              ///< how many of them are null; -1 where nobody counted
  std::int64_t offset;                  ///< how many values lie before the first in each buffer
  std::int64_t n_buffers;               ///< how many buffers; the type defines which
  std::int64_t n_children;              ///< how many arrays this one is made of
  const void** buffers;                 ///< memory; the ABI has no sizes
  struct ArrowArray** children;         ///< those arrays
  struct ArrowArray* dictionary;        ///< the values where indices are stored; else null
  void (*release)(struct ArrowArray*);  ///< frees; null once it was called
  void* private_data;                   ///< the producer's
};

}  // extern "C"

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

extern "C" {

/// A table that comes in batches of rows, one after the other. Its functions return 0 or an errno.
struct ArrowArrayStream {
  /// Writes the type of all batches.
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  /// Writes the next batch; one whose `release` is null after the last one.
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  /// Why the last call failed; may be null. Valid until the next call.
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);  ///< frees; null once it was called
  void* private_data;                         ///< the producer's
};

}  // extern "C"

#endif  // ARROW_C_STREAM_INTERFACE
// NOLINTEND
/// @endcond

// What the C compiler makes of the specification's text.
static_assert(std::is_standard_layout_v<ArrowSchema> && std::is_trivially_copyable_v<ArrowSchema>);
static_assert(std::is_standard_layout_v<ArrowArray> && std::is_trivially_copyable_v<ArrowArray>);
static_assert(sizeof(void*) != 8 ||
              (sizeof(ArrowSchema) == 72 && offsetof(ArrowSchema, flags) == 24 &&
               offsetof(ArrowSchema, dictionary) == 48 && offsetof(ArrowSchema, release) == 56));
static_assert(sizeof(void*) != 8 ||
              (sizeof(ArrowArray) == 80 && offsetof(ArrowArray, n_buffers) == 24 &&
               offsetof(ArrowArray, buffers) == 40 && offsetof(ArrowArray, release) == 64));
static_assert(sizeof(void*) != 8 ||
              (sizeof(ArrowArrayStream) == 40 && offsetof(ArrowArrayStream, release) == 24));
