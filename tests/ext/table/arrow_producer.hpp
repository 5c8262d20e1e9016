// SPDX-License-Identifier: BSL-1.0
// A hand-written producer of tables in the Arrow C data interface. Tables may be valid or invalid.
#pragma once

#include <penstock_ext/table/arrow_table.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test {

namespace ps = penstock;

/// The type and the values of a column, or of a struct of columns if there are children.
struct made_column {
  std::string name;
  std::string format;
  std::int64_t length = 0;
  std::vector<std::optional<std::string>> buffers;  // an empty optional is a null pointer
  std::vector<made_column> children = {};
  std::int64_t offset = 0;
  std::int64_t null_count = 0;
  bool has_dictionary = false;
};

namespace arrow_detail {

template <class Struct>
struct held {
  made_column made;
  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<Struct>> children;
  std::vector<Struct*> pointers;
  std::unique_ptr<Struct> dictionary;
  int* released;
};

template <class Struct>
void release(Struct* own) {
  auto* const all = static_cast<held<Struct>*>(own->private_data);
  for (auto& child : all->children) {
    if (child->release != nullptr) child->release(child.get());
  }
  if (all->dictionary && all->dictionary->release != nullptr) {
    all->dictionary->release(all->dictionary.get());
  }
  if (all->released != nullptr) ++*all->released;
  own->release = nullptr;
  delete all;
}

template <class Struct>
Struct exported(const made_column& made, int* released) {
  auto* const all = new held<Struct>{made, {}, {}, {}, {}, released};
  for (const made_column& child : made.children) {
    all->children.push_back(std::make_unique<Struct>(exported<Struct>(child, nullptr)));
    all->pointers.push_back(all->children.back().get());
  }
  Struct out{};
  if (made.has_dictionary) {
    const made_column values{"", "u", 0, {std::nullopt, std::string(4, '\0'), ""}};
    all->dictionary = std::make_unique<Struct>(exported<Struct>(values, nullptr));
  }
  if constexpr (requires { out.format; }) {
    out.format = all->made.format.c_str();
    out.name = all->made.name.c_str();
    out.flags = ARROW_FLAG_NULLABLE;
  } else {
    for (const auto& buffer : all->made.buffers) {
      all->buffers.push_back(buffer ? buffer->data() : nullptr);
    }
    out.length = made.length;
    out.null_count = made.null_count;
    out.offset = made.offset;
    out.n_buffers = static_cast<std::int64_t>(all->buffers.size());
    out.buffers = all->buffers.data();
  }
  out.n_children = static_cast<std::int64_t>(all->pointers.size());
  out.children = all->pointers.data();
  out.dictionary = all->dictionary.get();
  out.release = &release<Struct>;
  out.private_data = all;
  return out;
}

}  // namespace arrow_detail

/// Returns the schema of a column or a table. Releasing the schema increments `released`.
inline ps::arrow_schema schema_of(const made_column& made, int* released = nullptr) {
  auto given = arrow_detail::exported<ArrowSchema>(made, released);
  return ps::arrow_schema{&given};
}
/// Returns the array of a column or a table. Releasing the array increments `released`.
inline ps::arrow_array array_of(const made_column& made, int* released = nullptr) {
  auto given = arrow_detail::exported<ArrowArray>(made, released);
  return ps::arrow_array{&given};
}

/// Returns the object representation of numbers.
template <class T>
std::string bytes_of_numbers(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
/// Returns the bits in a string such as "1101". The first digit is the lowest bit of the first
/// byte.
inline std::string bits_of(const std::string& digits) {
  std::string bytes((digits.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] == '1') bytes[i / 8] = static_cast<char>(bytes[i / 8] | 1 << (i % 8));
  }
  return bytes;
}

/// Returns a column of numbers.
template <class T>
made_column numbers(const std::string& name, const std::string& format,
                    const std::vector<T>& values) {
  return {name,
          format,
          static_cast<std::int64_t>(values.size()),
          {std::nullopt, bytes_of_numbers(values)}};
}
/// Returns the numbers 0, 1, 2, ... of type T.
template <class T>
std::vector<T> counted(std::size_t count, std::size_t first = 0) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(first + i);
  return values;
}
/// Returns a column of lists with `length` elements each.
inline made_column fixed_lists(const std::string& name, std::int64_t length, made_column inside) {
  const std::int64_t rows = inside.length / length;
  inside.name = "item";
  return {name, "+w:" + std::to_string(length), rows, {std::nullopt}, {std::move(inside)}};
}
/// Returns a column of lists with 32-bit or 64-bit offsets.
template <class Offset>
made_column lists(const std::string& name, const std::vector<Offset>& offsets, made_column inside) {
  inside.name = "item";
  return {name,
          sizeof(Offset) == 4 ? "+l" : "+L",
          static_cast<std::int64_t>(offsets.size()) - 1,
          {std::nullopt, bytes_of_numbers(offsets)},
          {std::move(inside)}};
}
/// Returns a column of byte strings. The formats "z" and "u" have 32-bit offsets, "Z" and "U"
/// 64-bit offsets.
inline made_column strings(const std::string& name, const std::string& format,
                           const std::vector<std::string>& values) {
  std::vector<std::int64_t> offsets{0};
  std::string all;
  for (const std::string& one : values) {
    all += one;
    offsets.push_back(static_cast<std::int64_t>(all.size()));
  }
  const bool is_large = format == "Z" || format == "U";
  const std::vector<std::int32_t> narrow(offsets.begin(), offsets.end());
  return {name,
          format,
          static_cast<std::int64_t>(values.size()),
          {std::nullopt, is_large ? bytes_of_numbers(offsets) : bytes_of_numbers(narrow), all}};
}
/// Returns the column with nulls at the positions where `digits` has a 0.
inline made_column with_nulls(made_column column, const std::string& digits) {
  column.buffers[0] = bits_of(digits);
  column.null_count = -1;
  return column;
}
/// Combines columns into a column of structs or into a table.
inline made_column structs(const std::string& name, std::vector<made_column> columns) {
  const std::int64_t rows = columns.empty() ? 0 : columns[0].length;
  return {name, "+s", rows, {std::nullopt}, std::move(columns)};
}
/// Returns a table with a single batch.
inline ps::arrow_table table_of(const made_column& batch) {
  return {schema_of(batch), array_of(batch)};
}

/// A stream of batches that fails before batch `fails_at` and counts its releases.
struct made_stream {
  std::vector<made_column> batches;
  std::size_t fails_at = ~std::size_t{0};
  std::size_t next = 0;
  int released = 0;
  int batches_released = 0;
  std::string said = "the disk is on fire";

  ps::arrow_stream stream() {
    ArrowArrayStream given{};
    given.get_schema = [](ArrowArrayStream* own, ArrowSchema* out) {
      *out = schema_of(static_cast<made_stream*>(own->private_data)->batches.at(0)).release();
      return 0;
    };
    given.get_next = [](ArrowArrayStream* own, ArrowArray* out) {
      auto& from = *static_cast<made_stream*>(own->private_data);
      if (from.next == from.fails_at) return 5;
      *out = ArrowArray{};
      if (from.next < from.batches.size()) {
        *out = array_of(from.batches[from.next++], &from.batches_released).release();
      }
      return 0;
    };
    given.get_last_error = [](ArrowArrayStream* own) {
      const auto& from = *static_cast<made_stream*>(own->private_data);
      return from.said.empty() ? nullptr : from.said.c_str();
    };
    given.release = [](ArrowArrayStream* own) {
      ++static_cast<made_stream*>(own->private_data)->released;
      own->release = nullptr;
    };
    given.private_data = this;
    return ps::arrow_stream{&given};
  }
};

}  // namespace test
