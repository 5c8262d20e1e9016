// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/detail/s3/s3_place.hpp>

#include <string>
#include <string_view>

#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;

namespace {

ps::detail::aws_profile profile_in(std::string_view text, std::string_view name) {
  ps::detail::aws_profile found;
  ps::detail::read_aws_profile(text, "the file", name, found);
  return found;
}

}  // namespace

TEST_CASE("a profile is read out of the files of AWS", "[remote][promise:honest-11]") {
  const std::string_view text =
      "# comment\r\n"
      "aws_access_key_id = nobody's\n"
      "[default]\r\n"
      "aws_access_key_id=one\r\n"
      "  aws_secret_access_key = indented = another setting's\n"
      "aws_secret_access_key = two+/= # why\n"
      "s3 =\n"
      "  region = nested\n"
      "; comment\n"
      "[profile work]\n"
      "region = eu-central-1\n"
      "[ profile  \"home office\" ]\n"
      "region=a ; b\n"
      "[sso-session work]\n"
      "region = of no profile\n"
      "[empty]\n"
      "aws_session_token =\n"
      "[default]\n"
      "aws_access_key_id = too late\n"
      "aws_session_token = three#3";
  const auto usual = profile_in(text, "default");
  CHECK(usual.is_there);
  CHECK(usual.key_id == "one");
  CHECK(usual.secret == "two+/=");
  CHECK(usual.session_token == "three#3");
  CHECK(usual.region.empty());
  CHECK(profile_in(text, "work").region == "eu-central-1");
  CHECK(profile_in(text, "home office").region == "a");
  CHECK(profile_in(text, "empty").session_token.empty());
  CHECK(profile_in(text, "empty").is_there);
  CHECK_FALSE(profile_in(text, "other").is_there);
  CHECK_FALSE(profile_in(text, "").is_there);
  CHECK_FALSE(profile_in("", "default").is_there);
  CHECK_FALSE(profile_in("[]\nregion=x", "").is_there);
}

TEST_CASE("a line of a profile that is no setting is refused without its text",
          "[remote][fault:stores-6]") {
  const auto problem = test::error_of<ps::file_format_error>(
      [] { (void)profile_in("[other]\nbad\n[default]\ns3cr3t\n", "default"); });
  CHECK(problem.offset() == 22);
  CHECK(problem.path() == "the file");
  CHECK(std::string{problem.what()}.find("s3cr3t") == std::string::npos);
}
