// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/detail/answer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/store/http/detail/http_client.hpp>
#include <penstock_ext/store/http/detail/http_request.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
using std::chrono::milliseconds;

TEST_CASE("the header of an answer is read, and the header of a redirect is discarded",
          "[remote][promise:honest-10]") {
  ps::detail::http_answer answer;
  for (const char* const line : {"HTTP/1.1 302 Found\r\n", "ETag: \"old\"\r\n",
                                 "Retry-After: 9\r\n", "\r\n", "HTTP/1.1 206 Partial Content\r\n",
                                 "content-LENGTH:  10 \r\n", "Content-Range: bytes 90-99/100\r\n",
                                 "ETAG:\t\"new\"\r\n", "no colon\r\n", ": none\r\n", "\r\n"}) {
    answer.add_line(line);
  }
  CHECK(answer.status == 206);
  CHECK(answer.length == 10U);
  REQUIRE(answer.range);
  CHECK(answer.range->begin == 90);
  CHECK(answer.range->end == 100);
  CHECK(answer.range->total == 100U);
  CHECK(answer.etag == "\"new\"");
  CHECK(answer.retry_after.empty());
  CHECK(answer.contradiction.empty());
  answer.add_line("Transfer-Encoding: gzip, Chunked");
  CHECK(answer.is_chunked);
  answer.add_line("Repr-Digest: SHA-256=:AAAA:");
  CHECK(answer.object);
  answer.add_line("HTTP/2 200");
  CHECK(answer.status == 200);
  for (const char* const line : {"HTTP/1.1", "HTTP/1.1 ", "HTTP/1.1 abc", "HTTP/1.1 099 x"}) {
    answer.add_line(line);
    CHECK(answer.status == 0);
  }
}

TEST_CASE("an invalid Content-Range is ignored", "[remote][fault:stores-7]") {
  using ps::detail::content_range;
  const auto open = content_range::parse("bytes 0-0/*");
  REQUIRE(open);
  CHECK(open->end == 1);
  CHECK_FALSE(open->total);
  CHECK(content_range::parse("Bytes 0-9/10"));  // tokens are case-insensitive
  const auto none = content_range::parse("bytes */7");
  REQUIRE(none);
  CHECK(none->begin == none->end);
  CHECK(none->total == 7U);
  for (const char* const text :
       {"", "bytes", "bytes ", "bytes 0-9", "bytes 0-9/", "bytes 9-0/10", "bytes 0-10/10",
        "bytes 0-9/x", "bytes -9/10", "bytes 0-/10", "bytes +0-9/10", "bytes 0 -9/10", "bytes */*",
        "octets 0-9/10", "bytes 0-18446744073709551615/*", "bytes 0-18446744073709551616/*"}) {
    CAPTURE(text);
    CHECK_FALSE(content_range::parse(text));
  }
}

TEST_CASE("backoff grows with jitter up to a limit and respects the server",
          "[remote][fault:stores-5]") {
  const milliseconds first{100};
  const milliseconds longest{1000};
  ps::detail::backoff waits{first, longest, 1};
  ps::detail::backoff same{first, longest, 1};
  ps::detail::backoff other{first, longest, 2};
  milliseconds highest[6] = {};
  int differing = 0;
  for (int i = 0; i < 200; ++i) {
    for (unsigned k = 1; k <= 5; ++k) {
      const milliseconds wait = waits.next(k, std::nullopt);
      CHECK(wait == same.next(k, std::nullopt));
      differing += wait != other.next(k, std::nullopt) ? 1 : 0;
      CHECK(wait >= milliseconds{0});
      highest[k] = (std::max)(highest[k], wait);
    }
  }
  CHECK(differing > 500);
  const milliseconds limits[6] = {{}, first, 2 * first, 4 * first, 8 * first, longest};
  for (unsigned k = 1; k <= 5; ++k) {
    CHECK(highest[k] <= limits[k]);
    CHECK(highest[k] > limits[k] * 8 / 10);
  }
  CHECK(waits.next(1000, std::nullopt) <= longest);
  CHECK(waits.next(1, milliseconds{500}) >= milliseconds{500});
  CHECK(waits.next(1, milliseconds{500}) <= milliseconds{600});
  CHECK(waits.next(1, milliseconds{9'000'000}) == longest);
  CHECK(waits.next(1, milliseconds{-5}) <= first);
  ps::detail::backoff limited{longest, first, 1};
  for (unsigned k = 1; k <= 20; ++k) CHECK(limited.next(k, std::nullopt) <= first);
  CHECK(limited.next(1, longest) == first);
}

TEST_CASE("libcurl's messages contain no URL and no proxy", "[remote][fault:stores-6]") {
  ps::detail::http_request one;
  const auto words = [&](std::string_view said, ::CURLcode code) {
    one.curl_words = {};
    std::copy(said.begin(), said.end(), one.curl_words.begin());
    return one.words_of(code);
  };
  CHECK(words("Could not resolve host: h", CURLE_COULDNT_RESOLVE_HOST) ==
        "Could not resolve host: h");
  CHECK_FALSE(words("", CURLE_COULDNT_CONNECT).empty());
  for (const auto& [said, code] :
       {std::pair{"Could not resolve proxy: u:s3cr3t@p", CURLE_COULDNT_RESOLVE_PROXY},
        std::pair{"Unsupported proxy scheme for 'x://u:s3cr3t@p'", CURLE_COULDNT_CONNECT},
        std::pair{"URL rejected: http://h/?s3cr3t", CURLE_URL_MALFORMAT}}) {
    const std::string shown = words(said, code);
    CHECK_FALSE(shown.empty());
    CHECK(shown.find("s3cr3t") == std::string::npos);
  }
}

TEST_CASE("the advice about redirects is given only after a redirect", "[remote][fault:stores-6]") {
  const ps::detail::http_service service{{}};
  const auto says = [&](int status) {
    ps::detail::http_request one;
    one.answer.status = status;
    const auto result = one.judge(CURLE_UNSUPPORTED_PROTOCOL, service);
    std::string said;
    try {
      std::rethrow_exception(result.error);
    } catch (const ps::file_error& problem) {
      said = problem.what();
    }
    return said;
  };
  CHECK(says(302).find("redirects lead") != std::string::npos);
  CHECK_FALSE(says(0).empty());
  CHECK(says(0).find("redirect") == std::string::npos);
}

TEST_CASE("Retry-After is a number of seconds or a date", "[remote][fault:stores-5]") {
  using ps::detail::retry_after;
  CHECK(retry_after("2") == milliseconds{2000});
  CHECK(retry_after("99999999999") == milliseconds{std::chrono::hours{24}});
  CHECK_FALSE(retry_after(""));
  CHECK_FALSE(retry_after("soon"));
  CHECK(retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == milliseconds{0});
}

TEST_CASE("versions of an object agree if their values are equal or missing",
          "[remote][fault:stores-8]") {
  using ps::detail::object_version;
  object_version known;
  CHECK(known.agrees({10U}));
  CHECK(known.agrees({std::nullopt, "W/\"3\"", "Monday"}));
  CHECK(known.agrees({10U, "W/\"3\"", "Monday"}));
  CHECK_FALSE(known.agrees({11U, "W/\"3\""}));
  CHECK_FALSE(known.agrees({10U, "W/\"5\""}));
  CHECK_FALSE(known.agrees({10U, "W/\"3\"", "Tuesday"}));
  CHECK_FALSE(known.agrees({10U, "", "Tuesday"}));
  CHECK(known.name() == "W/\"3\" Monday");
  CHECK(known.words() == "an object of 10 bytes, ETag: W/\"3\", Last-Modified: Monday");
  CHECK(known.agrees({10U, "\"3\"", "Monday"}));
  CHECK(known.agrees({10U, "\"3\"", "Tuesday"}));  // equal strong ETags are sufficient
  CHECK(known.agrees({std::nullopt}));
  CHECK(known.name() == "\"3\"");
  CHECK(known.modified == "Monday");
  // Long values are truncated, but differences remain detectable.
  const std::string endless(10'000, 'e');
  CHECK(object_version::kept(endless).size() < 130);
  CHECK(object_version::kept(endless) != object_version::kept(endless + 'e'));
  CHECK(object_version{{}, "a\nb\xff"}.words() == "an object, ETag: a?b?");
}
