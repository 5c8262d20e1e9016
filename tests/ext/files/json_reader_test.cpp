// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/support/json_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

std::string string_in(std::string_view text) {
  ps::detail::json_reader json{text, "x.json"};
  std::string value = json.string();
  json.finish();
  return value;
}

std::uint64_t number_in(std::string_view text) {
  ps::detail::json_reader json{text, "x.json"};
  const std::uint64_t value = json.number();
  json.finish();
  return value;
}

// Whether the text is one value of JSON; if not, where it is none.
constexpr std::size_t is_whole = static_cast<std::size_t>(-1);
std::size_t skipped_to(std::string_view text) {
  try {
    ps::detail::json_reader json{text, "x.json"};
    json.skip();
    json.finish();
    return is_whole;
  } catch (const ps::file_format_error& problem) {
    CHECK(problem.path() == "x.json");
    return static_cast<std::size_t>(problem.offset());
  }
}

}  // namespace

TEST_CASE("a JSON text is read value by value", "[files]") {
  const std::string_view text =
      " {\"names\" : [\"a\", \"b\"], \"none\": null,\n\"sizes\": [1,null ,3], \"other\": {\"x\": "
      "[true, -1.5e3]}, \"empty\": [], \"void\": {} } ";
  ps::detail::json_reader json{text, "x.json"};
  std::vector<std::string> keys;
  std::vector<std::string> names;
  std::vector<std::uint64_t> sizes;
  json.object([&](std::string_view key) {
    keys.emplace_back(key);
    if (key == "names") {
      json.array([&] { names.push_back(json.string()); });
    } else if (key == "sizes") {
      json.array([&] { sizes.push_back(json.null() ? 0 : json.number()); });
    } else {
      json.skip();
    }
  });
  json.finish();
  CHECK(keys == std::vector<std::string>{"names", "none", "sizes", "other", "empty", "void"});
  CHECK(names == std::vector<std::string>{"a", "b"});
  CHECK(sizes == std::vector<std::uint64_t>{1, 0, 3});
}

TEST_CASE("strings of JSON are UTF-8, their escapes resolved", "[files]") {
  CHECK(string_in(R"("")").empty());
  CHECK(string_in(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
  CHECK(string_in(R"("\u0041\u00e4\u20AC\ud83d\ude00!")") == "A\u00e4\u20ac\U0001f600!");
  CHECK(string_in("\"\u00e4\"") == "\u00e4");
  CHECK(string_in(R"("\u0000")") == std::string(1, '\0'));
  for (const std::string_view wrong :
       {R"("a)", R"("\x")", R"("\u12g4")", R"("\u12)", R"("\ud83d")", R"("\ud83dA")",
        R"("\ud83d\u0041")", R"("\ude00")", "\"a\nb\"", "\"\\", "'a'", ""}) {
    CAPTURE(wrong);
    CHECK(skipped_to(wrong) != is_whole);
  }
}

TEST_CASE("whole numbers of JSON have 64 bits", "[files]") {
  CHECK(number_in("0") == 0);
  CHECK(number_in("18446744073709551615") == 18446744073709551615U);
  for (const std::string_view wrong :
       {"18446744073709551616", "-1", "1.5", "1e3", "99999999999999999999"}) {
    CHECK(error_of<ps::file_format_error>([&] { (void)number_in(wrong); }).expected() ==
          "a whole number below 2^64");
    CHECK(skipped_to(wrong) == is_whole);
  }
}

TEST_CASE("what is no JSON is refused at its first wrong byte", "[files][fault:files-6]") {
  CHECK(skipped_to("") == 0);
  CHECK(skipped_to("tru") == 0);
  CHECK(skipped_to("nul") == 0);
  CHECK(skipped_to("1 2") == 2);
  CHECK(skipped_to("01") == 1);
  CHECK(skipped_to("-") == 1);
  CHECK(skipped_to("1.") == 2);
  CHECK(skipped_to("1e") == 2);
  CHECK(skipped_to("1e+") == 3);
  CHECK(skipped_to("+1") == 0);
  CHECK(skipped_to("[1,]") == 3);
  CHECK(skipped_to("[1 2]") == 3);
  CHECK(skipped_to("[1") == 2);
  CHECK(skipped_to("[,1]") == 1);
  CHECK(skipped_to("{\"a\":1,}") == 7);
  CHECK(skipped_to("{\"a\" 1}") == 5);
  CHECK(skipped_to("{a:1}") == 1);
  CHECK(skipped_to("{\"a\":}") == 5);
  CHECK(skipped_to("{\"a\":1") == 6);
  CHECK(skipped_to("[1]]") == 3);
  CHECK(skipped_to("\v1") == 0);
}

TEST_CASE("a JSON text is not followed deeper than 64 levels", "[files][fault:files-6]") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(skipped_to(nested(64)) == is_whole);
  CHECK(skipped_to(nested(65)) == 64);
  CHECK(skipped_to(std::string(1'000'000, '[')) == 64);
  CHECK(skipped_to("[[],[]]" + nested(1)) == 7);
  std::string beside = "[[]";
  for (int i = 0; i < 100; ++i) beside += ",[]";
  CHECK(skipped_to(beside + ']') == is_whole);
}
