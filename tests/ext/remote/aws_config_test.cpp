// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/detail/s3/aws_config.hpp>

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

// Returns the value of a setting in `text`, or "none" if the setting is missing.
std::string value_in(std::string_view text, std::string_view section, std::string_view name) {
  for (const auto& one : ps::detail::parse_aws_file(text, "the file")) {
    if (one.name != section) continue;
    const auto at = one.settings.find(name);
    if (at != one.settings.end()) return at->second.value;
  }
  return "none";
}

}  // namespace

// Files are parsed as by configparser and botocore, which agreed on hundreds of random files.
TEST_CASE("a file of AWS is parsed as botocore does", "[remote][promise:honest-11]") {
  CHECK(value_in("[a]\nName=one\r\n[b]\nNAME : two = 2\n", "a", "name") == "one");
  CHECK(value_in("[a]\nName=one\r\n[b]\nNAME : two = 2\n", "b", "name") == "two = 2");
  CHECK(value_in("[a]\rx=1\r\ry=2", "a", "y") == "2");
  // Settings with the same indentation are separate. A setting that is indented further belongs to
  // the setting above it.
  CHECK(value_in("[a]\n  x = 1\n  y = 2\n", "a", "y") == "2");
  CHECK(value_in("  [a]\nx = 1\n\ty = 2\n", "a", "x") == "1\ny = 2");
  CHECK(value_in("[a]\nx = 1\n  y = 2\n", "a", "y") == "none");
  CHECK(value_in("[a]\nx =\n\n  # no\n  y = 2\n\nz = 3\n", "a", "x") == "\n\n\ny = 2");
  CHECK(value_in("[a]\nx =\n  y = 2\nz = 3\n", "a", "z") == "3");
  CHECK(value_in("[a]\n# x = 0\n ; x = 0\nx = a#b;c # why\n", "a", "x") == "a#b;c");
  CHECK(value_in("[a]\nx =\n", "a", "x").empty());
  // Section names are case-sensitive, and blanks in them are preserved. Text after the last bracket
  // is ignored.
  CHECK(value_in("[ a ] b\nx = 1\n", " a ", "x") == "1");
  CHECK(value_in("[a] [b]\nx = 1\n", "a] [b", "x") == "1");
  CHECK(value_in("[A]\nx = 1\n", "a", "x") == "none");
  CHECK(value_in("[DEFAULT]\nx = 1\n[DEFAULT]\ny = 1\n[a]\ny = 2\n", "a", "x") == "1");
  CHECK(value_in("[DEFAULT]\nx = 1\n[DEFAULT]\ny = 1\n[a]\ny = 2\n", "a", "y") == "2");
  CHECK(value_in("[DEFAULT]\nx = 1\n", "DEFAULT", "x") == "none");
  CHECK(ps::detail::parse_aws_file("", "the file").empty());
}

TEST_CASE("the settings below another one are read with their lines", "[remote]") {
  const auto sections = ps::detail::parse_aws_file(
      "[default]\ns3 =\n  # a comment\n\n  addressing_style = path\n  X=1 # why\n  X = 2\n",
      "file");
  REQUIRE(sections.size() == 1);
  const auto& list = sections[0].settings.at("s3");
  const auto style = ps::detail::nested(list, "addressing_style");
  REQUIRE(style);
  CHECK(style->value == "path");
  CHECK(style->line == 5);
  CHECK(style->path == "file");
  CHECK(ps::detail::nested(list, "X")->value == "2");
  CHECK_FALSE(ps::detail::nested(list, "x"));
}

TEST_CASE("an invalid line of an AWS file is rejected without its text",
          "[remote][fault:stores-6]") {
  for (const auto& [text, line] :
       {std::pair{"s3cr3t = 1\n[a]\n", 1}, std::pair{"[a]\ns3cr3t\n", 2},
        std::pair{"[a]\n = s3cr3t\n", 2}, std::pair{"[a]\nx = 1\nX = s3cr3t\n", 3},
        std::pair{"[a]\r\nx = 1\r\n[b]\r\n[a]\r\ny = s3cr3t\r\n", 4}, std::pair{"[]\nx = 1\n", 1},
        std::pair{"[a\n", 1}, std::pair{"[a]\ns3 =\n\n  x = 1\n  s3cr3t\n", 5}}) {
    CAPTURE(text);
    const auto problem = error_of<ps::file_format_error>(
        [text = text] { (void)ps::detail::parse_aws_file(text, "the file"); });
    CHECK(problem.path() == "the file");
    CHECK(test::has(problem.found(), "in line " + std::to_string(line) + " "));
    CHECK(test::lacks(problem.what(), "s3cr3t"));
  }
  const auto twice = error_of<ps::file_format_error>(
      [] { (void)ps::detail::parse_aws_file("[a]\nx = 1\nx = 2\n", "the file"); });
  CHECK(twice.offset() == 10);
  CHECK(test::has(twice.found(), "line 2 again"));
}

TEST_CASE("the name of a profile is quoted as in a shell", "[remote]") {
  const auto profile = [](std::string_view section) {
    return ps::detail::name_in(section, "profile");
  };
  CHECK(profile("profile x") == "x");
  CHECK(profile("profile\t'a b'") == "a b");
  CHECK(profile("profile \"a \\\"b\\x\"") == "a \"b\\x");
  CHECK(profile("profile a\\ b") == "a b");
  CHECK(profile("profile a'b'\"c\"") == "abc");
  for (const char* const none : {"x", "default", "sso-session x", "profile", "profile x y",
                                 "profile \"x", "profile x\\", " profile x", "profile ''"}) {
    CAPTURE(none);
    CHECK(profile(none).empty());
  }
}

TEST_CASE("variables and the user's folder are replaced in a path", "[remote]") {
  ::setenv("PENSTOCK_SOME_PART", "some", 1);
  const std::string home = ps::detail::home_folder();
  CHECK(ps::detail::expanded("~/x") == home + "/x");
  CHECK(ps::detail::expanded("~") == home);
  CHECK(ps::detail::expanded("/~/$PENSTOCK_SOME_PART/${PENSTOCK_SOME_PART}y") == "/~/some/somey");
  for (const char* const same : {"", "/$", "/${", "/$PENSTOCK_NO_PART/", "/${PENSTOCK_SOME_PART",
                                 "/${}", "a~", "~x/y", "/$-"}) {
    CHECK(ps::detail::expanded(same) == same);
  }
  ::unsetenv("PENSTOCK_SOME_PART");
}
