// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/indexed/tf_examples.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/files/glob.hpp>

#include "ext/indexed/tf_records.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::example;
using test::feature;
using test::has;
using test::message;
using test::number_bytes;
using test::tf_record;
using test::varint;

namespace {

using image_record =
    ps::record<ps::field<"image", std::uint8_t, ps::ragged>, ps::field<"box", float, 4>,
               ps::field<"words", std::int64_t, ps::ragged>, ps::field<"label", std::int16_t>>;

struct values {
  std::vector<std::uint8_t> image;
  std::vector<float> box;
  std::vector<std::int64_t> words;
  std::int16_t label = 0;

  friend bool operator==(const values&, const values&) = default;
};

std::string tf_file(const test::temp_dir& folder, const std::string& name,
                    const std::string& bytes) {
  return folder.write(name, {bytes.begin(), bytes.end()});
}

std::vector<values> read_all(const std::vector<std::string>& paths) {
  const ps::tf_examples<image_record> data{paths};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 3, .workers = 2}};
  std::vector<values> all;
  for (auto& batch : loader.epoch(0)) {
    const auto image = ps::get<"image">(batch);
    const auto words = ps::get<"words">(batch);
    const auto box = ps::get<"box">(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      values& one = all.emplace_back();
      one.image.assign(image[i].flat().begin(), image[i].flat().end());
      for (std::size_t k = 0; k < 4; ++k) one.box.push_back(box(i, k));
      one.words.assign(words[i].flat().begin(), words[i].flat().end());
      one.label = ps::get<"label">(batch)(i);
    }
  }
  return all;
}

// Reads the only sample of a file with a single field.
template <class Field>
std::vector<typename Field::value_type> read_field(const test::temp_dir& folder,
                                                   const std::string& entries) {
  const std::string path = tf_file(folder, "field", tf_record(example(entries)));
  std::filesystem::remove(path + ".index");
  const ps::tf_examples<ps::record<Field>> data{{path}};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 1, .workers = 1}};
  std::vector<typename Field::value_type> all;
  for (auto& batch : loader.epoch(0)) {
    const auto* const begin = batch.template get<Field::key>().data();
    std::size_t size = 1;
    if constexpr (Field::is_ragged) size = batch.template get<Field::key>().values().size();
    if constexpr (!Field::is_ragged && Field::extents_type::rank > 0) {
      size = batch.template get<Field::key>().size();
    }
    all.assign(begin, begin + size);
  }
  return all;
}

values random_values(std::mt19937& bits) {
  values all;
  all.label = static_cast<std::int16_t>(bits());
  for (std::size_t i = bits() % 20; i > 0; --i) {
    all.image.push_back(static_cast<std::uint8_t>(bits()));
  }
  for (int i = 0; i < 4; ++i) all.box.push_back(static_cast<float>(bits()) / 1000);
  for (std::size_t i = bits() % 5; i > 0; --i) {
    const auto high = std::uint64_t{bits()} << 32U;
    all.words.push_back(static_cast<std::int64_t>((high | bits()) >> bits() % 64));
  }
  return all;
}

// A record of `all` with packed or single values, features in any order, and fields that a reader
// does not know.
std::string record_of(const values& all, std::mt19937& bits) {
  std::string floats;
  for (const float one : all.box) floats += number_bytes(one);
  if (bits() % 2 == 0) {
    floats = message(1, floats);
  } else {
    std::string single;
    for (std::size_t i = 0; i < floats.size(); i += 4) single += '\x0d' + floats.substr(i, 4);
    floats = single;
  }
  std::string words;
  std::string packed;
  for (const std::int64_t one : all.words) {
    const std::string value = varint(static_cast<std::uint64_t>(one));
    if (bits() % 2 == 0) {
      words += message(1, packed) + varint(8) + value;
      packed.clear();
    } else {
      packed += value;
    }
  }
  words += message(1, packed);
  std::vector<std::string> entries{
      feature("image", 1, message(1, {all.image.begin(), all.image.end()})),
      feature("box", 2, floats),
      feature("words", 3, words),
      feature("label", 3, message(1, varint(static_cast<std::uint64_t>(std::int64_t{all.label})))),
      feature("other", 1 + bits() % 3, ""),
      varint(9 * 8) + varint(bits())};
  std::shuffle(entries.begin(), entries.end(), bits);
  std::string first;
  std::string second;
  for (const std::string& entry : entries) (bits() % 2 == 0 ? first : second) += entry;
  return tf_record(example(first) + varint(7 * 8 + 5) + "four" + example(second));
}

}  // namespace

TEST_CASE("examples in any encoding have the values that were written", "[indexed]") {
  const test::temp_dir folder;
  std::mt19937 bits{3};  // NOLINT: a fixed seed
  std::vector<values> expected;
  std::vector<std::string> paths;
  for (int file = 0; file < 200; ++file) {
    std::string bytes;
    for (std::size_t i = bits() % 12; i > 0; --i) {
      expected.push_back(random_values(bits));
      bytes += record_of(expected.back(), bits);
    }
    paths.push_back(tf_file(folder, std::to_string(file), bytes));
  }
  CHECK(read_all(paths) == expected);
  CHECK(read_all(paths) == expected);  // with the kept indexes
}

TEST_CASE("fields take lists whose values fit", "[indexed]") {
  const test::temp_dir folder;
  constexpr auto min = (std::numeric_limits<std::int64_t>::min)();
  const std::string list = message(1, varint(7) + varint(static_cast<std::uint64_t>(min)));
  using wide = ps::field<"x", std::int64_t, ps::ragged>;
  CHECK(read_field<wide>(folder, feature("x", 3, list)) == std::vector<std::int64_t>{7, min});
  CHECK(read_field<wide>(folder, feature("x", 3, "")).empty());
  CHECK(read_field<wide>(folder, message(1, message(1, "x"))).empty());  // without a list
  using byte = ps::field<"x", std::uint8_t>;
  CHECK(read_field<byte>(folder, feature("x", 3, message(1, varint(255)))) ==
        std::vector<std::uint8_t>{255});
  CHECK(read_field<byte>(folder, feature("x", 1, message(1, "a"))) ==
        std::vector<std::uint8_t>{'a'});
  using square = ps::field<"x", std::byte, 2, 2>;
  CHECK(read_field<square>(folder, feature("x", 1, message(1, "abcd"))) ==
        std::vector<std::byte>{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}, std::byte{'d'}});
  using floats = ps::field<"x", float, ps::ragged>;
  CHECK(read_field<floats>(folder, feature("x", 2, message(1, number_bytes(1.5F)))) ==
        std::vector<float>{1.5F});
}

TEST_CASE("a list fills a field whose extents are passed", "[indexed]") {
  const test::temp_dir folder;
  using table = ps::record<ps::field<"x", std::int64_t, ps::dyn, 2>>;
  const std::string list = message(1, varint(7) + varint(8));
  const ps::tf_examples<table> data{
      {tf_file(folder, "table", tf_record(example(feature("x", 3, list))))},
      ps::record_extents<table>{{1}}};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 1, .workers = 0}};
  for (auto& batch : loader.epoch(0)) CHECK(ps::get<"x">(batch)(0, 0, 1) == 8);
}

TEST_CASE("a feature that does not match its field is an error", "[indexed][fault:files-28]") {
  const test::temp_dir folder;
  using label = ps::field<"x", std::uint16_t>;
  const auto one = feature("x", 3, message(1, varint(1)));
  const auto text_of = [&]<class Error>(const Error*, const std::string& entries) {
    return std::string{error_of<Error>([&] { read_field<label>(folder, entries); }).what()};
  };
  constexpr const ps::file_format_error* format = nullptr;
  constexpr const ps::element_type_mismatch* type = nullptr;
  constexpr const ps::dimension_mismatch* dimension = nullptr;
  CHECK(read_field<label>(folder, one) == std::vector<std::uint16_t>{1});
  CHECK(has(text_of(format, feature("y", 3, "")), "expected a feature \"x\", found no feature"));
  CHECK(has(text_of(format, one + one), "expected feature \"x\" once, found it again"));
  CHECK(has(text_of(type, feature("x", 2, message(1, "abcd"))),
            "expected an int64_list for field \"x\", found a float_list"));
  CHECK(has(text_of(type, feature("x", 1, message(1, "a"))), "found a bytes_list"));
  CHECK(has(text_of(dimension, feature("x", 3, message(1, varint(1) + varint(2)))),
            "expected 1 values for field \"x\", found 2"));
  CHECK(has(text_of(dimension, feature("x", 3, "")), "found 0"));
  CHECK(has(text_of(dimension, message(1, message(1, "x"))), "/field: at byte 16: "));  // no list
  for (const std::uint64_t value : {std::uint64_t{65536}, ~std::uint64_t{0}}) {
    CHECK(has(text_of(format, feature("x", 3, message(1, varint(value)))),
              "expected a value that fits field \"x\", found "));
  }
  const std::string two = message(3, "") + message(3, "");
  CHECK(has(text_of(format, message(1, message(1, "x") + message(2, two))),
            "expected one list of a feature, found another"));
  CHECK(has(text_of(format, message(1, message(1, "x") + message(2, "") + message(2, ""))),
            "expected one value of a feature, found another"));
  CHECK(has(text_of(format, feature("x", 3, message(1, std::string(10, '\xff')))),
            "expected a varint of at most 64 bits, found a longer one"));
  CHECK(has(text_of(format, feature("x", 3, message(1, "\x80"))), "found the end of the message"));
  CHECK(has(text_of(format, "\x0b"), "expected a field of a protobuf message, found the tag 11"));
  CHECK(has(text_of(format, "\x0a\x09"), "expected 9 bytes of a field"));
  CHECK(has(text_of(format, varint(8) + "a"), "expected a message, found wire type 0"));
  using bytes = ps::field<"x", std::uint8_t, ps::ragged>;
  CHECK(has(error_of<ps::file_format_error>([&] {
              read_field<bytes>(folder, feature("x", 1, message(1, "a") + message(1, "b")));
            }).what(),
            "expected one value of bytes for \"x\", found another"));
}

TEST_CASE("any flipped bit and any cut of a TFRecord file is an error",
          "[indexed][fault:files-28]") {
  const test::temp_dir folder;
  std::mt19937 bits{4};  // NOLINT: a fixed seed
  std::vector<values> expected;
  std::string whole;
  std::vector<std::size_t> ends;
  for (int i = 0; i < 3; ++i) {
    ends.push_back(whole.size());
    expected.push_back(random_values(bits));
    whole += record_of(expected.back(), bits);
  }
  const auto fails = [&](const std::string& bytes) {
    const std::string path = tf_file(folder, "damaged", bytes);
    try {
      read_all({path});
    } catch (const ps::file_error& error) {
      return error.path() == path && error.offset() <= bytes.size();
    } catch (const ps::ragged_overflow&) {
      return true;  // a damaged length, noticed before the checksum
    }
    return false;
  };
  for (std::size_t bit = 0; bit < whole.size() * 8; bit += 7) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    CAPTURE(bit);
    REQUIRE(fails(damaged));
  }
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const auto end = std::find(ends.begin(), ends.end(), size);
    CAPTURE(size);
    if (end == ends.end()) {
      REQUIRE(fails(whole.substr(0, size)));
    } else {
      const auto path = tf_file(folder, "cut", whole.substr(0, size));
      REQUIRE(read_all({path}) ==
              std::vector<values>{expected.begin(), expected.begin() + (end - ends.begin())});
    }
  }
}

// Writes the values that tf_examples_protobuf.py compares. Hidden, because it needs the files that
// the script writes.
TEST_CASE("files that protobuf wrote are read", "[.][protobuf]") {
  const char* const folder = std::getenv("PENSTOCK_TF_RECORDS");
  REQUIRE(folder != nullptr);
  const std::string path{folder};
  std::ofstream out{path + "/values", std::ios::binary};
  for (const values& one : read_all(ps::glob(path + "/*.tfrecord"))) {
    out << number_bytes(std::uint64_t{one.image.size()});
    for (const std::uint8_t byte : one.image) out << number_bytes(byte);
    for (const float number : one.box) out << number_bytes(number);
    out << number_bytes(std::uint64_t{one.words.size()});
    for (const std::int64_t word : one.words) out << number_bytes(word);
    out << number_bytes(one.label);
  }
  REQUIRE(out.flush());
}
