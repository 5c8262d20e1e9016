// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/table/arrow_dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock_ext/narrow/half.hpp>

#include "data/read_batch.hpp"
#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::counted;
using test::error_of;
using test::made_column;
using test::read_batch;
using test::table_of;

namespace {

template <class T, std::size_t... Extents>
using only = ps::record<ps::field<"x", T, Extents...>>;
using pair_of =
    ps::record<ps::field<"image", std::uint8_t, 2, 3>, ps::field<"label", std::int64_t>>;

made_column pairs(std::size_t rows, std::size_t first = 0) {
  const auto bytes = counted<std::uint8_t>(6 * rows, 6 * first);
  return test::structs(
      "", {test::numbers("label", "l", counted<std::int64_t>(rows, first)),
           test::fixed_lists("image", 2, test::fixed_lists("", 3, test::numbers("", "C", bytes)))});
}

template <class Record>
using x_of =
    std::conditional_t<std::is_same_v<typename Record::template field_at<0>::value_type, bool>,
                       std::uint8_t, typename Record::template field_at<0>::value_type>;

/// Returns the values of field x in all rows of a table with a single batch. The function follows
/// the rules of a dataset, but compiles faster.
template <class Record>
std::vector<x_of<Record>> values_in(const ps::arrow_table& table,
                                    const ps::table_options& options = {}) {
  ps::detail::table_columns columns{
      table.schema(), ps::detail::specs_of(std::type_identity<Record>{}), options, "arrow_dataset"};
  std::vector<x_of<Record>> all;
  if (table.batches() > 0) {
    const ps::detail::column_rows rows = columns.rows(table.batch(0), 0).at(0);
    const std::size_t row_values = rows.row_bytes / sizeof(x_of<Record>);
    all.resize(table.size() * row_values);
    for (std::uint64_t row = 0; row < table.size(); ++row) {
      rows.copy(row, reinterpret_cast<std::byte*>(&all[row * row_values]), rows.row_bytes);
    }
  }
  std::uint64_t elements = table.size();
  for (const std::size_t extent : columns.extents(0)) elements *= extent;
  CHECK(elements == all.size());
  return all;
}
template <class Record>
std::vector<x_of<Record>> values_of(made_column column, const ps::table_options& options = {}) {
  column.name = "x";
  return values_in<Record>(table_of(test::structs("", {std::move(column)})), options);
}

template <class Record, class Error>
Error rejected_column(made_column column) {
  return error_of<Error>([&] { values_of<Record>(column); });
}

}  // namespace

TEST_CASE("columns of a stream become the fields of their names", "[table][promise:race-free-9]") {
  test::made_stream made{{pairs(3), pairs(4, 3), pairs(1, 7)}};
  {
    ps::arrow_dataset<pair_of> data{made.stream()};
    REQUIRE(data.size() == 8);
    auto batch = read_batch(data, {7, 2, 3, 0, 6});
    CHECK(test::values<"label">(batch) == std::vector<std::int64_t>{7, 2, 3, 0, 6});
    CHECK(test::values<"image">(read_batch(data, {7, 3})) ==
          std::vector<std::uint8_t>{42, 43, 44, 45, 46, 47, 18, 19, 20, 21, 22, 23});
    CHECK(error_of<ps::index_error>([&] { read_batch(data, {8}); }).size() == 8);
    data.prefetch(8);
    const auto copy = data;
    data = ps::arrow_dataset<pair_of>{table_of(pairs(1))};
    CHECK(made.batches_released == 0);
    CHECK(test::values<"label">(read_batch(copy, {5})) == std::vector<std::int64_t>{5});
  }
  CHECK(made.batches_released == 3);
}

TEST_CASE("elements of each type are read unchanged", "[table]") {
  const auto same = []<class T>(T, const std::string& format) {
    const auto values = counted<T>(5);
    CHECK(values_of<only<T>>(test::numbers("", format, values)) == values);
  };
  same(std::int8_t{}, "c");
  same(std::uint8_t{}, "C");
  same(std::int16_t{}, "s");
  same(std::uint16_t{}, "S");
  same(std::int32_t{}, "i");
  same(std::uint32_t{}, "I");
  same(std::int64_t{}, "l");
  same(std::uint64_t{}, "L");
  same(float{}, "f");
  same(double{}, "g");
  same(std::uint16_t{}, "e");  // the bit patterns of half floats
  same(std::int32_t{}, "tdD");
  same(std::int64_t{}, "tdm");
  same(std::int32_t{}, "ttm");
  same(std::int64_t{}, "ttn");
  same(std::int64_t{}, "tsu:");
  same(std::int64_t{}, "tsn:Europe/Berlin");
  same(std::int64_t{}, "tDs");
}

TEST_CASE("a user-defined type can hold half floats or the bytes of a fixed_size_binary",
          "[table]") {
  struct half {
    std::uint16_t bits;
  };
  struct rgb {
    std::uint8_t r, g, b;
  };
  using halves = only<half>;
  using colors = only<rgb, 2>;
  const auto values = values_of<halves>(test::numbers("", "e", counted<std::uint16_t>(4)));
  CHECK(values[3].bits == 3);
  made_column column = test::numbers("", "w:6", counted<std::uint8_t>(12));
  column.length = 2;
  CHECK(values_of<colors>(column)[3].g == 10);
}

TEST_CASE("half floats are read as half, not as bfloat16", "[table]") {
  const auto one = test::numbers("", "e", std::vector<std::uint16_t>{0x3c00});
  CHECK(static_cast<float>(values_of<only<ps::half>>(one)[0]) == 1);
  CHECK_THROWS_AS(values_of<only<ps::bfloat16>>(one), ps::column_type_mismatch);
}

TEST_CASE("the bits of a bool column are bools, or bytes of 0 and 1", "[table]") {
  made_column column{"", "b", 11, {std::nullopt, test::bits_of("0110100010111")}};
  column.offset = 2;
  const std::vector<bool> expected{true, false, true, false, false, false,
                                   true, false, true, true,  true};
  const auto bools = values_of<only<bool>>(column);
  CHECK(std::vector<bool>(bools.begin(), bools.end()) == expected);
  const auto bytes = values_of<only<std::uint8_t>>(column);
  CHECK(std::vector<bool>(bytes.begin(), bytes.end()) == expected);
  column.length = 12;
  column.offset = 0;
  const auto lists = values_of<only<bool, 3>>(test::fixed_lists("", 3, column));
  CHECK(std::vector<bool>(lists.begin(), lists.end()) ==
        std::vector<bool>{false, true, true, false, true, false, false, false, true, false, true,
                          true});
}

TEST_CASE("offsets of batch, struct, list and elements are all followed",
          "[table][promise:race-free-9]") {
  // 40 numbers. The element offset is 4, the list offset 1, and the batch offset 2.
  made_column elements = test::numbers("", "i", counted<std::int32_t>(40));
  elements.length = 36;
  elements.offset = 4;
  made_column column = test::fixed_lists("x", 3, elements);
  column.length = 11;
  column.offset = 1;
  made_column batch = test::structs("", {column});
  batch.length = 9;
  batch.offset = 2;
  CHECK(values_in<only<std::int32_t, 3>>(table_of(batch)) == counted<std::int32_t>(27, 13));

  column.name = "inner";
  made_column outer = test::structs("x", {column});
  outer.length = 10;
  outer.offset = 1;
  batch = test::structs("", {outer});
  batch.length = 7;
  batch.offset = 2;
  CHECK(values_in<only<std::int32_t, 3>>(table_of(batch), {.columns = {"x.inner"}}) ==
        counted<std::int32_t>(21, 16));
}

TEST_CASE("one list, or a fixed_size_binary, is all extents of a field", "[table]") {
  const auto numbers = test::numbers("", "f", counted<float>(24));
  const auto flat = test::fixed_lists("", 12, numbers);
  CHECK(values_of<only<float, 2, 2, 3>>(flat) == counted<float>(24));
  CHECK(values_of<only<float, 2, 2, ps::dyn>>(flat) == counted<float>(24));
  made_column bytes = test::numbers("", "w:48", counted<float>(24));
  bytes.length = 2;
  CHECK(values_of<only<float, 3, 4>>(bytes) == counted<float>(24));
  CHECK(values_of<only<float, ps::dyn>>(bytes) == counted<float>(24));
  bytes.format = "w:4";
  bytes.length = 24;
  CHECK(values_of<only<float>>(bytes) == counted<float>(24));
}

TEST_CASE("lists of variable type are read if all have the same length",
          "[table][fault:files-11]") {
  const auto inside = test::numbers("", "s", counted<std::int16_t>(20));
  const std::vector<std::int16_t> expected = counted<std::int16_t>(12, 4);
  const auto narrow = test::lists<std::int32_t>("", {4, 10, 16}, inside);
  const auto wide = test::lists<std::int64_t>("", {4, 10, 16}, inside);
  CHECK(values_of<only<std::int16_t, 6>>(narrow) == expected);
  CHECK(values_of<only<std::int16_t, ps::dyn>>(wide) == expected);
  CHECK(values_of<only<std::int16_t, 2, 3>>(wide) == expected);
  CHECK(values_of<only<std::int16_t, ps::dyn, 3>>(narrow) == expected);
  const auto twice = test::lists<std::int32_t>(
      "", {0, 2, 4}, test::lists<std::int32_t>("", {4, 7, 10, 13, 16}, inside));
  CHECK(values_of<only<std::int16_t, 2, 3>>(twice) == expected);
  CHECK(values_of<only<std::int16_t, ps::dyn, ps::dyn>>(twice) == expected);

  auto ragged = test::lists<std::int32_t>("", {4, 10, 15, 20}, inside);
  const auto problem = rejected_column<only<std::int16_t, 6>, ps::column_shape_mismatch>(ragged);
  CHECK(problem.column() == "x");
  CHECK(problem.expected() == "lists of 6 in all rows");
  CHECK(problem.found() == "5 in row 1");
  CHECK(rejected_column<only<std::int16_t, ps::dyn>, ps::column_shape_mismatch>(ragged).found() ==
        "5 in row 1");
  ragged = test::lists<std::int32_t>("", {4, 4, 4}, inside);
  CHECK(
      rejected_column<only<std::int16_t, ps::dyn>, ps::column_shape_mismatch>(ragged).expected() ==
      "lists that are not empty");
}

TEST_CASE("dynamic extents are those of the table", "[table]") {
  using any = ps::record<ps::field<"image", std::uint8_t, ps::dyn, ps::dyn>>;
  const ps::arrow_dataset<any> data{table_of(pairs(3))};
  CHECK(data.extents().at<0>() == ps::extents<ps::dyn, ps::dyn>{2, 3});
  // All batches must have the same extents as the first batch.
  const auto batch = [](std::vector<std::int32_t> offsets) {
    return test::structs("", {test::lists("x", offsets, test::numbers("", "i", counted<int>(9)))});
  };
  test::made_stream made{{batch({0, 3, 6}), batch({0, 3}), batch({0, 4, 8})}};
  const auto problem = error_of<ps::column_shape_mismatch>(
      [&] { ps::arrow_dataset<only<std::int32_t, ps::dyn>>{made.stream()}; });
  CHECK(problem.found() == "4 in row 3");
  CHECK(rejected_column<only<std::int32_t, ps::dyn>, ps::column_shape_mismatch>(
            test::lists<std::int32_t>("", {0}, test::numbers<std::int32_t>("", "i", {})))
            .found() == "no row, so the length of its lists is unknown");
}

TEST_CASE("a table without a row is a dataset without a sample", "[table]") {
  const ps::arrow_dataset<pair_of> data{table_of(pairs(0))};
  CHECK(data.size() == 0);
}

TEST_CASE("nulls are rejected with column and row for any null_count", "[table][fault:files-11]") {
  const auto row_of = [](const made_column& batch) {
    test::made_stream made{{pairs(100), batch}};
    const auto problem =
        error_of<ps::null_in_column>([&] { ps::arrow_dataset<pair_of>{made.stream()}; });
    CHECK(made.batches_released == 2);
    return problem.column() + " " + std::to_string(problem.row());
  };
  made_column batch = pairs(200);
  std::string digits(200, '1');
  digits[100] = '0';
  for (const std::int64_t said : {-1, 0, 1}) {
    batch.children[0] = test::with_nulls(batch.children[0], digits);
    batch.children[0].null_count = said;
    CHECK(row_of(batch) == "label 200");
  }
  batch = pairs(200);
  batch.children[1] = test::with_nulls(batch.children[1], digits);
  CHECK(row_of(batch) == "image 200");
  batch = pairs(200);
  std::string inside(400, '1');
  inside[7] = '0';
  batch.children[1].children[0] = test::with_nulls(batch.children[1].children[0], inside);
  CHECK(row_of(batch) == "image 103");
  batch = pairs(200);
  std::string elements(1200, '1');
  elements[1199] = '0';
  made_column& rows = batch.children[1].children[0];
  rows.children[0] = test::with_nulls(rows.children[0], elements);
  CHECK(row_of(batch) == "image 299");
  // The bitmap has a 1 for each of these rows.
  batch.length = 100;
  rows.children[0] = test::with_nulls(rows.children[0], elements);
  CHECK(ps::arrow_dataset<pair_of>{table_of(batch)}.size() == 100);
}

TEST_CASE("nulls become zeros if requested", "[table]") {
  const ps::table_options zeros{.null = ps::null_values::value_initialised};
  auto numbers = test::with_nulls(test::numbers("", "i", counted<std::int32_t>(6, 1)), "101101");
  CHECK(values_of<only<std::int32_t>>(numbers, zeros) ==
        std::vector<std::int32_t>{1, 0, 3, 4, 0, 6});
  const auto rows = test::with_nulls(test::fixed_lists("", 2, numbers), "011");
  CHECK(values_of<only<std::int32_t, 2>>(rows, zeros) ==
        std::vector<std::int32_t>{0, 0, 3, 4, 0, 6});
  auto bits = test::with_nulls({"", "b", 5, {std::nullopt, test::bits_of("11111")}}, "10110");
  bits.offset = 1;
  bits.length = 4;
  const auto bools = values_of<only<bool>>(bits, zeros);
  CHECK(std::vector<bool>(bools.begin(), bools.end()) ==
        std::vector<bool>{false, true, true, false});
  numbers.name = "inner";
  auto outer = test::with_nulls(test::structs("x", {numbers}), "110111");
  CHECK(values_in<only<std::int32_t>>(
            table_of(test::structs("", {outer})),
            {.columns = {"x.inner"}, .null = ps::null_values::value_initialised}) ==
        std::vector<std::int32_t>{1, 0, 0, 4, 0, 6});
}

TEST_CASE("columns with other names and members of structs are selected in the options",
          "[table]") {
  const auto inner = test::structs("a.b", {test::numbers("c", "i", counted<std::int32_t>(3, 5))});
  const auto table = test::structs(
      "", {test::structs("", {inner}), test::numbers("b.c", "i", counted<std::int32_t>(3))});
  made_column named = table;
  named.children[0].name = "s";
  const auto first_of = [&](const std::string& name) {
    return values_in<only<std::int32_t>>(table_of(named), {.columns = {name}})[0];
  };
  CHECK(first_of("s.a.b.c") == 5);
  CHECK(first_of("b.c") == 0);
  for (const std::string wrong : {"s.a.c", "s.a.b.c.d", "b", "", ".", "s."}) {
    const auto problem = error_of<ps::missing_column>([&] { first_of(wrong); });
    CHECK(problem.column() == wrong);
    CHECK(problem.found() == "s: struct<a.b: struct<c: int32>>, b.c: int32");
  }
  CHECK(error_of<ps::option_error>([&] {
          ps::arrow_dataset<pair_of>{table_of(named), {.columns = {"s"}}};
        }).option() == "columns");
}

TEST_CASE("missing, repeated and extra columns are reported with all existing columns",
          "[table][fault:files-11]") {
  made_column batch = pairs(2);
  batch.children[0].name = "Label";
  auto missing = error_of<ps::missing_column>([&] { ps::arrow_dataset<pair_of>{table_of(batch)}; });
  CHECK(missing.column() == "label");
  CHECK(missing.found() == "Label: int64, image: fixed_size_list<fixed_size_list<uint8>[3]>[2]");
  batch.children[0].name = "label";
  batch.children.push_back(batch.children[0]);
  missing = error_of<ps::missing_column>([&] { ps::arrow_dataset<pair_of>{table_of(batch)}; });
  CHECK(test::has(missing.found(), "2 among label: int64, image"));
  batch.children[2].name = "more";
  CHECK(ps::arrow_dataset<pair_of>{table_of(batch)}.size() == 2);
  const auto extra = error_of<ps::extra_column>(
      [&] { ps::arrow_dataset<pair_of>{table_of(batch), {.extra = ps::extra_columns::reject}}; });
  CHECK(extra.found() == "more: int64");
  CHECK(
      ps::arrow_dataset<pair_of>{table_of(pairs(2)), {.extra = ps::extra_columns::reject}}.size() ==
      2);
}

TEST_CASE("a column of another type is rejected with both types and a remedy",
          "[table][fault:files-11]") {
  const auto found = []<class Record>(Record, const made_column& column) {
    const auto problem = rejected_column<Record, ps::column_type_mismatch>(column);
    CHECK(problem.column() == "x");
    CHECK(test::has(problem.what(), "arrow_dataset: column \"x\": expected "));
    return problem.expected() + " / " + problem.found();
  };
  const auto ints = test::numbers("", "i", counted<std::int32_t>(4));
  CHECK(found(only<float>{}, ints) == "float32 / int32");
  CHECK(found(only<std::uint32_t>{}, ints) == "uint32 / int32");
  CHECK(found(only<std::int64_t>{}, ints) == "int64 / int32");
  CHECK(found(only<bool>{}, test::numbers("", "C", counted<std::uint8_t>(4))) == "bool / uint8");
  CHECK(found(only<std::int16_t>{}, test::numbers("", "e", counted<std::uint16_t>(4))) ==
        "int16 / float16");
  CHECK(found(only<std::int8_t, 2, ps::dyn>{}, test::fixed_lists("", 4, ints)) ==
        "int8[2][any] / fixed_size_list<int32>[4]");
  made_column bytes = test::numbers("", "w:4", counted<std::uint8_t>(8));
  bytes.length = 2;
  CHECK(found(only<bool, 4>{}, bytes) == "bool[4] / fixed_size_binary(4)");  // bytes of any value
  for (const auto& [format, words] :
       std::vector<std::pair<std::string, std::string>>{{"n", "null"},
                                                        {"d:19,10", "type 'd:19,10'"},
                                                        {"w:", "type 'w:'"},
                                                        {"w:-3", "type 'w:-3'"},
                                                        {"w:99999999999", "type 'w:99999999999'"},
                                                        {"+w:0", "type '+w:0'"},
                                                        {"tsx:", "type 'tsx:'"},
                                                        {"+ud:1,2", "type '+ud:1,2'"},
                                                        {"", "type ''"}}) {
    made_column column = ints;
    column.format = format;
    CHECK(found(only<std::int32_t>{}, column) == "int32 / " + words);
  }
  const auto said = [](made_column column) {
    return std::string{
        rejected_column<only<std::int32_t>, ps::column_type_mismatch>(std::move(column)).what()};
  };
  made_column coded = ints;
  coded.has_dictionary = true;
  CHECK(test::has(said(coded), "found dictionary<int32>: decode the dictionary"));
  CHECK(test::has(said(test::strings("", "u", {"a"})), "found utf8: rows of different lengths"));
  CHECK(test::has(said({"", "vu", 1, {std::nullopt, std::string(16, '\0'), ""}}),
                  "found utf8_view: views have a different layout"));
}

TEST_CASE("lists of other lengths than the field's extents are rejected",
          "[table][fault:files-11]") {
  const auto found = []<class Record>(Record, const made_column& column) {
    const auto problem = rejected_column<Record, ps::column_shape_mismatch>(column);
    return problem.expected() + " / " + problem.found();
  };
  const auto ints = test::numbers("", "i", counted<std::int32_t>(12));
  const auto pairs_of_three = test::fixed_lists("", 2, test::fixed_lists("", 3, ints));
  CHECK(found(only<std::int32_t>{}, test::fixed_lists("", 2, ints)) ==
        "int32 / fixed_size_list<int32>[2]");
  CHECK(found(only<std::int32_t, 2>{}, ints) == "int32[2] / int32");
  CHECK(found(only<std::int32_t, 6>{}, pairs_of_three) ==
        "int32[6] / fixed_size_list<fixed_size_list<int32>[3]>[2]");
  CHECK(found(only<std::int32_t, 3, 2>{}, pairs_of_three) ==
        "int32[3][2] / fixed_size_list<fixed_size_list<int32>[3]>[2]");
  const auto flat = test::fixed_lists("", 6, ints);
  CHECK(found(only<std::int32_t, 2, 2>{}, flat) == "int32[2][2] / fixed_size_list<int32>[6]");
  CHECK(found(only<std::int32_t, ps::dyn, 4>{}, flat) ==
        "int32[any][4] / fixed_size_list<int32>[6]");
  CHECK(found(only<std::int32_t, ps::dyn, ps::dyn>{}, flat) ==
        "int32[any][any] / fixed_size_list<int32>[6]");
  made_column bytes = test::numbers("", "w:6", counted<std::uint8_t>(12));
  bytes.length = 2;
  CHECK(found(only<std::int32_t, 2>{}, bytes) == "int32[2] / fixed_size_binary(6)");
  CHECK(found(only<std::int32_t, ps::dyn>{}, bytes) == "int32[any] / fixed_size_binary(6)");
  CHECK(found(only<std::uint8_t>{}, bytes) == "uint8 / fixed_size_binary(6)");
}

TEST_CASE("a column with impossible metadata is rejected before it is read",
          "[table][fault:files-11]") {
  const auto rejected = [](const std::function<void(made_column&)>& change) {
    made_column column =
        test::lists<std::int32_t>("x", {0, 2, 4, 6}, test::numbers("", "i", counted<int>(6)));
    change(column);
    made_column batch = test::structs("", {column});
    batch.length = 3;
    const auto problem = error_of<ps::arrow_invalid>(
        [&] { values_in<only<std::int32_t, ps::dyn>>(table_of(batch)); });
    CHECK(problem.column() == "x");
    return problem.expected() + " / " + problem.found();
  };
  const auto offsets = [&](const std::vector<std::int32_t>& values) {
    return rejected([&](made_column& c) { c.buffers[1] = test::bytes_of_numbers(values); });
  };
  CHECK(offsets({-1, 1, 3, 5}) == "an offset of 0 or more / -1");
  CHECK(offsets({0, 2, 1, 3}) == "offset 2 to be 2 or more / 1");
  CHECK(offsets({2, 4, 6, 8}) == "6 values at offset 2 / an array of 6");
  CHECK(rejected([](auto& c) { c.length = 2; }) == "3 values at offset 0 / an array of 2");
  CHECK(rejected([](auto& c) { c.buffers.pop_back(); }) == "2 buffers / 1");
  CHECK(rejected([](auto& c) { c.buffers[1] = std::nullopt; }) ==
        "a buffer of values / a null pointer");
  CHECK(rejected([](auto& c) { c.children[0].length = 5; }) ==
        "6 values at offset 0 / an array of 5");
  CHECK(rejected([](auto& c) { c.children[0].offset = -1; }) == "an offset of 0 or more / -1");
  CHECK(rejected([](auto& c) { c.children[0].buffers.push_back(""); }) == "2 buffers / 3");
  CHECK(rejected([](auto& c) { c.children[0].buffers[1] = std::nullopt; }) ==
        "a buffer of values / a null pointer");
  CHECK(rejected([](auto& c) { c.children[0].null_count = 2; }) ==
        "a bitmap for 2 nulls / a null pointer");
}

TEST_CASE("an array that contradicts its type is rejected", "[table][fault:files-11]") {
  made_column right = test::structs("x", {test::numbers("inner", "i", counted<std::int32_t>(3))});
  const auto rejected = [&](const made_column& wrong) {
    return error_of<ps::arrow_invalid>([&] {
             const ps::arrow_table table{test::schema_of(test::structs("", {right})),
                                         test::array_of(test::structs("", {wrong}))};
             values_in<only<std::int32_t>>(table, {.columns = {"x.inner"}});
           })
        .expected();
  };
  made_column wrong = right;
  wrong.children.clear();
  CHECK(rejected(wrong) == "1 children");
  wrong = right;
  wrong.children[0].has_dictionary = true;
  CHECK(rejected(wrong) == "no dictionary, according to the type");
  wrong = right;
  wrong.children[0].children = right.children;
  CHECK(rejected(wrong) == "0 children");
  // Products of these lengths exceed the address space.
  right = test::numbers("inner", "w:2000000000", counted<std::uint8_t>(3));
  made_column batch = test::structs("", {test::structs("x", {right})});
  batch.offset = std::int64_t{1} << 39;
  batch.children[0].length = batch.children[0].children[0].length = batch.offset + 3;
  CHECK(error_of<ps::arrow_invalid>([&] {
          values_in<only<std::uint8_t, ps::dyn>>(table_of(batch), {.columns = {"x.inner"}});
        }).expected() == "values within the address space");
}

TEST_CASE("a list of bytes causes a warning with its name", "[table]") {
  const ps::arrow_dataset<pair_of> data{table_of(pairs(2))};
  REQUIRE(data.warnings().size() == 1);
  CHECK(test::has(data.warnings()[0], "column \"image\""));
  CHECK(test::has(data.warnings()[0], "fixed_size_binary(6)"));
  made_column bytes = test::numbers("x", "w:6", counted<std::uint8_t>(12));
  bytes.length = 2;
  using six = ps::record<ps::field<"x", std::uint8_t, 6>>;
  ps::detail::table_columns columns{table_of(test::structs("", {bytes})).schema(),
                                    ps::detail::specs_of(std::type_identity<six>{}),
                                    {},
                                    ""};
  CHECK(columns.warnings().empty());
}
