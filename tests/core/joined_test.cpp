// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/error.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "support/catch.hpp"

using penstock::detail::joined;
using penstock::detail::text_piece;

TEST_CASE("pieces of a message are joined in their order", "[core]") {
  CHECK(joined({}).empty());
  const std::string text = "a string";
  const std::string_view part = std::string_view{"a part of it"}.substr(2, 4);
  CHECK(joined({"text, ", text, ", ", part, ""}) == "text, a string, part");
}

TEST_CASE("a piece of a message that refers to no characters is empty and no number", "[core]") {
  CHECK(joined({"<", std::string_view{}, ">"}) == "<>");
  CHECK(joined({"<", std::string{}, ">"}) == "<>");
}

TEST_CASE("a piece of a message may have a null character inside", "[core]") {
  CHECK(joined({std::string(1, '\0'), "b"}) == std::string("\0b", 2));
}

TEST_CASE("whole numbers of every width stand in a message in decimal", "[core]") {
  CHECK(joined({0, " ", 7U, " ", -1}) == "0 7 -1");
  CHECK(joined({(std::numeric_limits<std::uint64_t>::max)()}) == "18446744073709551615");
  CHECK(joined({(std::numeric_limits<std::int64_t>::max)()}) == "9223372036854775807");
  CHECK(joined({(std::numeric_limits<std::int64_t>::min)()}) == "-9223372036854775808");
  CHECK(joined({std::uint8_t{65}, ",", std::int16_t{-300}}) == "65,-300");
}

TEST_CASE("what would be a number by accident is no piece of a message", "[core]") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<bool, text_piece>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<char, text_piece>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<double, text_piece>);
}
