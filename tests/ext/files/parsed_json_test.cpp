// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/json/parsed_json.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/catch.hpp"
#include "support/has.hpp"

namespace {

struct rejected : std::runtime_error {
  rejected(std::size_t at, const std::string& expected, const std::string& found)
      : std::runtime_error(expected + ", " + found), offset(at) {}
  std::size_t offset;
};

nlohmann::json parsed(std::string_view text, const auto& ended) {
  const auto reject = [](std::size_t at, const std::string& expected, const std::string& found) {
    throw rejected(at, expected, found);
  };
  return penstock::detail::parsed_json(text, reject, ended);
}

// Returns the position at which the text is rejected, and the reason.
rejected rejected_at(std::string_view text) {
  try {
    (void)parsed(text, [](const auto&, std::size_t, const auto&) { return true; });
  } catch (const rejected& problem) {
    return problem;
  }
  return {static_cast<std::size_t>(-1), "nothing", "rejected"};
}

}  // namespace

TEST_CASE("JSON objects are reported when they are complete, with their position", "[files]") {
  std::vector<std::string> seen;
  const auto rest = parsed(
      R"( {"a": [{"x": 1}, [2], {}], "b": {"c": {}}, "d": "e", "f": null})",
      [&](const auto& value, std::size_t begin, const auto& around) {
        std::string line = std::to_string(begin) + ' ' + value.dump();
        for (const auto& one : around) line += ' ' + one.key;
        seen.push_back(line);
        return around.empty() || (around[0].key != "a" && around[0].key != "d") || value.is_array();
      });
  CHECK(seen == std::vector<std::string>{R"(8 {"x":1} a )", "23 {} a ", "7 [[2]] a", "39 {} b c",
                                         R"(33 {"c":{}} b)", R"(51 "e" d)", "62 null f",
                                         R"(1 {"a":[[2]],"b":{"c":{}},"f":null})"});
  CHECK(rest.dump() == R"({"a":[[2]],"b":{"c":{}},"f":null})");
}

TEST_CASE("unwanted JSON values and their contents are not reported", "[files]") {
  std::vector<std::size_t> seen;
  const auto reject = [](std::size_t at, const std::string& expected, const std::string& found) {
    throw rejected(at, expected, found);
  };
  const auto rest = penstock::detail::parsed_json(
      R"({"a": {"b": {}, "c": [{}], "c": {}}, "x": [{"y": 1, "y": 2}, {}], "x": {"a": {}}})",
      reject,
      [&](const auto&, std::size_t begin, const auto&) {
        seen.push_back(begin);
        return true;
      },
      [](const auto& around) { return around.back().key != "x" && around.back().key != "c"; });
  CHECK(seen == std::vector<std::size_t>{12, 6, 0});
  CHECK(rest.dump() == R"({"a":{"b":{}}})");
  CHECK_THROWS_AS(
      penstock::detail::parsed_json(
          R"({"x": [1, {]})", reject, [](const auto&, std::size_t, const auto&) { return true; },
          [](const auto& around) { return around.back().key != "x"; }),
      rejected);
}

TEST_CASE("invalid JSON is rejected at its first wrong byte", "[files][fault:files-6]") {
  CHECK(rejected_at("").offset == 0);
  CHECK(rejected_at("[1,]").offset == 3);
  CHECK(rejected_at("[1").offset == 2);
  CHECK(rejected_at("{\"a\" 1}").offset == 5);
  CHECK(rejected_at("[1]]").offset == 3);
  CHECK(rejected_at("\"\\ud83d\"").offset == 7);
  CHECK(rejected_at("[\"\xff\"]").offset == 2);
  CHECK(test::has(rejected_at("[1 2]").what(), "JSON, parse error at line 1, column 4"));
  CHECK(rejected_at("[1e999, 2]").offset < 8);
  using namespace std::string_view_literals;
  CHECK(rejected_at("[1]\0]"sv).offset == 3);
  CHECK(rejected_at("[1] \0"sv).offset == 4);
  CHECK(rejected_at("[1,\0 2]"sv).offset == 3);
}

TEST_CASE("a member that appears twice is rejected", "[files][fault:files-6]") {
  const rejected problem = rejected_at(R"([{"a": 1, "b": {"a": 2}}, {"a": 1, "a": 2}])");
  CHECK(problem.offset == 37);
  CHECK(test::has(problem.what(), R"(a second "a")"));
}

TEST_CASE("a JSON text nested deeper than 64 levels is rejected", "[files][fault:files-6]") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(rejected_at(nested(64)).offset == static_cast<std::size_t>(-1));
  CHECK(rejected_at(nested(65)).offset == 64);
  CHECK(rejected_at(std::string(1'000'000, '[')).offset == 64);
  CHECK(rejected_at("[[],[]]" + nested(1)).offset == 7);
}

TEST_CASE("a JSON text does not take quadratic time", "[files][large][fault:files-6]") {
  constexpr std::size_t many = 200'000;
  std::size_t objects = 0;
  const auto read = [&](const std::string& text) {
    return parsed(text, [&](const auto& value, std::size_t, const auto&) {
      if (value.is_object()) ++objects;
      return true;
    });
  };
  std::string list = "{}";
  std::string members = R"("a":{})";
  for (std::size_t i = 1; i < many; ++i) {
    list += ",{}";
    members += ",\"" + std::to_string(i) + "\":{}";
  }
  CHECK(read(R"({"a":[)" + list + "]}").at("a").size() == many);
  CHECK(objects == many + 1);
  CHECK(read('{' + members + '}').size() == many);
  CHECK(objects == 2 * many + 2);
}
