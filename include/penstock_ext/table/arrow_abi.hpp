// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// @file
/// The structures of Arrow's C data interface and C stream interface
/// (https://arrow.apache.org/docs/format/CDataInterface.html). Table libraries such as pyarrow,
/// DuckDB, polars, nanoarrow and arrow-rs use them to exchange columns without a copy. This header
/// declares them itself, so that penstock needs no Arrow library. The structures are outside of any
/// namespace and use the include guards from the specification, so that another library's
/// declarations in the same source file do not conflict.

/// @cond specification
// NOLINTBEGIN: the specification defines every name here
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

extern "C" {

/// The type of a column. With children, the type of a table.
struct ArrowSchema {
  const char* format;                    ///< the type, as a short code
  const char* name;                      ///< the column's name; may be null
  const char* metadata;                  ///< keys and values; may be null
  std::int64_t flags;                    ///< bits, such as ARROW_FLAG_NULLABLE
  std::int64_t n_children;               ///< number of child types
  struct ArrowSchema** children;         ///< the child types
  struct ArrowSchema* dictionary;        ///< type of the values behind indices, or null
  void (*release)(struct ArrowSchema*);  ///< frees the type; null after the call
  void* private_data;                    ///< data of the producer
};

/// The values of a column. With children, the rows of a table.
struct ArrowArray {
  std::int64_t length;                  ///< number of values
  std::int64_t null_count;              ///< number of nulls; -1 if unknown
  std::int64_t offset;                  ///< number of values to skip at the start of each buffer
  std::int64_t n_buffers;               ///< number of buffers; the type defines them
  std::int64_t n_children;              ///< number of child arrays
  const void** buffers;                 ///< memory; the ABI has no sizes
  struct ArrowArray** children;         ///< the child arrays
  struct ArrowArray* dictionary;        ///< the values if the array stores indices, otherwise null
  void (*release)(struct ArrowArray*);  ///< frees the array; null after the call
  void* private_data;                   ///< data of the producer
};

}  // extern "C"

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

extern "C" {

/// A table as a sequence of batches of rows. The functions return 0 or an errno.
struct ArrowArrayStream {
  /// Writes the type of all batches.
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  /// Writes the next batch. After the last batch it writes an array whose `release` is null.
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  /// Returns the reason for the last failure, or null. The text is valid until the next call.
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);  ///< frees the stream; null after the call
  void* private_data;                         ///< data of the producer
};

}  // extern "C"

#endif  // ARROW_C_STREAM_INTERFACE
// NOLINTEND
/// @endcond

// The layout that a C compiler gives to the structures of the specification.
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
