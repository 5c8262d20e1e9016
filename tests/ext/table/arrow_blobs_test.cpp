// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/table/arrow_blobs.hpp>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;
using test::made_column;
using test::table_of;

namespace {

made_column photos(const std::string& format, const std::vector<std::string>& values) {
  std::vector<std::int16_t> labels;
  std::vector<std::string> keys;
  for (const std::string& one : values) {
    labels.push_back(static_cast<std::int16_t>(one.size()) - 2);
    keys.push_back("key of " + one);
  }
  return test::structs("", {test::strings("image", format, values),
                            test::numbers("label", "s", labels), test::strings("key", "u", keys)});
}

const ps::arrow_blobs_options all{.blob = "image", .label = "label", .key = "key"};

std::string text_of(const ps::arrow_blobs& source, std::uint64_t index) {
  ps::blob_buffer buffer;
  const auto bytes = source.bytes(index, buffer);
  CHECK(buffer.capacity() == 0);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("the strings of a column are blobs in place, with labels and keys",
          "[table][promise:race-free-9]") {
  for (const std::string format : {"z", "Z", "u", "U"}) {
    test::made_stream made{{photos(format, {"one", "", "three"}), photos(format, {"four"})}};
    {
      const ps::arrow_blobs source{made.stream(), all};
      REQUIRE(source.size() == 4);
      CHECK(text_of(source, 0) == "one");
      CHECK(text_of(source, 1).empty());
      CHECK(text_of(source, 2) == "three");
      CHECK(text_of(source, 3) == "four");
      CHECK(source.label(1) == -2);
      CHECK(source.label(3) == 2);
      CHECK(source.key(2) == "key of three");
      CHECK(error_of<ps::index_error>([&] { text_of(source, 4); }).size() == 4);
      CHECK(error_of<ps::index_error>([&] { (void)source.label(4); }).index() == 4);
      CHECK(error_of<ps::index_error>([&] { (void)source.key(4); }).index() == 4);
      source.prefetch(3);
      source.prefetch(4);
      const auto copy = source;
      CHECK(copy.key(3) == "key of four");
      CHECK(made.batches_released == 0);
    }
    CHECK(made.batches_released == 2);
  }
}

TEST_CASE("offsets of batch and column are followed to the strings",
          "[table][promise:race-free-9]") {
  made_column batch = photos("z", {"zero", "one", "two", "three"});
  batch.children[0].offset = 1;
  batch.children[0].length = 3;
  batch.offset = 1;
  batch.length = 2;
  const ps::arrow_blobs source{table_of(batch), {.blob = "image", .label = "label"}};
  CHECK(text_of(source, 0) == "two");
  CHECK(text_of(source, 1) == "three");
  CHECK(source.label(0) == 1);  // label of the second row
  CHECK(source.key(1) == "row 1");
}

TEST_CASE("members of structs and a fixed_size_binary are blobs", "[table]") {
  made_column image = photos("z", {"one", "two"}).children[0];
  image.name = "bytes";
  const auto batch = test::structs("", {test::structs("image", {image})});
  const ps::arrow_blobs nested{table_of(batch), {.blob = "image.bytes"}};
  CHECK(text_of(nested, 1) == "two");
  CHECK(nested.label(1) == 0);
  const made_column fixed{"hash", "w:3", 2, {std::nullopt, "abcdefghi"}, {}, 1};
  const ps::arrow_blobs hashes{table_of(test::structs("", {fixed})), {.blob = "hash"}};
  CHECK(text_of(hashes, 0) == "def");
  CHECK(text_of(hashes, 1) == "ghi");
}

TEST_CASE("labels are integers of any size, or bits", "[table][fault:files-11]") {
  const auto labels_of = [](made_column labels) {
    labels.name = "label";
    const auto batch = test::structs("", {test::strings("image", "z", {"a", "b", "c"}), labels});
    const ps::arrow_blobs source{table_of(batch), {.blob = "image", .label = "label"}};
    return std::vector<std::int64_t>{source.label(0), source.label(1), source.label(2)};
  };
  const auto extremes = [&]<class T>(T, const std::string& format) {
    using limits = std::numeric_limits<T>;
    const std::vector<T> values{limits::min(), T{7}, limits::max()};
    CHECK(labels_of(test::numbers("", format, values)) ==
          std::vector<std::int64_t>(values.begin(), values.end()));
  };
  extremes(std::int8_t{}, "c");
  extremes(std::uint8_t{}, "C");
  extremes(std::int16_t{}, "s");
  extremes(std::uint16_t{}, "S");
  extremes(std::int32_t{}, "i");
  extremes(std::uint32_t{}, "I");
  extremes(std::int64_t{}, "l");
  CHECK(labels_of({"", "b", 3, {std::nullopt, test::bits_of("101")}}) ==
        std::vector<std::int64_t>{1, 0, 1});
  const std::uint64_t largest = std::uint64_t{1} << 63;
  CHECK(labels_of(test::numbers<std::uint64_t>("", "L", {0, 1, largest - 1}))[2] ==
        std::numeric_limits<std::int64_t>::max());
  const auto problem = error_of<ps::table_error>(
      [&] { labels_of(test::numbers<std::uint64_t>("", "L", {0, 1, largest})); });
  CHECK(problem.expected() == "labels below 2^63 in row 2");
  CHECK(problem.found() == std::to_string(largest));
}

TEST_CASE("nulls among blobs are rejected, or are empty if requested", "[table][fault:files-11]") {
  made_column batch = photos("z", {"one", "two", "three"});
  for (std::size_t i = 0; i < 3; ++i) {
    made_column spoilt = batch;
    spoilt.children[i] = test::with_nulls(batch.children[i], "101");
    test::made_stream made{{batch, spoilt}};
    const auto problem = error_of<ps::null_in_column>([&] { ps::arrow_blobs{made.stream(), all}; });
    CHECK(problem.column() == batch.children[i].name);
    CHECK(problem.row() == 4);
  }
  for (made_column& one : batch.children) one = test::with_nulls(one, "101");
  auto options = all;
  options.null = ps::null_values::value_initialised;
  const ps::arrow_blobs source{table_of(batch), options};
  CHECK(text_of(source, 0) == "one");
  CHECK(text_of(source, 1).empty());
  CHECK(source.label(1) == 0);
  CHECK(source.key(1).empty());
  CHECK(source.key(2) == "key of three");
}

TEST_CASE("blobs of other types are rejected with a remedy", "[table][fault:files-11]") {
  const auto said = [](made_column blob, const std::string& label = {}) {
    blob.name = "image";
    const auto batch =
        test::structs("", {blob, test::numbers<float>("score", "f", {1}),
                           test::fixed_lists("box", 1, test::numbers<int>("", "i", {1}))});
    return std::string{error_of<ps::column_type_mismatch>([&] {
                         ps::arrow_blobs{table_of(batch), {.blob = "image", .label = label}};
                       }).what()};
  };
  const auto text = test::strings("", "z", {"a"});
  CHECK(test::has(said({"", "vz", 1, {std::nullopt, std::string(16, '\0'), ""}}),
                  "found binary_view: views have a different layout"));
  CHECK(test::has(said(test::numbers<int>("", "i", {1})), "found int32"));
  CHECK(test::has(said(test::lists<std::int32_t>("", {0, 1}, text)), "found list<binary>"));
  made_column coded = text;
  coded.has_dictionary = true;
  CHECK(test::has(said(coded), "decode the dictionary"));
  CHECK(test::has(said(text, "score"), "expected a column of integers or bool, found float32"));
  CHECK(test::has(said(text, "box"), "found fixed_size_list<int32>[1]"));
  const auto missing = [&](const ps::arrow_blobs_options& options) {
    return error_of<ps::missing_column>(
               [&] { ps::arrow_blobs{table_of(photos("z", {"a"})), options}; })
        .column();
  };
  CHECK(missing({.blob = "picture"}) == "picture");
  CHECK(missing({.blob = "image", .label = "class"}) == "class");
  CHECK(missing({.blob = "image", .key = "path"}) == "path");
  CHECK(error_of<ps::option_error>([&] {
          ps::arrow_blobs{table_of(photos("z", {"a"})), {}};
        }).option() == "blob");
}

TEST_CASE("strings with impossible offsets are rejected before they are read",
          "[table][fault:files-11]") {
  const auto rejected = [](const std::function<void(made_column&)>& change) {
    made_column batch = photos("z", {"one", "two"});
    change(batch.children[0]);
    return error_of<ps::arrow_invalid>([&] { ps::arrow_blobs{table_of(batch), {.blob = "image"}}; })
        .expected();
  };
  const auto offsets = [&](const std::vector<std::int32_t>& values) {
    return rejected([&](made_column& c) { c.buffers[1] = test::bytes_of_numbers(values); });
  };
  CHECK(offsets({-3, 0, 3}) == "an offset of 0 or more");
  CHECK(offsets({0, 3, 2}) == "offset 2 to be 3 or more");
  CHECK(rejected([](auto& c) { c.buffers[1] = std::nullopt; }) == "a buffer of values");
  CHECK(rejected([](auto& c) { c.buffers[2] = std::nullopt; }) == "a buffer of bytes");
  CHECK(rejected([](auto& c) { c.buffers.pop_back(); }) == "3 buffers");
  CHECK(rejected([](auto& c) { c.length = 1; }) == "2 values at offset 0");
  // Empty strings need no byte buffer.
  made_column batch = photos("z", {"", ""});
  batch.children[0].buffers[2] = std::nullopt;
  CHECK(text_of(ps::arrow_blobs{table_of(batch), {.blob = "image"}}, 1).empty());
}
