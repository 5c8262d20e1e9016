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

struct refused : std::runtime_error {
  refused(std::size_t at, const std::string& expected, const std::string& found)
      : std::runtime_error(expected + ", " + found), offset(at) {}
  std::size_t offset;
};

nlohmann::ordered_json parsed(std::string_view text, const auto& ended) {
  const auto refuse = [](std::size_t at, const std::string& expected, const std::string& found) {
    throw refused(at, expected, found);
  };
  return penstock::detail::parsed_json(text, refuse, ended);
}

// Where the text is refused, and why.
refused refused_at(std::string_view text) {
  try {
    (void)parsed(text, [](const auto&, std::size_t, const auto&) { return true; });
  } catch (const refused& problem) {
    return problem;
  }
  return {static_cast<std::size_t>(-1), "nothing", "refused"};
}

}  // namespace

TEST_CASE("objects of a JSON text come when they are whole, with their place", "[files]") {
  std::vector<std::string> seen;
  const auto rest = parsed(R"( {"a": [{"x": 1}, {}], "b": {"c": {}}})",
                           [&](const auto& value, std::size_t begin, const auto& around) {
                             std::string line = std::to_string(begin) + ' ' + value.dump();
                             for (const auto& one : around) line += ' ' + one.key;
                             seen.push_back(line);
                             return around.empty() || around[0].key != "a";
                           });
  CHECK(seen == std::vector<std::string>{R"(8 {"x":1} a )", "18 {} a ", "34 {} b c",
                                         R"(28 {"c":{}} b)", R"(1 {"a":[],"b":{"c":{}}})"});
  CHECK(rest.dump() == R"({"a":[],"b":{"c":{}}})");
}

TEST_CASE("what is no JSON is refused at its first wrong byte", "[files][fault:files-6]") {
  CHECK(refused_at("").offset == 0);
  CHECK(refused_at("[1,]").offset == 3);
  CHECK(refused_at("[1").offset == 2);
  CHECK(refused_at("{\"a\" 1}").offset == 5);
  CHECK(refused_at("[1]]").offset == 3);
  CHECK(refused_at("\"\\ud83d\"").offset == 7);
  CHECK(refused_at("[\"\xff\"]").offset == 2);
  CHECK(test::has(refused_at("[1 2]").what(), "JSON, parse error at line 1, column 4"));
  CHECK(refused_at("[1e999, 2]").offset < 8);
}

TEST_CASE("a member that is there twice is refused", "[files][fault:files-6]") {
  const refused problem = refused_at(R"([{"a": 1, "b": {"a": 2}}, {"a": 1, "a": 2}])");
  CHECK(problem.offset == 37);
  CHECK(test::has(problem.what(), R"(a second "a")"));
}

TEST_CASE("a JSON text is not followed deeper than 64 levels", "[files][fault:files-6]") {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(refused_at(nested(64)).offset == static_cast<std::size_t>(-1));
  CHECK(refused_at(nested(65)).offset == 64);
  CHECK(refused_at(std::string(1'000'000, '[')).offset == 64);
  CHECK(refused_at("[[],[]]" + nested(1)).offset == 7);
}
