// SPDX-License-Identifier: BSL-1.0
// Compares the reading of JSON Lines files with nlohmann-json, for generated lines and for damaged
// versions of these lines.
#include <penstock_ext/indexed/json/json_lines.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::has;

namespace {

using post =
    ps::record<ps::field<"text", std::uint8_t, ps::ragged>,
               ps::field<"tokens", std::int32_t, ps::ragged>, ps::field<"box", float, 2, 2>,
               ps::field<"label", std::int16_t>, ps::field<"weight", double>,
               ps::field<"is_new", bool>, ps::field<"id", std::uint64_t>>;

struct post_values {
  std::string text = {};
  std::vector<std::int32_t> tokens = {};
  std::vector<float> box = {};
  std::int16_t label = 0;
  double weight = 0;
  bool is_new = false;
  std::uint64_t id = 0;

  friend bool operator==(const post_values&, const post_values&) = default;
};

std::string json_file(const test::temp_dir& folder, const std::string& name,
                      std::string_view text) {
  std::filesystem::remove(folder.path(name + ".index"));
  return folder.write(name, {text.begin(), text.end()});
}

template <class T>
T integer_of(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto found = value.get<std::uint64_t>();
    if (found <= static_cast<std::uint64_t>((std::numeric_limits<T>::max)())) {
      return static_cast<T>(found);
    }
  } else if (value.is_number_integer() && std::is_signed_v<T>) {
    const auto found = value.get<std::int64_t>();
    if (found >= static_cast<std::int64_t>((std::numeric_limits<T>::min)())) {
      return static_cast<T>(found);
    }
  }
  throw std::runtime_error{"no such integer"};
}

float float_of(const nlohmann::json& value) {
  if (!value.is_number()) throw std::runtime_error{"no number"};
  const auto found = static_cast<float>(value.get<double>());
  if (std::isinf(found)) throw std::runtime_error{"out of range"};
  return found;
}

// Reads a line with nlohmann-json. Returns nothing if the line is not a post.
std::optional<post_values> model_of(const std::string& line) {
  try {
    const auto all = nlohmann::json::parse(line);
    if (!all.is_object()) return std::nullopt;
    post_values one;
    one.text = all.at("text").get<std::string>();
    if (!all.at("tokens").is_array()) return std::nullopt;
    for (const auto& token : all.at("tokens"))
      one.tokens.push_back(integer_of<std::int32_t>(token));
    const auto& box = all.at("box");
    if (!box.is_array() || box.size() != 2) return std::nullopt;
    for (const auto& row : box) {
      if (!row.is_array() || row.size() != 2) return std::nullopt;
      for (const auto& number : row) one.box.push_back(float_of(number));
    }
    one.label = integer_of<std::int16_t>(all.at("label"));
    if (!all.at("weight").is_number() || !all.at("is_new").is_boolean()) return std::nullopt;
    one.weight = all.at("weight").get<double>();
    one.is_new = all.at("is_new").get<bool>();
    one.id = integer_of<std::uint64_t>(all.at("id"));
    return one;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

template <class Lease>
post_values values_of(const Lease& batch, std::size_t i) {
  post_values one;
  const auto text = ps::get<"text">(batch);
  const auto tokens = ps::get<"tokens">(batch);
  const auto box = ps::get<"box">(batch);
  one.text.assign(text[i].flat().begin(), text[i].flat().end());
  one.tokens.assign(tokens[i].flat().begin(), tokens[i].flat().end());
  for (std::size_t k = 0; k < 4; ++k) one.box.push_back(box(i, k / 2, k % 2));
  one.label = ps::get<"label">(batch)(i);
  one.weight = ps::get<"weight">(batch)(i);
  one.is_new = ps::get<"is_new">(batch)(i);
  one.id = ps::get<"id">(batch)(i);
  return one;
}

// Reads every line of a file. Returns an empty optional for each line that cannot be read.
std::vector<std::optional<post_values>> posts_in(const std::string& path) {
  const ps::json_lines<post> data{{path}};
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 1,
                     .workers = 2,
                     .faults = {.on_error = {.action = ps::error_action::skip,
                                             .max_failures = 1U << 30U,
                                             .max_failure_rate = 1}}}};
  std::vector<std::optional<post_values>> all;
  for (auto& batch : loader.epoch(0)) {
    all.emplace_back();
    if (batch.size() == 1) all.back() = values_of(batch, 0);
  }
  for (const ps::failed_sample& one : loader.failures().samples) {
    CAPTURE(one.what);
    CHECK((one.origin.index == one.sample && has(one.what, path + ": at byte ")));
  }
  return all;
}

// Returns a string literal with escapes, characters of each length in UTF-8, and surrogate pairs.
std::string random_literal(std::mt19937& bits) {
  constexpr std::string_view pieces[] = {"a",
                                         "7",
                                         " ",
                                         "{",
                                         "]",
                                         "\\n",
                                         "\\\"",
                                         "\\\\",
                                         "\\/",
                                         "\\u0000",
                                         "\\u00e4",
                                         "\\u20AC",
                                         "\\b\\f",
                                         "\\ud83d\\ude00",
                                         "\xc3\xa4",
                                         "\xe2\x82\xac",
                                         "\xf0\x9f\x98\x80",
                                         "\x7f"};
  std::string text = "\"";
  for (std::size_t i = bits() % 30; i > 0; --i) text += pieces[bits() % std::size(pieces)];
  return text + '"';
}

std::string random_number(std::mt19937& bits) {
  constexpr std::string_view numbers[] = {"0",
                                          "-1",
                                          "0.1",
                                          "1e3",
                                          "-2.5E-7",
                                          "16777217",
                                          "123456789012345678901234567890",
                                          "3.4e38",
                                          "1e-50",
                                          "1E+2",
                                          "5e-324",
                                          "0.30000000000000004"};
  if (bits() % 2 == 0) return std::string{numbers[bits() % std::size(numbers)]};
  return std::to_string(static_cast<double>(bits()) / 977 - 2e6);
}

// Returns a post with members in any order and spaces. With `extra`, the line has other members.
std::string random_post(std::mt19937& bits, bool extra) {
  const auto space = [&] { return std::string{bits() % 8 == 0 ? " \t" : ""}; };
  std::string tokens = "[";
  for (std::size_t i = bits() % 6; i > 0; --i) {
    tokens += std::to_string(static_cast<std::int32_t>(bits())) + (i > 1 ? "," : "") + space();
  }
  std::string box = "[";
  for (int i = 0; i < 4; ++i) {
    box += (i % 2 == 0 ? "[" : "") + random_number(bits) + (i % 2 == 0 ? "," : "]") +
           (i == 1 ? "," : "");
  }
  const std::string high = bits() % 8 == 0 ? "18446744073709551615" : std::to_string(bits());
  std::vector<std::string> members{
      "\"text\":" + random_literal(bits),
      "\"tokens\":" + space() + tokens + "]",
      "\"box\":" + box + "]",
      "\"label\"" + space() + ":" + std::to_string(static_cast<std::int16_t>(bits())),
      (bits() % 8 == 0 ? "\"weigh\\u0074\":" : "\"weight\":") + random_number(bits),
      "\"is_new\":" + std::string{bits() % 2 == 0 ? "true" : "false"},
      "\"id\":" + high};
  if (extra) {
    members.push_back(R"("a":{"id":[1,{"label":null}],"text":"}"})");
    members.push_back("\"note\":" + random_literal(bits));
    members.push_back("\"z\":" + random_number(bits));
  }
  std::shuffle(members.begin(), members.end(), bits);
  std::string line = space() + "{";
  for (std::size_t i = 0; i < members.size(); ++i) {
    line += (i == 0 ? "" : ",") + space() + members[i] + space();
  }
  return line + "}" + space();
}

// Reads the only line of a file into a record with one field.
template <class Field>
std::vector<typename Field::value_type> one_field(const test::temp_dir& folder,
                                                  std::string_view line,
                                                  const ps::json_lines_options& options = {}) {
  const std::string path = json_file(folder, "one", line);
  const ps::json_lines<ps::record<Field>> data{{path}, options};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 1, .workers = 0}};
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

// Returns the error of the only line of a file, without the path.
template <class Field>
std::string error_in(const test::temp_dir& folder, std::string_view line,
                     const ps::json_lines_options& options = {}) {
  const auto problem = error_of<ps::json_line_error>(
      [&] { static_cast<void>(one_field<Field>(folder, line, options)); });
  CHECK(problem.line() == 1);
  CHECK(problem.offset() + 1 == problem.column());
  return std::string{problem.what()}.substr(problem.path().size() + 2);
}

// A tokenizer for tests: the tokens of a text are the lengths of its words.
const ps::json_lines_options by_words{
    .tokenizer = [](std::string_view text, std::string_view, std::vector<std::uint32_t>& tokens) {
      while (!text.empty()) {
        const std::size_t size = (std::min)(text.find(' '), text.size());
        tokens.push_back(static_cast<std::uint32_t>(size));
        text.remove_prefix((std::min)(size + 1, text.size()));
      }
    }};

}  // namespace

TEST_CASE("generated lines have the values of nlohmann-json", "[indexed]") {
  const test::temp_dir folder;
  std::mt19937 bits{1};  // NOLINT: a fixed seed
  std::string text;
  std::vector<std::optional<post_values>> expected;
  for (int i = 0; i < 2000; ++i) {
    const std::string line = random_post(bits, i % 2 == 0);
    expected.push_back(model_of(line));
    REQUIRE(expected.back());
    text += line + (i % 3 == 0 ? "\r\n" : "\n");
  }
  text.pop_back();
  CHECK(posts_in(json_file(folder, "posts.jsonl", text)) == expected);
}

TEST_CASE("a damaged line is an error, or has the values of nlohmann-json",
          "[indexed][fault:files-30]") {
  const test::temp_dir folder;
  std::mt19937 bits{2};  // NOLINT: a fixed seed
  const bool extra = GENERATE(false, true);
  std::string text;
  std::vector<std::string> damaged;
  for (int i = 0; i < 3000; ++i) {
    std::string line = random_post(bits, extra);
    if (i % 3 == 0) {
      line.resize(bits() % line.size());
    } else {
      // Most replacements are characters with a meaning in JSON.
      constexpr std::string_view any = "\"\\{}[],:0-+.eEtu \x01\x80\xff";
      char& byte = line[bits() % line.size()];
      byte = i % 3 == 1 ? any[bits() % any.size()] : static_cast<char>(byte ^ (1 << bits() % 8));
    }
    std::replace(line.begin(), line.end(), '\n', ' ');
    damaged.push_back(line);
    text += line + '\n';
  }
  const auto found = posts_in(json_file(folder, "damaged.jsonl", text));
  REQUIRE(found.size() == damaged.size());
  std::size_t read = 0;
  for (std::size_t i = 0; i < damaged.size(); ++i) {
    const auto expected = model_of(damaged[i]);
    if (expected) ++read;
    CAPTURE(damaged[i]);
    // Values of skipped members are not parsed.
    if (expected || !extra) REQUIRE(found[i] == expected);
  }
  CHECK((read > 100 && read < 2500));
}

TEST_CASE("any number of workers and a resume give the same posts", "[indexed]") {
  const test::temp_dir folder;
  std::mt19937 bits{3};  // NOLINT: a fixed seed
  std::vector<std::string> paths;
  for (int file = 0; file < 3; ++file) {
    std::string text;
    for (int i = 0; i < 50; ++i) text += random_post(bits, true) + '\n';
    paths.push_back(json_file(folder, std::to_string(file), text));
  }
  const ps::json_lines<post> data{paths};
  CHECK(data.size() == 150);
  CHECK((ps::origin_of(data, 51).part == 1 && ps::origin_of(data, 51).index == 1));
  std::vector<post_values> first;
  for (const std::size_t workers : {0U, 1U, 4U}) {
    ps::loader loader{data, ps::shuffled{.seed = 5}, {.batch_size = 16, .workers = workers}};
    std::vector<post_values> all;
    std::vector<post_values> rest;
    for (auto& batch : loader.epoch(0)) {
      for (std::size_t i = 0; i < batch.size(); ++i) all.push_back(values_of(batch, i));
    }
    for (auto& batch : loader.resume(loader.state_at({0, 4}), 1)) {
      for (std::size_t i = 0; i < batch.size(); ++i) rest.push_back(values_of(batch, i));
    }
    if (first.empty()) first = all;
    CHECK(all == first);
    CHECK(rest == std::vector<post_values>{first.begin() + 64, first.end()});
  }
}

TEST_CASE("a member of each kind becomes the values of its field", "[indexed]") {
  const test::temp_dir folder;
  using bytes = ps::field<"x", std::uint8_t, ps::ragged>;
  const auto text = [](std::string_view some) {
    return std::vector<std::uint8_t>{some.begin(), some.end()};
  };
  CHECK(one_field<bytes>(folder, R"({"x":"a\u0062"})") == text("ab"));
  CHECK(one_field<bytes>(folder, R"({"x":""})").empty());
  CHECK(one_field<bytes>(folder, R"({"x":[1,255]})") == std::vector<std::uint8_t>{1, 255});
  CHECK(one_field<ps::field<"x", std::byte, 2>>(folder, R"({"x":"ab"})") ==
        std::vector{std::byte{'a'}, std::byte{'b'}});
  CHECK(one_field<ps::field<"x", std::uint8_t, 2, 1>>(folder, R"({"x":["a",[98]]})") == text("ab"));
  CHECK(one_field<ps::field<"x", std::uint64_t>>(folder, R"({"x":18446744073709551615})") ==
        std::vector{~std::uint64_t{0}});
  CHECK(one_field<ps::field<"x", std::int8_t>>(folder, R"({"x":-128})") ==
        std::vector{std::int8_t{-128}});
  CHECK(one_field<ps::field<"x", float>>(folder, R"({"x":3.4028235e38})") ==
        std::vector{(std::numeric_limits<float>::max)()});
  CHECK(one_field<ps::field<"x", bool, ps::ragged>>(folder, R"({"x":[true,false]})") ==
        std::vector{true, false});
  CHECK(one_field<ps::field<"x", int, ps::ragged>>(folder, R"({"x":"two words"})", by_words) ==
        std::vector{3, 5});
  CHECK(one_field<ps::field<"x", std::uint16_t, 2>>(folder, R"({"x":"a\u0020bc"})", by_words) ==
        std::vector<std::uint16_t>{1, 2});
  // If a line has several members with the same name, the first is used. A byte order mark is
  // ignored.
  CHECK(one_field<ps::field<"x", int>>(folder, "\xef\xbb\xbf{\"x\":1,\"x\":2}") == std::vector{1});

  using grid = ps::record<ps::field<"x", float, ps::dyn, 2>>;
  const std::string path = json_file(folder, "grid", R"({"x":[[1,2],[3,4],[5,6]]})");
  const ps::json_lines<grid> grids{{path}, ps::record_extents<grid>{{3}}};
  ps::loader loader{grids, ps::sequential{}, {.batch_size = 1}};
  for (auto& batch : loader.epoch(0)) CHECK(ps::get<"x">(batch)(0, 2, 1) == 6);
}

TEST_CASE("a line that is not JSON is an error with its place", "[indexed][fault:files-30]") {
  const test::temp_dir folder;
  using number = ps::field<"x", int>;
  const auto error = [&](std::string_view line) { return error_in<number>(folder, line); };
  CHECK(error(" \r\n") ==
        "at byte 0: expected a JSON object, found an empty line: remove it (line 1, column 1)");
  CHECK(error("\n") ==
        "at byte 0: expected a JSON object, found an empty line: remove it (line 1, column 1)");
  CHECK(error(" [1]") == "at byte 1: expected a JSON object, found [1] (line 1, column 2)");
  CHECK(error(R"({"x":1} {)") ==
        "at byte 8: expected a JSON object that ends in }, found { (line 1, column 9)");
  CHECK(error(R"({"x":1}})") ==
        "at byte 7: expected the end of the line, found } (line 1, column 8)");
  CHECK(has(error(R"({"x":1,})"), "at byte 7: expected valid JSON, found "));
  CHECK(has(error(R"({"x" 1})"), "at byte 5: expected valid JSON, found "));
  CHECK(error("{\"x\":\"\xc3\xa4\xff\"}") ==
        "at byte 8: expected UTF-8, found byte 255 (line 1, column 9)");
  CHECK(error("{\"y\":\"\\\"\x01\",\"x\":1}") ==
        "at byte 8: expected an escape such as \\u0001 for a control character, found byte 1 (line "
        "1, column 9)");
  CHECK(error(R"({"x":1,"y":"a)") ==
        "at byte 13: expected a \" that ends the string, found the end of the line (line 1, column "
        "14)");
  CHECK(error(R"({"\x":1})") ==
        "at byte 2: expected a key with valid escapes, found \\x\":1} (line 1, column 3)");
  CHECK(error(R"({"y":1})") ==
        "at byte 0: expected a member \"x\", found no member of this name (line 1, column 1)");

  // The error reports the line and the column in the file.
  std::string text;
  for (int i = 0; i < 40; ++i) text += "{\"x\":1}\r\n";
  const std::string path = json_file(folder, "lines", text + "{\"x\":null}\n" + text);
  const ps::json_lines<ps::record<number>> data{{path}};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 8}};
  const auto problem = error_of<ps::json_line_error>([&] {
    for (auto& batch : loader.epoch(0)) static_cast<void>(batch.size());
  });
  CHECK((problem.line() == 41 && problem.column() == 6 && problem.offset() == 40 * 9 + 5));
}

TEST_CASE("a member that does not fit its field is an error with its place",
          "[indexed][fault:files-30]") {
  const test::temp_dir folder;
  using small = ps::field<"x", std::int8_t>;
  const auto integer = [](const std::string& found) {
    return "at byte 5: expected an integer from -128 to 127 for field \"x\", found " + found +
           " (line 1, column 6)";
  };
  for (const std::string found : {"128", "-129", "1.0", "1e2", "\"1\"", "null", "true",
                                  "99999999999999999999", "01", "-", "nul", "NaN"}) {
    CHECK(error_in<small>(folder, "{\"x\":" + found + "}") == integer(found));
  }
  CHECK(error_in<small>(folder, R"({"x":[1]})") == integer("an array"));
  CHECK(error_in<small>(folder, R"({"x":{"x":1}})") == integer("an object"));
  using natural = ps::field<"x", std::uint64_t>;
  CHECK(error_in<natural>(folder, R"({"x":-1})") ==
        "at byte 5: expected an integer from 0 to 18446744073709551615 for field \"x\", found -1 "
        "(line 1, column 6)");
  for (const std::string found : {"3.5e38", "-1e999", "NaN", "Infinity", "\"0\"", "1."}) {
    CHECK(error_in<ps::field<"x", float>>(folder, "{\"x\":" + found + "}") ==
          "at byte 5: expected a number in the range of float for field \"x\", found " + found +
              " (line 1, column 6)");
  }
  CHECK(has(error_in<ps::field<"x", bool>>(folder, R"({"x":1})"),
            "expected true or false for field \"x\", found 1 "));

  // The second element is wrong.
  CHECK(error_in<ps::field<"x", float, ps::ragged>>(folder, R"({"x":[1, "a"]})") ==
        "at byte 9: expected a number in the range of float for field \"x\", found \"a\" (line 1, "
        "column 10)");
  CHECK(has(error_in<ps::field<"x", float, ps::ragged>>(folder, R"({"x":1})"),
            "at byte 5: expected an array for field \"x\", found 1 "));
  CHECK(has(error_in<ps::field<"x", float, ps::ragged>>(folder, R"({"x":[1 2]})"),
            "expected valid JSON, found "));
  CHECK(has(error_in<ps::field<"x", int, ps::ragged>>(folder, R"({"x":"text"})"),
            "expected an array, or the option .tokenizer, for field \"x\", found \"text\" "));
  CHECK(error_in<ps::field<"x", std::uint8_t, ps::ragged>>(folder, R"({"x":"\ud800"})") ==
        "at byte 5: expected a string with valid escapes for field \"x\", found \"\\ud800\" (line "
        "1, column 6)");
  CHECK(error_in<ps::field<"x", std::uint8_t, 3>>(folder, R"({"x":"ab"})") ==
        "at byte 5: expected 3 values for field \"x\", found 2 (line 1, column 6)");
  using grid = ps::field<"x", float, 2, 2>;
  CHECK(error_in<grid>(folder, R"({"x":[[1,2],[3]]})") ==
        "at byte 12: expected 2 values for field \"x\", found 1 (line 1, column 13)");
  CHECK(has(error_in<grid>(folder, R"({"x":[[1,2],[3,4],[5,6]]})"),
            "at byte 5: expected 2 values for field \"x\", found 3 "));
  CHECK(has(error_in<grid>(folder, R"({"x":[1,2,3,4]})"),
            "at byte 6: expected an array for field \"x\", found 1 "));
  const std::string long_word = R"({"x":")" + std::string(70000, 'a') + "\"}";
  CHECK(has(error_in<ps::field<"x", std::uint16_t, ps::ragged>>(folder, long_word, by_words),
            "at byte 5: expected tokens that fit field \"x\", found 70000 "));
}

TEST_CASE("a tokenizer that throws or changes its mind is an error", "[indexed]") {
  const test::temp_dir folder;
  using tokens = ps::field<"x", int, ps::ragged>;
  ps::json_lines_options options;
  options.tokenizer = [](auto, auto, auto&) { throw std::out_of_range{"no such token"}; };
  CHECK_THROWS_AS(one_field<tokens>(folder, R"({"x":"a"})", options), std::out_of_range);
  int calls = 0;
  options.tokenizer = [&](std::string_view text, std::string_view field, auto& all) {
    CHECK((text == "a" && field == "x" && all.empty()));
    all.resize(static_cast<std::size_t>(++calls));
  };
  CHECK(has(error_in<tokens>(folder, R"({"x":"a"})", options),
            "at byte 5: expected as many values as `lengths` returned, found another number: "));
}

TEST_CASE("the index of text lines serves every order of JSON lines", "[indexed]") {
  using number =
      ps::record<ps::field<"x", std::int64_t>, ps::field<"tokens", std::int32_t, ps::ragged>>;
  const test::temp_dir folder;
  std::mt19937 bits{8};  // NOLINT: a fixed seed
  std::vector<std::string> paths;
  std::vector<std::int64_t> expected;
  for (const std::size_t count : {1U, 2U, 15U, 16U, 17U, 31U, 40U, 100U}) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
      const auto x = static_cast<std::int64_t>(expected.size());
      const std::string space(bits() % 30, ' ');
      const std::string end = i + 1 == count && count % 2 == 0 ? ""
                              : bits() % 2 == 0                ? "\n"
                                                               : "\r\n";
      std::string tokens;
      for (std::int64_t k = 0; k < x % 7; ++k) tokens += k == 0 ? "4" : ",4";
      text += R"({"x":)" + space + std::to_string(x) + R"(,"tokens":[)" + tokens + "]}" + end;
      expected.push_back(x);
    }
    paths.push_back(json_file(folder, "lines" + std::to_string(count), text));
  }
  CHECK(ps::text_lines{paths}.size() == expected.size());
  CHECK(std::filesystem::file_size(paths.back() + ".index") == 64 + 7 * 8);
  bool is_built = false;
  const ps::json_lines<number> data{
      paths, {.index = {.progress = [&](const ps::index_progress&) { is_built = true; }}}};
  CHECK_FALSE(is_built);
  const auto read_all = [&](const auto& order) {
    std::vector<std::int64_t> all;
    ps::loader loader{data, order, {.batch_size = 5, .workers = 2}};
    for (auto& batch : loader.epoch(0)) {
      for (const std::int64_t x : ps::get<"x">(batch).flat()) all.push_back(x);
    }
    return all;
  };
  CHECK(read_all(ps::sequential{}) == expected);
  auto shuffled = read_all(ps::shuffled{.seed = 3});
  CHECK(shuffled != expected);
  std::sort(shuffled.begin(), shuffled.end());
  CHECK(shuffled == expected);
  // Parses each line after every other line.
  for (std::uint64_t i = 0; i < data.size(); ++i) {
    for (std::uint64_t k = 0; k < data.size(); ++k) {
      REQUIRE(data.lengths(i)[0] == i % 7);
      REQUIRE(data.lengths(k)[0] == k % 7);
    }
  }
}

TEST_CASE("a compressed JSON Lines file is rejected and gets no index",
          "[indexed][fault:files-30]") {
  const test::temp_dir folder;
  const std::string gz =
      json_file(folder, "a.gz", std::string_view{"\x1f\x8b\x08\0\0\0\0\0\0\3ab", 12});
  const std::string zst = json_file(folder, "a.zst", "\x28\xb5\x2f\xfd and a frame");
  const std::string page = json_file(folder, "a.html", "<!DOCTYPE html>\n");
  const auto found = [](const auto& open) { return error_of<ps::file_format_error>(open).found(); };
  using numbers = ps::json_lines<ps::record<ps::field<"x", float>>>;
  CHECK(has(found([&] { static_cast<void>(numbers{{gz}}); }),
            "a gzip file: unpack it with gunzip or penstock::unpack_files"));
  CHECK(has(found([&] { static_cast<void>(numbers{{zst}}); }),
            "a zstd file: unpack it with unzstd or penstock::unpack_files"));
  CHECK(has(found([&] { static_cast<void>(numbers{{page}}); }), "an HTML page: "));
  CHECK(test::files_in(folder) == 3);
  CHECK(ps::text_lines{{page}}.size() == 1);
  // The index that `text_lines` has built does not make the page a JSON Lines file.
  CHECK(has(found([&] { static_cast<void>(numbers{{page}}); }), "an HTML page: "));
}
