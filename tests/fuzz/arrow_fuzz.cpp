// SPDX-License-Identifier: BSL-1.0
// Reads a table of another library with arbitrary column descriptions. The table must be rejected,
// or every row must lie at the described location. Requirements that no reader can check hold as
// they would for a correct producer: each buffer has room for the values that the length and offset
// of its array require.
#include <penstock_ext/table/arrow_blobs.hpp>
#include <penstock_ext/table/arrow_dataset.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "ext/table/arrow_producer.hpp"
#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

// Space for 254 values of 16 bytes.
constexpr std::size_t room = 4096;

/// A reader that splits an input into values. Missing bytes read as 0.
class reader {
 public:
  explicit reader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  std::uint8_t byte() {
    if (at_ >= bytes_.size()) return 0;
    return bytes_[at_++];
  }
  /// Returns a value from -128 to 127 or, rarely, a value too large for any memory.
  std::int64_t number() {
    const auto given = static_cast<std::int8_t>(byte());
    if (given == 101) return std::int64_t{1} << (41 + byte() % 22);
    if (given == -101) return -(std::int64_t{1} << (byte() % 63));
    return given;
  }
  std::string buffer() {
    std::string all(room, static_cast<char>(byte()));
    const std::size_t count = byte() % 33;
    // 8-byte steps test 64-bit offsets, and 4-byte steps test 32-bit offsets.
    const std::size_t step = std::size_t{1} << (byte() % 4);
    for (std::size_t i = 0; i < count; ++i) all[i * step] = static_cast<char>(byte());
    return all;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

test::made_column column_of(reader& from, int depth) {
  static constexpr std::array<const char*, 24> formats{
      "i", "C",  "f",   "b", "+w:2", "+w:3", "+l",  "+L",   "z",  "Z",  "u",    "w:6",
      "l", "+s", "w:4", "U", "e",    "g",    "tdD", "w:16", "vu", "+m", "+w:0", "L"};
  test::made_column made;
  made.name = depth == 1 ? "x" : "item";
  made.format = formats[from.byte() % formats.size()];
  const std::uint8_t how = from.byte();
  made.length = from.number();
  made.offset = (how & 1) != 0 ? from.number() : 0;
  made.null_count = (how & 2) != 0 ? from.number() : 0;
  made.has_dictionary = (how & 12) == 12;
  const bool is_wrong = (how & 48) == 48;  // sets a wrong number of buffers or children
  const bool is_string = std::strchr("zZuU", made.format[0]) != nullptr;
  const bool has_values = made.format[0] != '+' || made.format == "+l" || made.format == "+L";
  const std::size_t buffers = is_wrong ? from.byte() % 4U : is_string ? 3U : has_values ? 2U : 1U;
  for (std::size_t i = 0; i < buffers; ++i) {
    if (i == 0 ? (how & 64) == 0 : from.byte() % 16 == 15) {
      made.buffers.emplace_back(std::nullopt);
    } else {
      made.buffers.emplace_back(from.buffer());
    }
  }
  const std::size_t children = is_wrong ? from.byte() % 3U : made.format[0] == '+' ? 1U : 0U;
  for (std::size_t i = 0; i < children && depth < 5; ++i) {
    made.children.push_back(column_of(from, depth + 1));
  }
  return made;
}

template <class Field>
void read_as(const ps::arrow_table& table, const ps::table_options& options) {
  using record = ps::record<Field>;
  try {
    ps::detail::table_columns columns{
        table.schema(), ps::detail::specs_of(std::type_identity<record>{}), options, "fuzz"};
    for (std::size_t b = 0; b < table.batches(); ++b) {
      const ps::detail::column_rows rows = columns.rows(table.batch(b), table.first_row(b)).at(0);
      std::size_t bytes = sizeof(typename Field::value_type);
      for (const std::size_t extent : columns.extents(0)) bytes *= extent;
      fuzz::require(rows.row_bytes == bytes, "a row is as long as the extents say");
      std::vector<std::byte> row(bytes);
      for (std::int64_t i = 0; i < table.batch(b).length; ++i) {
        rows.copy(static_cast<std::uint64_t>(i), row.data(), bytes);
        if constexpr (std::is_same_v<typename Field::value_type, bool>) {
          for (const std::byte one : row) {
            fuzz::require(one <= std::byte{1}, "a bool is 0 or 1");
          }
        }
        rows.prefetch(static_cast<std::uint64_t>(i));
      }
    }
  } catch (const ps::table_error& rejected) {
    fuzz::require(!rejected.expected().empty(), "an error says what was expected");
  }
}

void read_blobs(const ps::arrow_table& table, ps::null_values null) {
  try {
    const ps::arrow_blobs source{table, {.blob = "x", .null = null}};
    ps::blob_buffer buffer;
    for (std::uint64_t i = 0; i < source.size(); ++i) {
      const auto bytes = source.bytes(i, buffer);
      fuzz::require(bytes.size() <= ~std::uint64_t{0} / 2, "a blob ends after its start");
    }
  } catch (const ps::table_error& rejected) {
    fuzz::require(!rejected.expected().empty(), "an error says what was expected");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  reader from{{data, size}};
  test::made_column batch;
  batch.format = "+s";
  const std::uint8_t how = from.byte();
  batch.length = from.number();
  batch.offset = (how & 1) != 0 ? from.number() : 0;
  batch.buffers.emplace_back(std::nullopt);
  if ((how & 2) != 0) batch.buffers[0] = from.buffer();
  batch.children.push_back(column_of(from, 1));
  test::made_column other = batch;
  if ((how & 4) != 0) other.children[0] = column_of(from, 1);  // possibly another type
  int released = 0;
  try {
    const ps::arrow_table table{test::schema_of(batch, &released),
                                test::array_of(other, &released)};
    for (const auto null : {ps::null_values::reject, ps::null_values::value_initialised}) {
      for (const char* name : {"x", "x.item"}) {
        const ps::table_options options{.columns = {name}, .null = null};
        read_as<ps::field<"x", std::int32_t, ps::dyn>>(table, options);
        read_as<ps::field<"x", std::uint8_t, ps::dyn, 3>>(table, options);
        read_as<ps::field<"x", bool, 2, ps::dyn>>(table, options);
        read_as<ps::field<"x", float>>(table, options);
      }
      read_blobs(table, null);
    }
  } catch (const ps::table_error& rejected) {
    fuzz::require(!rejected.expected().empty(), "an error says what was expected");
  }
  fuzz::require(released == 2, "what was handed over is released once");
  return 0;
}
