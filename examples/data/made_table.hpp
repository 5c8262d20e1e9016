// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <penstock_ext/table/arrow_abi.hpp>

namespace data {

/// A producer of an Arrow C stream, like those that many libraries provide. The batches have a
/// column "x" of lists of four floats, and a column "label" of 64-bit integers. The producer is
/// destroyed when everything that it returned has been released.
class made_table {
 public:
  /// Returns a stream of `batches` batches with `rows` rows each. The receiver releases the stream.
  static ArrowArrayStream stream(std::size_t batches, std::size_t rows) {
    ArrowArrayStream made{};
    made.get_schema = [](ArrowArrayStream*, ArrowSchema* out) {
      *out = schema();
      return 0;
    };
    made.get_next = [](ArrowArrayStream* from, ArrowArray* out) {
      auto& state = *static_cast<made_table*>(from->private_data);
      *out = state.next_ == state.batches_ ? ArrowArray{} : batch(state.next_++, state.rows_);
      return 0;
    };
    made.get_last_error = [](ArrowArrayStream*) -> const char* { return nullptr; };
    made.release = [](ArrowArrayStream* from) {
      delete static_cast<made_table*>(from->private_data);
      from->release = nullptr;
    };
    made.private_data = new made_table{batches, rows};
    return made;
  }

 private:
  made_table(std::size_t batches, std::size_t rows) : batches_(batches), rows_(rows) {}

  // The objects to which the Arrow structures point. The object for the table also owns the objects
  // for its columns.
  struct types {
    std::array<ArrowSchema, 3> all{};  // the schemas of x, of its elements, and of label
    std::array<ArrowSchema*, 2> columns{&all[0], &all[2]};
    std::array<ArrowSchema*, 1> elements{&all[1]};
  };
  struct columns {
    std::vector<float> x;
    std::vector<std::int64_t> labels;
    std::array<ArrowArray, 3> all{};
    std::array<ArrowArray*, 2> parts{&all[0], &all[2]};
    std::array<ArrowArray*, 1> elements{&all[1]};
    std::array<const void*, 2> x_buffers{}, label_buffers{};
    std::array<const void*, 1> none{};
  };

  static void free_type(ArrowSchema* one) {
    delete static_cast<types*>(one->private_data);
    one->release = nullptr;
  }
  static void free_batch(ArrowArray* one) {
    delete static_cast<columns*>(one->private_data);
    one->release = nullptr;
  }

  static ArrowSchema type(const char* format, const char* name) {
    ArrowSchema one{};
    one.format = format;
    one.name = name;
    one.release = free_type;  // the release of a column frees nothing
    return one;
  }
  static ArrowSchema schema() {
    auto parts = std::make_unique<types>();
    parts->all = {type("+w:4", "x"), type("f", "item"), type("l", "label")};
    parts->all[0].n_children = 1;
    parts->all[0].children = parts->elements.data();
    ArrowSchema table = type("+s", "");
    table.n_children = 2;
    table.children = parts->columns.data();
    table.private_data = parts.release();
    return table;
  }

  static ArrowArray part(std::size_t length, std::int64_t buffers, const void** first) {
    ArrowArray one{};
    one.length = static_cast<std::int64_t>(length);
    one.n_buffers = buffers;
    one.buffers = first;
    one.release = free_batch;
    return one;
  }
  static ArrowArray batch(std::size_t number, std::size_t rows) {
    auto parts = std::make_unique<columns>();
    for (std::size_t row = number * rows; row < (number + 1) * rows; ++row) {
      for (std::size_t i = 0; i < 4; ++i) parts->x.push_back(static_cast<float>(4 * row + i) / 2);
      parts->labels.push_back(static_cast<std::int64_t>(row % 10));
    }
    parts->x_buffers[1] = parts->x.data();
    parts->label_buffers[1] = parts->labels.data();
    parts->all = {part(rows, 1, parts->none.data()), part(4 * rows, 2, parts->x_buffers.data()),
                  part(rows, 2, parts->label_buffers.data())};
    parts->all[0].n_children = 1;
    parts->all[0].children = parts->elements.data();
    ArrowArray table = part(rows, 1, parts->none.data());
    table.n_children = 2;
    table.children = parts->parts.data();
    table.private_data = parts.release();
    return table;
  }

  std::size_t batches_;
  std::size_t rows_;
  std::size_t next_ = 0;
};

}  // namespace data
