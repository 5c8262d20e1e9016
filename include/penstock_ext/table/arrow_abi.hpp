// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// @file
/// The structures of Arrow's C data interface and C stream interface
/// (https://arrow.apache.org/docs/format/CDataInterface.html). Libraries such as pyarrow, DuckDB,
/// polars, nanoarrow and arrow-rs use them to exchange columns without copying. The structures are
/// declared here, so that penstock does not require an Arrow library. The declarations are in the
/// global namespace with the include guards of the specification, so that they do not conflict with
/// another library's declarations.

/// @cond specification
// NOLINTBEGIN: the specification defines every name here
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

extern "C" {

/// The type of a column, or of a table if it has children.
struct ArrowSchema {
  const char* format;       ///< format string of the type
  const char* name;         ///< column name, may be null
  const char* metadata;     ///< key-value metadata, may be null
  std::int64_t flags;       ///< flags such as ARROW_FLAG_NULLABLE
  std::int64_t n_children;  ///< number of child types
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;        ///< type of dictionary values, or null
  void (*release)(struct ArrowSchema*);  ///< frees the schema; null after release
  void* private_data;                    ///< private data of the producer
};

/// The values of a column, or the rows of a table if it has children.
struct ArrowArray {
  std::int64_t length;      ///< number of values
  std::int64_t null_count;  ///< number of nulls; -1 if unknown
  std::int64_t offset;      ///< number of values to skip at the start of each buffer
  std::int64_t n_buffers;   ///< number of buffers, determined by the type
  std::int64_t n_children;  ///< number of child arrays
  const void** buffers;     ///< buffers, whose sizes are not part of the ABI
  struct ArrowArray** children;
  /// Dictionary values if the array stores indices, otherwise null.
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);  ///< frees the array; null after release
  void* private_data;                   ///< private data of the producer
};

}  // extern "C"

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

extern "C" {

/// A table as a stream of record batches. The functions return 0 or an errno value.
struct ArrowArrayStream {
  /// Writes the schema of all batches to `out`.
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  /// Writes the next batch to `out`. At the end of the stream, writes an array whose `release` is
  /// null.
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  /// Returns a description of the last error, or null. Valid until the next call.
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);  ///< frees the stream; null after release
  void* private_data;                         ///< private data of the producer
};

}  // extern "C"

#endif  // ARROW_C_STREAM_INTERFACE
// NOLINTEND
/// @endcond

// Checks that the structures have the C layout of the specification.
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
