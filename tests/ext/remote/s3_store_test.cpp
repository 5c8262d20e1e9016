// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/s3_store.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
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
#include <penstock_ext/files/support/sums.hpp>
#include <penstock_ext/store/http/detail/s3/list_answer.hpp>
#include <penstock_ext/store/http/detail/s3/s3_place.hpp>

#include "ext/remote/range_server.hpp"
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

// Variables of the environment for as long as it is there; all of AWS's others are not set.
class aws_variables {
 public:
  explicit aws_variables(const std::vector<std::pair<std::string, std::string>>& set) {
    for (const char* const name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
          "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
          "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "HOME"}) {
      const char* const before = std::getenv(name);
      before_.emplace_back(name, before == nullptr ? "" : before);
      ::unsetenv(name);
    }
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

TEST_CASE("credentials come from options, environment or files, in this order",
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
    CHECK(by_profile.credentials->session_token.empty());  // of another file than the key
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
  const aws_variables none{{{"HOME", "/nowhere"}}};
  const auto problem = error_of<ps::access_denied>([] { const ps::s3_store store("b"); });
  CHECK(has(problem.found(), "profile default"));
  CHECK(has(problem.found(), "which is not there"));
  (void)error_of<ps::access_denied>(
      [] { const ps::s3_store store("b", {.credentials = ps::s3_credentials{"a\r\nX: y", "b"}}); });
}

TEST_CASE("files of AWS are read where something is wanted of them, or refused",
          "[remote][fault:stores-6]") {
  const test::temp_dir dir;
  const std::string bad = dir.write("bad", text_bytes("[default]\nno setting\n"));
  const std::string folder = dir.path(".");
  const aws_variables set{{{"AWS_SHARED_CREDENTIALS_FILE", folder}, {"AWS_CONFIG_FILE", bad}}};
  const auto place = [](const ps::s3_options& options) {
    return ps::detail::place_of("b", options);
  };
  CHECK_FALSE(place({.region = "eu-west-1", .anonymous = true}).credentials);
  CHECK(place({.endpoint = "http://h", .anonymous = true}).bucket.shown() == "http://h/b");
  CHECK(place({.region = "eu-west-1", .credentials = somebody}).region == "eu-west-1");
  const auto problem = error_of<ps::file_unreadable>([&] { (void)place({}); });
  CHECK(problem.path() == folder);
  (void)error_of<ps::file_unreadable>([&] { (void)place({.credentials = somebody}); });
  (void)error_of<ps::file_unreadable>([&] { (void)place({.anonymous = true}); });
  // A file that is there, and that this process may not look at, is not taken for a missing one.
  const std::string circle = dir.path("circle");
  std::filesystem::create_symlink(circle, circle);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", circle.c_str(), 1);
  CHECK(error_of<ps::file_unreadable>([&] { (void)place({}); }).path() == circle);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere", 1);
  CHECK(error_of<ps::file_format_error>([&] { (void)place({}); }).path() == bad);
}

TEST_CASE("a bucket is read with signatures that leave the range out",
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
  CHECK(request.lines.at("x-amz-content-sha256") == ps::detail::sum_of_nothing);
  CHECK(request.lines.at("x-amz-checksum-mode") == "ENABLED");
  // Signed again, at the moment that the request names.
  const std::vector<ps::detail::signed_line> lines{
      {"host", request.lines.at("host")},
      {"x-amz-checksum-mode", request.lines.at("x-amz-checksum-mode")},
      {"x-amz-content-sha256", request.lines.at("x-amz-content-sha256")},
      {"x-amz-date", request.lines.at("x-amz-date")},
      {"x-amz-security-token", "s3cr3t-token"}};
  CHECK(request.lines.at("authorization") ==
        ps::detail::authorization(somebody, "eu-west-1", "s3", request.lines.at("x-amz-date"),
                                  {"GET", request.path, "", lines, ps::detail::sum_of_nothing}));
  const ps::s3_store open{"my-bucket", {.endpoint = server.url(), .anonymous = true}};
  CHECK(open.size_of("x") == 1000);
  CHECK(server.requests().back().lines.count("authorization") == 0);
  CHECK(server.requests().back().lines.at("x-amz-checksum-mode") == "ENABLED");
  (void)error_of<ps::bad_response>([&] { (void)open.list(""); });  // the server has no lists
  CHECK(server.requests().back().lines.count("x-amz-checksum-mode") == 0);
}

TEST_CASE("what S3 refuses says what to do, and nothing that is secret",
          "[remote][fault:stores-6]") {
  const aws_variables none{{}};
  std::string body;
  int status = 403;
  std::vector<std::string> lines;
  std::mutex guard;  // of these three
  test::range_server server{[&](const http_request& request) {
    const std::lock_guard lock{guard};
    return test::answer(status, lines, body, request.method);
  }};
  const ps::s3_store store{"b",
                           {.endpoint = server.url(),
                            .credentials = somebody,
                            .http = {.attempts = 2,
                                     .first_delay = std::chrono::milliseconds{1},
                                     .longest_delay = std::chrono::milliseconds{1}}}};
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
  CHECK(has(words_of_fault(denied, 403, s3_error("AccessDenied")), "may read"));
  CHECK(has(words_of_fault(denied, 403, s3_error("RequestTimeTooSkewed")), "the clock"));
  CHECK(has(words_of_fault(denied, 400, s3_error("ExpiredToken")), "get new ones"));
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

TEST_CASE("a page of a listing that was cut is read anew, from its start",
          "[remote][fault:stores-5]") {
  const aws_variables none{{}};
  std::atomic<int> asked{0};
  test::range_server server{[&](const http_request&) {
    const std::string page =
        "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>k</Key>"
        "<Size>1</Size></Contents></ListBucketResult>";
    const auto whole = test::answer(200, {}, page);
    return asked++ == 0 ? whole.cut(whole.bytes.size() - 20) : whole;
  }};
  const ps::s3_store store{"b",
                           {.endpoint = server.url(),
                            .credentials = somebody,
                            .http = {.first_delay = std::chrono::milliseconds{1},
                                     .longest_delay = std::chrono::milliseconds{1}}}};
  const auto objects = store.list();
  REQUIRE(objects.size() == 1);
  CHECK(objects[0].key == "k");
  CHECK(asked == 2);
}

TEST_CASE("a listing that goes in circles is refused", "[remote][fault:stores-7]") {
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

TEST_CASE("a key, a token or a name that is far too long is refused with its place", "[remote]") {
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
  const auto unasked = error_of<ps::file_unreadable>([&] { (void)store.size_of(endless); });
  CHECK(unasked.path().starts_with(server.url() + "/b/kkk"));
  CHECK(unasked.path().size() < 300);
  CHECK(has(unasked.found(), "20000000 bytes"));
  CHECK(server.requests().size() == 1);
}

TEST_CASE("a listing that is none is refused", "[remote][fault:stores-7]") {
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
  CHECK(fault("<a b").offset() == 4);  // pugixml says 5
  CHECK(fault(with("&#x41;", "&lol;")).offset() == good.find("&#x41;"));
  CHECK(fault(with("<Contents>", "<![CDATA[x]]><Contents>")).found() == "a CDATA section");
  CHECK(fault("<!DOCTYPE x>" + good).found() == "a document type");
  CHECK(fault(with("&#x41;", "<b/>")).expected() == "the key of an object");
  CHECK(fault(with("&#x41;", "a<!-- -->")).expected() == "the key of an object");
  // What would take memory is refused before it does.
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

TEST_CASE("an error's code is read, also where the body is cut after it", "[remote]") {
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

// Hidden, because it needs the server that s3_moto.py starts.
TEST_CASE("a bucket is read for a comparison with moto", "[.][moto]") {
  const char* const path = std::getenv("PENSTOCK_S3_LISTING");
  REQUIRE(path != nullptr);
  const ps::s3_store store{"photos"};
  std::ofstream listing{path};
  for (const ps::s3_object& object : store.list("train/")) {
    REQUIRE(store.size_of(object.key) == object.size);
    std::string content(object.size, '\0');
    const auto room = std::as_writable_bytes(std::span{content});
    // In pieces, the last one first.
    std::vector<ps::byte_range> ranges;
    for (std::size_t end = room.size(); end > 0;) {
      const std::size_t begin = end > 70'000 ? end - 70'000 : 0;
      ranges.push_back({object.key, begin, room.subspan(begin, end - begin)});
      end = begin;
    }
    store.read_many(ranges);
    listing << object.key << '\n'
            << ps::detail::hex_digits(ps::detail::digest::sha256().add(content).sum()) << '\n';
  }
  CHECK_THROWS_AS(store.size_of("train/missing"), ps::object_missing);
  CHECK_THROWS_AS(ps::s3_store{"no-such-bucket"}.list(), ps::object_missing);
  const ps::s3_store wrong{
      "photos", {.credentials = ps::s3_credentials{std::getenv("AWS_ACCESS_KEY_ID"), "wrong"}}};
  CHECK_THROWS_AS(wrong.size_of("train/a"), ps::access_denied);
  CHECK_THROWS_AS(wrong.list(), ps::access_denied);
}
