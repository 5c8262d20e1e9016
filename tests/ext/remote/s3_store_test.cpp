// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/s3_store.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock_ext/files/crypto/digest.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/store/http/detail/s3/list_answer.hpp>
#include <penstock_ext/store/http/detail/s3/s3_place.hpp>

#include "ext/remote/range_server.hpp"
#include "ext/store/files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::has;
using test::http_request;
using test::lacks;

namespace {

const ps::s3_credentials somebody{"AKIDEXAMPLE", "s3cr3t-key", "s3cr3t-token"};

// Sets environment variables for a scope, and unsets all other AWS variables.
class aws_variables {
 public:
  explicit aws_variables(const std::vector<std::pair<std::string, std::string>>& set) {
    for (const char* const name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
          "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
          "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
          "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT", "AWS_CA_BUNDLE",
          "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
          "HOME"}) {
      const char* const before = std::getenv(name);
      before_.emplace_back(name, before == nullptr ? "" : before);
      ::unsetenv(name);
    }
    ::setenv("HOME", "/nowhere", 1);
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
  }
  aws_variables(const aws_variables&) = delete;
  aws_variables& operator=(const aws_variables&) = delete;
  ~aws_variables() {
    for (const auto& [name, value] : before_) {
      if (value.empty()) {
        ::unsetenv(name.c_str());
      } else {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
    }
  }

 private:
  std::vector<std::pair<std::string, std::string>> before_;
};

test::file_bytes text_bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::string s3_error(const std::string& code, const std::string& more = {}) {
  return "<?xml version=\"1.0\"?>\n<Error><Code>" + code + "</Code><Message>s3cr3t-key</Message>" +
         more + "</Error>";
}

}  // namespace

TEST_CASE("a bucket's place follows from options, environment and files",
          "[remote][promise:honest-11]") {
  const aws_variables none{{}};
  const auto shown = [](const std::string& bucket, ps::s3_options options) {
    options.anonymous = true;
    return ps::detail::place_of(bucket, options).bucket.shown();
  };
  using ps::s3_addressing;
  CHECK(shown("b", {}) == "https://b.s3.us-east-1.amazonaws.com");
  CHECK(shown("b", {.region = "cn-north-1"}) == "https://b.s3.cn-north-1.amazonaws.com.cn");
  CHECK(shown("b.c", {.region = "eu-west-1"}) == "https://s3.eu-west-1.amazonaws.com/b.c");
  CHECK(shown("b", {.addressing = s3_addressing::path}) == "https://s3.us-east-1.amazonaws.com/b");
  CHECK(shown("b", {.endpoint = "http://h:9000/"}) == "http://h:9000/b");
  CHECK(shown("b", {.endpoint = "http://h:80"}) == "http://h/b");
  CHECK(shown("b", {.endpoint = "https://h:443/x"}) == "https://h/x/b");
  CHECK(shown("b", {.endpoint = "http://h", .addressing = s3_addressing::virtual_host}) ==
        "http://b.h");
  {
    const aws_variables set{{{"AWS_REGION", "eu-west-3"}, {"AWS_DEFAULT_REGION", "x"}}};
    CHECK(shown("b", {}) == "https://b.s3.eu-west-3.amazonaws.com");
  }
  {
    const aws_variables set{
        {{"AWS_ENDPOINT_URL", "http://a"}, {"AWS_ENDPOINT_URL_S3", "http://c"}}};
    CHECK(shown("b", {}) == "http://c/b");
  }
  const auto option_of = [](const std::string& bucket, ps::s3_options options) {
    options.anonymous = true;
    return error_of<ps::option_error>([&] { const ps::s3_store store(bucket, options); }).option();
  };
  CHECK(option_of("", {}) == "bucket");
  CHECK(option_of("a/b", {}) == "bucket");
  CHECK(option_of("..", {}) == "bucket");
  CHECK(option_of("b", {.region = "evil.example.org/"}) == "region");
  CHECK(option_of("b", {.endpoint = "h"}) == "endpoint");
  CHECK(option_of("b", {.endpoint = "http://h?x=1"}) == "endpoint");
  CHECK(option_of("b", {.http = {.attempts = 0}}) == "attempts");
}

TEST_CASE("credentials are taken from options, environment or files, in this order",
          "[remote][promise:honest-11][fault:stores-6]") {
  const test::temp_dir dir;
  const std::string credentials = dir.write(
      "credentials", text_bytes("[default]\naws_access_key_id=file\naws_secret_access_key=a\n"
                                "[work]\naws_access_key_id=work\naws_secret_access_key=b\n"));
  const std::string config = dir.write(
      "config", text_bytes("[profile work]\nregion = eu-north-1\naws_session_token = other\n"
                           "[profile other]\naws_access_key_id=other\n"
                           "aws_secret_access_key=f\naws_session_token=g\n"));
  const std::pair<std::string, std::string> files[]{{"AWS_SHARED_CREDENTIALS_FILE", credentials},
                                                    {"AWS_CONFIG_FILE", config}};
  {
    const aws_variables set{{files[0],
                             files[1],
                             {"AWS_ACCESS_KEY_ID", "environment"},
                             {"AWS_SECRET_ACCESS_KEY", "d"},
                             {"AWS_SESSION_TOKEN", "e"}}};
    CHECK(ps::detail::place_of("b", {.credentials = somebody}).credentials->key_id ==
          "AKIDEXAMPLE");
    const auto by_environment = ps::detail::place_of("b", {});
    CHECK(by_environment.credentials->key_id == "environment");
    CHECK(by_environment.credentials->session_token == "e");
    const auto by_profile = ps::detail::place_of("b", {.profile = "work"});
    CHECK(by_profile.credentials->key_id == "work");
    CHECK(by_profile.credentials->secret == "b");
    // a token in another file than the key is ignored.
    CHECK(by_profile.credentials->session_token.empty());
    CHECK(by_profile.region == "eu-north-1");
    CHECK_FALSE(ps::detail::place_of("b", {.anonymous = true}).credentials);
  }
  {
    const aws_variables set{{files[0], files[1]}};
    CHECK(ps::detail::place_of("b", {}).credentials->key_id == "file");
    CHECK(ps::detail::place_of("b", {}).credentials->session_token.empty());
  }
  {
    const aws_variables set{{files[0], files[1], {"AWS_PROFILE", "work"}}};
    CHECK(ps::detail::place_of("b", {}).credentials->key_id == "work");
    const auto other = ps::detail::place_of("b", {.profile = "other"});
    CHECK(other.credentials->key_id == "other");
    CHECK(other.credentials->session_token == "g");
  }
  const aws_variables none{{}};
  const auto problem = error_of<ps::access_denied>([] { const ps::s3_store store("b"); });
  CHECK(has(problem.found(), "profile default of /nowhere/.aws/credentials and /nowhere"));
  CHECK(has(problem.found(), "which does not exist"));
  (void)error_of<ps::access_denied>(
      [] { const ps::s3_store store("b", {.credentials = ps::s3_credentials{"a\r\nX: y", "b"}}); });
}

TEST_CASE("files of AWS that can't be read are rejected", "[remote][fault:stores-6]") {
  const test::temp_dir dir;
  const std::string bad = dir.write("bad", text_bytes("[default]\nno setting\n"));
  const std::string folder = dir.path(".");
  const aws_variables set{{{"AWS_SHARED_CREDENTIALS_FILE", folder}, {"AWS_CONFIG_FILE", bad}}};
  const auto place = [](const ps::s3_options& options) {
    return ps::detail::place_of("b", options);
  };
  const auto problem = error_of<ps::file_unreadable>([&] { (void)place({}); });
  CHECK(problem.path() == folder);
  (void)error_of<ps::file_unreadable>([&] { (void)place({.credentials = somebody}); });
  (void)error_of<ps::file_unreadable>([&] { (void)place({.anonymous = true}); });
  // An existing but unreadable file does not count as missing.
  const std::string circle = dir.path("circle");
  std::filesystem::create_symlink(circle, circle);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", circle.c_str(), 1);
  CHECK(error_of<ps::file_unreadable>([&] { (void)place({}); }).path() == circle);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere", 1);
  CHECK(error_of<ps::file_format_error>([&] { (void)place({}); }).path() == bad);
  // An empty variable does not select the user's file.
  ::setenv("AWS_CONFIG_FILE", "", 1);
  CHECK(place({.anonymous = true}).region == "us-east-1");
  ::setenv("AWS_CONFIG_FILE", "/dev/null", 1);
  CHECK(place({.anonymous = true}).region == "us-east-1");
  // A home folder that cannot be opened contains no files.
  ::unsetenv("AWS_CONFIG_FILE");
  ::setenv("HOME", circle.c_str(), 1);
  CHECK(place({.anonymous = true}).region == "us-east-1");
}

TEST_CASE("a profile selects the server and its settings", "[remote][promise:honest-11]") {
  const test::temp_dir dir;
  using variables = std::vector<std::pair<std::string, std::string>>;
  const auto place = [&](const std::string& config, const ps::s3_options& options = {},
                         variables set = {}, const std::string& bucket = "b") {
    set.emplace_back("AWS_CONFIG_FILE", dir.write("config", text_bytes(config)));
    const aws_variables all_set{set};
    auto all = options;
    all.anonymous = true;
    return ps::detail::place_of(bucket, all);
  };
  const auto shown = [&](const std::string& config, const ps::s3_options& options = {},
                         const variables& set = {}, const std::string& bucket = "b") {
    return place(config, options, set, bucket).bucket.shown();
  };
  const std::string own = "[default]\nendpoint_url = http://own:1\n";
  const std::string services =
      own + "services = 'my x'\n[services \"'my x'\"]\nS3 =\n  endpoint_url = http://service:1\n";
  CHECK(shown(own) == "http://own:1/b");
  CHECK(shown(services) == "http://service:1/b");
  CHECK(shown(services, {}, {{"AWS_ENDPOINT_URL", "http://all:1"}}) == "http://all:1/b");
  CHECK(shown(services, {.endpoint = "http://option"}) == "http://option/b");
  const std::string aws = "https://b.s3.us-east-1.amazonaws.com";
  CHECK(shown(services + "[profile p]\n", {.profile = "p"}) == aws);
  CHECK(shown(own + "ignore_configured_endpoint_urls = True\n") == aws);
  CHECK(shown(own, {},
              {{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"},
               {"AWS_ENDPOINT_URL", "http://a"}}) == aws);
  CHECK(shown(own + "ignore_configured_endpoint_urls = true\n", {},
              {{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false"}}) == "http://own:1/b");
  CHECK(shown("[default]\n[profile default]\nendpoint_url = http://last") == "http://last/b");
  CHECK(shown("[profile a]\n[profile b]\nendpoint_url = http://b", {},
              {{"AWS_DEFAULT_PROFILE", "b"}, {"AWS_PROFILE", "a"}}) == "http://b/b");

  const auto s3 = [](const std::string& line) { return "[default]\ns3 =\n  " + line + '\n'; };
  CHECK(shown(s3("addressing_style = path")) == "https://s3.us-east-1.amazonaws.com/b");
  CHECK(shown(s3("addressing_style = path"), {.addressing = ps::s3_addressing::virtual_host}) ==
        aws);
  CHECK(shown(s3("addressing_style = virtual\nendpoint_url = http://h")) == "http://b.h");
  CHECK(shown(s3("addressing_style = virtual\nendpoint_url = http://1.2.3.4:5")) ==
        "http://1.2.3.4:5/b");
  CHECK(shown(s3("addressing_style = virtual\nendpoint_url = https://h"), {}, {}, "b.c") ==
        "https://h/b.c");
  CHECK(shown(s3("use_dualstack_endpoint = true")) ==
        "https://b.s3.dualstack.us-east-1.amazonaws.com");
  CHECK(shown("[default]\nuse_fips_endpoint = true\nregion = us-west-2", {},
              {{"AWS_USE_DUALSTACK_ENDPOINT", "true"}}) ==
        "https://b.s3-fips.dualstack.us-west-2.amazonaws.com");
  CHECK(place("[default]\nca_bundle = /ca\n").ca_file == "/ca");
  CHECK(place("[default]\nca_bundle = /ca\n", {}, {{"AWS_CA_BUNDLE", "/other"}}).ca_file ==
        "/other");
}

TEST_CASE("a setting of AWS that a store does not support is an error with its place",
          "[remote][promise:honest-11][fault:stores-6]") {
  const test::temp_dir dir;
  test::range_server server{"0123456789"};
  const std::string keys = "aws_access_key_id = AK\naws_secret_access_key = s3cr3t\n";
  struct rejected {
    std::string config;
    std::string credentials;
    std::string word;
    int line;
  };
  const std::string url = "endpoint_url = " + server.url() + '\n';
  for (const rejected& one : std::vector<rejected>{
           {"[default]\n" + url + "role_arn = r\n", "[default]\n" + keys, "role_arn", 3},
           {"[default]\n" + url + "web_identity_token_file = x\n", "[default]\n" + keys,
            "web_identity_token_file", 3},
           {"[default]\n" + url + "sso_account_id = 1\n", "[default]\n" + keys, "sso_account_id",
            3},
           {"[default]\ncredential_process = x\n" + url + keys, "", "credential_process", 2},
           {"[default]\nlogin_session = x\n" + url + keys, "", "login_session", 2},
           {"[default]\n" + url + "s3 =\n  use_accelerate_endpoint = true\n", "[default]\n" + keys,
            "use_accelerate_endpoint", 4},
           {"[default]\n" + url + "use_fips_endpoint = true\n", "[default]\n" + keys,
            "use_fips_endpoint", 3},
           {"[default]\n" + url + "s3 =\n  addressing_style = Path\n", "[default]\n" + keys,
            "addressing_style", 4},
           {"[default]\n" + url + "s3 = path\n", "[default]\n" + keys, "s3", 3},
           {"[default]\n" + url + "services = none\n", "[default]\n" + keys, "services", 3},
           {"[default]\nendpoint_url = h:1\n", "[default]\n" + keys, "endpoint", 2},
           {"[default]\n" + url + "region = a b\n", "[default]\n" + keys, "region", 3},
           {"[default]\n" + url + "aws_access_key_id = AK\n", "", "aws_secret_access_key", 3},
           {"[default]\n" + url + keys + "  x = 1\n", "", "aws_secret_access_key", 4}}) {
    CAPTURE(one.config, one.credentials);
    const std::string config = dir.write("config", text_bytes(one.config));
    const aws_variables set{
        {{"AWS_CONFIG_FILE", config},
         {"AWS_SHARED_CREDENTIALS_FILE", dir.write("credentials", text_bytes(one.credentials))}}};
    const auto problem =
        error_of<ps::file_format_error>([] { (void)ps::s3_store{"b"}.size_of("x"); });
    CHECK(problem.path() == config);
    CHECK(has(problem.what(), one.word));
    CHECK(has(problem.found(), "in line " + std::to_string(one.line) + " "));
    CHECK(lacks(problem.what(), "s3cr3t"));
    if (one.word != "role_arn") continue;
    // Keys in the environment take precedence over a profile's role.
    ::setenv("AWS_ACCESS_KEY_ID", "environment", 1);
    // Half of the keys are missing.
    (void)error_of<ps::access_denied>([] { const ps::s3_store store{"b"}; });
    ::setenv("AWS_SECRET_ACCESS_KEY", "x", 1);
    ::setenv("AWS_SECURITY_TOKEN", "older", 1);
    CHECK(ps::detail::place_of("b", {}).credentials->session_token == "older");
    (void)error_of<ps::file_format_error>(
        [] { (void)ps::s3_store{"b", {.profile = "default"}}.size_of("x"); });
  }
  {
    const aws_variables set{
        {{"AWS_CONFIG_FILE", dir.write("config", text_bytes("[default]\n" + url + keys))},
         {"AWS_WEB_IDENTITY_TOKEN_FILE", "x"}}};
    CHECK(has(error_of<ps::access_denied>([] { const ps::s3_store store{"b"}; }).found(),
              "AWS_WEB_IDENTITY_TOKEN_FILE"));
    CHECK(ps::detail::place_of("b", {.profile = "default"}).credentials->key_id == "AK");
    ::setenv("AWS_PROFILE", "other", 1);
    CHECK(has(error_of<ps::file_unreadable>([] { const ps::s3_store store{"b"}; }).expected(),
              "the profile other"));
  }
  CHECK(server.requests().empty());
}

TEST_CASE("a bucket is read with signatures that exclude the range",
          "[remote][promise:honest-11]") {
  const aws_variables none{{}};
  const std::string content = test::some_bytes(1000);
  test::range_server server{content};
  const ps::s3_store store{
      "my-bucket", {.region = "eu-west-1", .endpoint = server.url(), .credentials = somebody}};
  CHECK(store.size_of("train/a b.tar") == 1000);
  std::string out(100, '?');
  store.read({"train/a b.tar", 7, std::as_writable_bytes(std::span{out})});
  CHECK(out == content.substr(7, 100));
  CHECK(store.stats().requests == 2);

  const http_request request = server.requests().back();
  CHECK(request.path == "/my-bucket/train/a%20b.tar");
  CHECK(request.lines.at("x-amz-security-token") == "s3cr3t-token");
  CHECK(request.lines.at("x-amz-content-sha256") == ps::detail::sha256_of_nothing);
  CHECK(request.lines.at("x-amz-checksum-mode") == "ENABLED");
  // Computes the signature again for the time in the request.
  const std::vector<ps::detail::signed_line> lines{
      {"host", request.lines.at("host")},
      {"x-amz-checksum-mode", request.lines.at("x-amz-checksum-mode")},
      {"x-amz-content-sha256", request.lines.at("x-amz-content-sha256")},
      {"x-amz-date", request.lines.at("x-amz-date")},
      {"x-amz-security-token", "s3cr3t-token"}};
  CHECK(request.lines.at("authorization") ==
        ps::detail::authorization(somebody, "eu-west-1", "s3", request.lines.at("x-amz-date"),
                                  {"GET", request.path, "", lines, ps::detail::sha256_of_nothing}));
  const ps::s3_store open{"my-bucket", {.endpoint = server.url(), .anonymous = true}};
  CHECK(open.size_of("x") == 1000);
  CHECK(server.requests().back().lines.count("authorization") == 0);
  CHECK(server.requests().back().lines.at("x-amz-checksum-mode") == "ENABLED");
  // The server does not support listing.
  (void)error_of<ps::bad_response>([&] { (void)open.list(""); });
  CHECK(server.requests().back().lines.count("x-amz-checksum-mode") == 0);
}

TEST_CASE("an S3 error contains advice and no secret", "[remote][fault:stores-6]") {
  const aws_variables none{{}};
  std::string body;
  int status = 403;
  std::vector<std::string> lines;
  std::mutex guard;  // protects the three variables above
  test::range_server server{[&](const http_request& request) {
    const std::lock_guard lock{guard};
    return test::answer(status, lines, body, request.method);
  }};
  const ps::s3_store store{"b",
                           {.endpoint = server.url(),
                            .credentials = somebody,
                            .http = {.attempts = 2,
                                     .first_delay = std::chrono::milliseconds{1},
                                     .max_delay = std::chrono::milliseconds{1}}}};
  const auto words_of_fault = [&](auto kind, int code, const std::string& text) {
    {
      const std::lock_guard lock{guard};
      status = code;
      body = text;
    }
    const auto problem = error_of<typename decltype(kind)::type>([&] { (void)store.size_of("x"); });
    CHECK(lacks(problem.what(), "s3cr3t"));
    return problem.found();
  };
  constexpr std::common_type<ps::access_denied> denied;
  constexpr std::common_type<ps::object_missing> missing;
  constexpr std::common_type<ps::store_unreachable> unreachable;
  constexpr std::common_type<ps::bad_response> bad;
  CHECK(has(words_of_fault(denied, 403, s3_error("AccessDenied")), "their permissions"));
  CHECK(has(words_of_fault(denied, 403, s3_error("RequestTimeTooSkewed")), "the clock"));
  CHECK(has(words_of_fault(denied, 400, s3_error("ExpiredToken")), "get new credentials"));
  CHECK(has(words_of_fault(denied, 403, s3_error("InvalidAccessKeyId")), "AWS_ACCESS_KEY_ID"));
  CHECK(
      has(words_of_fault(denied, 403, s3_error("SignatureDoesNotMatch")), "AWS_SECRET_ACCESS_KEY"));
  CHECK(has(words_of_fault(denied, 403, "not even XML"), "HTTP 403"));
  CHECK(has(words_of_fault(denied, 403, s3_error("a b\n")), "HTTP 403: "));
  CHECK(has(words_of_fault(unreachable, 503, s3_error("SlowDown")), "attempt 2 of 2"));
  CHECK(has(words_of_fault(unreachable, 400, s3_error("RequestTimeout")), "attempt 2 of 2"));
  CHECK(has(words_of_fault(missing, 404, {}), "HTTP 404"));
  CHECK(has(words_of_fault(bad, 400,
                           s3_error("AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>")),
            "to eu-west-3"));
  {
    const std::lock_guard lock{guard};
    lines = {"x-amz-bucket-region: ap-south-1", "Location: http://elsewhere/"};
  }
  CHECK(has(words_of_fault(bad, 301, {}), "to ap-south-1"));
  {
    const std::lock_guard lock{guard};
    status = 404;
    lines.clear();
    body = s3_error("NoSuchBucket");
  }
  CHECK(has(error_of<ps::object_missing>([&] { (void)store.list(); }).found(), "bucket"));
}

TEST_CASE("a bucket's objects are listed page by page", "[remote][promise:honest-11]") {
  const aws_variables none{{}};
  test::range_server server{[&](const http_request& request) {
    const bool is_first = request.path.find("continuation-token") == std::string::npos;
    const std::string key = is_first ? "a%2Fb%2Bc+d&amp;.tar" : "z";
    const std::string page =
        "<?xml version='1.0' encoding='UTF-8'?>\n<!-- > -->"
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        "<Name>b</Name><Prefix/><EncodingType>url</EncodingType><Contents><Key>" +
        key + "</Key><Size>12</Size><Owner><ID>x</ID></Owner></Contents>" +
        (is_first ? "<IsTruncated>true</IsTruncated>"
                    "<NextContinuationToken>1/+=</NextContinuationToken>"
                  : "<IsTruncated>false</IsTruncated>") +
        "</ListBucketResult>";
    return test::answer(200, {}, page);
  }};
  const ps::s3_store store{"b", {.endpoint = server.url(), .credentials = somebody}};
  const auto objects = store.list("tr ain/");
  REQUIRE(objects.size() == 2);
  CHECK(objects[0].key == "a/b+c d&.tar");
  CHECK(objects[0].size == 12);
  CHECK(objects[1].key == "z");
  const auto requests = server.requests();
  REQUIRE(requests.size() == 2);
  CHECK(requests[0].path == "/b?encoding-type=url&list-type=2&prefix=tr%20ain%2F");
  CHECK(requests[1].path ==
        "/b?continuation-token=1%2F%2B%3D&encoding-type=url&list-type=2&prefix=tr%20ain%2F");
}

TEST_CASE("each key that a listing may name is read, and compared with the size that it states",
          "[remote][promise:honest-11][fault:stores-8]") {
  const aws_variables none{{}};
  const std::vector<std::string> keys{"!-_.*'()",
                                      "%2F%00",
                                      ".",
                                      "..",
                                      "../b/k",
                                      "./x",
                                      "/",
                                      "//",
                                      "/lead",
                                      "a b+c",
                                      "a/",
                                      "a/..",
                                      "a/../b",
                                      "a/./b",
                                      "a//b",
                                      "a:b;c@d&e=f$g,h?i",
                                      "b#c",
                                      "d\\e",
                                      "{^}|~`",
                                      "\x01\n",
                                      "\xc3\xa4\xf0\x9f\x98\x80"};
  std::uint64_t stated = 10;
  test::range_server server{[&](const http_request& request) {
    if (request.path.find("list-type") == std::string::npos) {
      return test::ranged(request, "0123456789");
    }
    std::string page = "<ListBucketResult><EncodingType>url</EncodingType>";
    for (const std::string& key : keys) {
      page += "<Contents><Key>" + ps::detail::percent_encoded(key, "/") + "</Key><Size>" +
              std::to_string(stated) + "</Size></Contents>";
    }
    return test::answer(200, {}, page + "<IsTruncated>false</IsTruncated></ListBucketResult>");
  }};
  const ps::s3_options options{.endpoint = server.url(), .credentials = somebody};
  const ps::s3_store store{"bkt", options};
  const auto objects = store.list();
  REQUIRE(objects.size() == keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    CAPTURE(keys[i]);
    CHECK(objects[i].key == keys[i]);
    CHECK(test::part_of(store, objects[i].key, 2, 3) == "234");
    const http_request request = server.requests().back();
    CHECK(request.path == "/bkt/" + ps::detail::percent_encoded(keys[i], "/"));
    const std::vector<ps::detail::signed_line> lines{
        {"host", request.lines.at("host")},
        {"x-amz-checksum-mode", "ENABLED"},
        {"x-amz-content-sha256", std::string{ps::detail::sha256_of_nothing}},
        {"x-amz-date", request.lines.at("x-amz-date")},
        {"x-amz-security-token", "s3cr3t-token"}};
    CHECK(
        request.lines.at("authorization") ==
        ps::detail::authorization(somebody, "us-east-1", "s3", request.lines.at("x-amz-date"),
                                  {"GET", request.path, "", lines, ps::detail::sha256_of_nothing}));
  }
  stated = 11;
  const ps::s3_store other{"bkt", options};
  CHECK(other.list().size() == keys.size());
  const auto wrong = error_of<ps::object_changed>([&] { (void)other.size_of("/lead"); });
  CHECK(has(wrong.expected(), "of 11 bytes"));
  CHECK(has(wrong.found(), "of 10 bytes"));
  (void)error_of<ps::object_changed>([&] { (void)test::part_of(other, "a//b", 0, 3); });
  CHECK(test::part_of(other, "not listed", 0, 3) == "012");
}

TEST_CASE("a truncated page of a listing is read again from its start",
          "[remote][fault:stores-5]") {
  const aws_variables none{{}};
  std::atomic<int> requested{0};
  test::range_server server{[&](const http_request&) {
    const std::string page =
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>k</Key>"
        "<Size>1</Size></Contents></ListBucketResult>";
    const auto whole = test::answer(200, {}, page);
    return requested++ == 0 ? whole.cut(whole.bytes.size() - 20) : whole;
  }};
  const ps::s3_store store{"b",
                           {.endpoint = server.url(),
                            .credentials = somebody,
                            .http = {.first_delay = std::chrono::milliseconds{1},
                                     .max_delay = std::chrono::milliseconds{1}}}};
  const auto objects = store.list();
  REQUIRE(objects.size() == 1);
  CHECK(objects[0].key == "k");
  CHECK(requested == 2);
}

TEST_CASE("a cyclic listing is rejected", "[remote][fault:stores-7]") {
  const aws_variables none{{}};
  int pages = 0;
  const std::string keys = GENERATE(std::string{"aba"}, std::string{"aa"}, std::string{"-----"});
  test::range_server server{[&](const http_request&) {
    const char key = keys[static_cast<std::size_t>(pages++) % keys.size()];
    return test::answer(200, {},
                        "<ListBucketResult><IsTruncated>true</IsTruncated>"
                        "<NextContinuationToken>" +
                            std::to_string(pages % 2) + "</NextContinuationToken>" +
                            (key == '-' ? std::string{}
                                        : std::string{"<Contents><Key>"} + key +
                                              "</Key><Size>1</Size></Contents>") +
                            "</ListBucketResult>");
  }};
  const ps::s3_store store{"b", {.endpoint = server.url(), .credentials = somebody}};
  const auto problem = error_of<ps::bad_response>([&] { (void)store.list(); });
  CHECK(problem.path() == server.url() + "/b");
  CHECK(pages <= 3);
}

TEST_CASE("a listing whose pages stay empty ends", "[remote][fault:stores-7]") {
  const aws_variables none{{}};
  int pages = 0;
  test::range_server server{[&](const http_request&) {
    return test::answer(200, {},
                        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" +
                            std::to_string(++pages) +
                            "</NextContinuationToken></ListBucketResult>");
  }};
  const ps::s3_store store{"b", {.endpoint = server.url(), .credentials = somebody}};
  const auto problem = error_of<ps::bad_response>([&] { (void)store.list(); });
  CHECK(problem.path().starts_with(server.url() + "/b"));
  CHECK(pages == 1001);
}

TEST_CASE("a key, a token or a name that is far too long is rejected with its place", "[remote]") {
  const aws_variables none{{}};
  const std::string endless(20'000'000, 'k');
  std::string page = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>" + endless +
                     "</Key><Size>1</Size></Contents></ListBucketResult>";
  std::string expected = "a key of at most 8192 bytes";
  if (GENERATE(false, true)) {
    page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" + endless +
           "</NextContinuationToken></ListBucketResult>";
    expected = "a token of at most 65536 bytes";
  }
  test::range_server server{[&](const http_request&) { return test::answer(200, {}, page); }};
  const ps::s3_store store{"b", {.endpoint = server.url(), .credentials = somebody}};
  const auto problem = error_of<ps::bad_response>([&] { (void)store.list(); });
  CHECK(problem.path() == server.url() + "/b");
  CHECK(problem.offset() == page.find(endless) - (expected[2] == 'k' ? 4 : 22));
  CHECK(problem.expected() == expected);
  CHECK(has(problem.found(), "20000000 bytes: "));
  CHECK(problem.found().size() < 300);
  const auto unrequested = error_of<ps::file_unreadable>([&] { (void)store.size_of(endless); });
  CHECK(unrequested.path().starts_with(server.url() + "/b/kkk"));
  CHECK(unrequested.path().size() < 300);
  CHECK(has(unrequested.found(), "20000000 bytes"));
  CHECK(server.requests().size() == 1);
}

TEST_CASE("an invalid listing is rejected", "[remote][fault:stores-7]") {
  const std::string good =
      "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>&#x41;&#228;</Key>"
      "<Size>1</Size></Contents></ListBucketResult>";
  const auto found = ps::detail::list_answer::parse(good, "url");
  REQUIRE(found.objects.size() == 1);
  CHECK(found.objects[0].key == "A\xc3\xa4");
  const auto with = [&](const std::string& part, const std::string& by) {
    std::string text = good;
    return text.replace(text.find(part), part.size(), by);
  };
  for (const std::string& text :
       {std::string{}, std::string{"<html></html>"}, good.substr(0, good.size() - 1),
        with("</Key>", "</key>"), with("<Size>1", "<Size>x"), with("<Size>1</Size>", ""),
        with("&#x41;&#228;", ""), with("&#x41;", "&lol;"), with("&#x41;", "&#xd800;"),
        with("&#x41;", "&#0;"), with("&#x41;", "&#;"), with("&#x41;", "&"), with("false", "true"),
        with("<Contents>", "<!DOCTYPE x><Contents>"), with("<Contents>", "<![CDATA[x]]><Contents>"),
        with("<Contents>", "<a b=\">\">"),
        with("<IsTruncated>",
             "<EncodingType>url</EncodingType><Contents><Key>%4</Key>"
             "<Size>1</Size></Contents><IsTruncated>")}) {
    CAPTURE(text);
    (void)error_of<ps::bad_response>([&] { (void)ps::detail::list_answer::parse(text, "url"); });
  }
  const auto fault = [](const std::string& text) {
    return error_of<ps::bad_response>([&] { (void)ps::detail::list_answer::parse(text, "url"); });
  };
  CHECK(fault(with("</Key>", "</key>")).offset() == good.find("</Key>") + 2);
  CHECK(fault("<a b").offset() == 4);  // pugixml itself reports offset 5
  CHECK(fault(with("&#x41;", "&lol;")).offset() == good.find("&#x41;"));
  CHECK(fault(with("<Contents>", "<![CDATA[x]]><Contents>")).found() == "a CDATA section");
  CHECK(fault("<!DOCTYPE x>" + good).found() == "a document type");
  CHECK(fault(with("&#x41;", "<b/>")).expected() == "the key of an object");
  CHECK(fault(with("&#x41;", "a<!-- -->")).expected() == "the key of an object");
  const std::string one = "<Contents><Key>A</Key><Size>1</Size></Contents>";
  CHECK(fault(with("<Contents>", one + one + "<Contents>")).found() == "the previous key again");
  CHECK(fault(with("<Contents>", "<KeyCount>2</KeyCount><Contents>")).found() == "1 in place of 2");
  (void)ps::detail::list_answer::parse(with("<Contents>", "<KeyCount>1</KeyCount><Contents>"), "");
  // Excessive memory use is rejected in advance.
  std::string deep = "<Owner></Owner>";
  for (int i = 0; i < 20; ++i) deep = "<a>" + deep + "</a>";
  CHECK(fault(with("<Contents>", deep + "<Contents>")).found() == "elements deeper than 16");
  std::string many;
  for (int i = 0; i < (1 << 19); ++i) many += "<a/>";
  (void)ps::detail::list_answer::parse(with("<Contents>", many + "<Contents>"), "url");
  for (int i = 0; i < (1 << 18); ++i) many += "<a b=\"\"/>";
  CHECK(fault(with("<Contents>", many + "<Contents>")).found() ==
        "more than 1048576 signs '<' and '='");
}

TEST_CASE("an error code is read even if the body is truncated after it", "[remote]") {
  using ps::detail::error_word;
  const std::string body = s3_error("SlowDown", "<Region>eu-west-3</Region>");
  CHECK(error_word(body, "Code") == "SlowDown");
  CHECK(error_word(body, "Region") == "eu-west-3");
  CHECK(error_word(body, "Message") == "s3cr3t-key");
  CHECK(error_word(body, "Host") == "");
  CHECK(error_word(body.substr(0, body.find("<Message>") + 12), "Code") == "SlowDown");
  CHECK(error_word(s3_error("a b"), "Code") == "");
  CHECK(error_word(s3_error(std::string(100, 'a')), "Code") == std::string(64, 'a'));
  CHECK(error_word("<Other><Code>SlowDown</Code></Other>", "Code") == "");
  CHECK(error_word("<Error><In><Code>SlowDown</Code></In></Error>", "Code") == "");
  CHECK(error_word("", "Code") == "");
}

// Hidden, because the test needs the server that s3_moto.py starts.
TEST_CASE("a bucket is read for a comparison with moto", "[.][moto]") {
  const char* const path = std::getenv("PENSTOCK_S3_LISTING");
  REQUIRE(path != nullptr);
  const ps::s3_store store{"photos"};
  std::ofstream listing{path};
  for (const ps::s3_object& object : store.list("train/")) {
    REQUIRE(store.size_of(object.key) == object.size);
    std::string content(object.size, '\0');
    const auto room = std::as_writable_bytes(std::span{content});
    // Reads the object in pieces, starting at the end.
    std::vector<ps::byte_range> ranges;
    for (std::size_t end = room.size(); end > 0;) {
      const std::size_t begin = end > 70'000 ? end - 70'000 : 0;
      ranges.push_back({object.key, begin, room.subspan(begin, end - begin)});
      end = begin;
    }
    store.read_many(ranges);
    listing << object.key << '\n'
            << ps::detail::hex_digits(ps::detail::digest::sha256().add(content).bytes()) << '\n';
  }
  CHECK_THROWS_AS(store.size_of("train/missing"), ps::object_missing);
  CHECK_THROWS_AS(ps::s3_store{"no-such-bucket"}.list(), ps::object_missing);
  const ps::s3_store wrong{
      "photos", {.credentials = ps::s3_credentials{std::getenv("AWS_ACCESS_KEY_ID"), "wrong"}}};
  CHECK_THROWS_AS(wrong.size_of("train/a"), ps::access_denied);
  CHECK_THROWS_AS(wrong.list(), ps::access_denied);
}
