// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/error.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "support/catch.hpp"

using penstock::detail::str_cat;
using penstock::detail::str_cat_arg;

TEST_CASE("pieces of a message are concatenated in order", "[core]") {
  CHECK(str_cat({}).empty());
  const std::string text = "a string";
  const std::string_view part = std::string_view{"a part of it"}.substr(2, 4);
  CHECK(str_cat({"text, ", text, ", ", part, ""}) == "text, a string, part");
}

TEST_CASE("a message piece with a null pointer is empty and not a number", "[core]") {
  CHECK(str_cat({"<", std::string_view{}, ">"}) == "<>");
  CHECK(str_cat({"<", std::string{}, ">"}) == "<>");
}

TEST_CASE("a piece of a message may have a null character inside", "[core]") {
  CHECK(str_cat({std::string(1, '\0'), "b"}) == std::string("\0b", 2));
}

TEST_CASE("integers of every width are formatted in decimal", "[core]") {
  CHECK(str_cat({0, " ", 7U, " ", -1}) == "0 7 -1");
  CHECK(str_cat({(std::numeric_limits<std::uint64_t>::max)()}) == "18446744073709551615");
  CHECK(str_cat({(std::numeric_limits<std::int64_t>::max)()}) == "9223372036854775807");
  CHECK(str_cat({(std::numeric_limits<std::int64_t>::min)()}) == "-9223372036854775808");
  CHECK(str_cat({std::uint8_t{65}, ",", std::int16_t{-300}}) == "65,-300");
}

TEST_CASE("a type that converts to a number implicitly is not a message piece", "[core]") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<bool, str_cat_arg>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<char, str_cat_arg>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<double, str_cat_arg>);
}
