// SPDX-License-Identifier: BSL-1.0
// Tests failing servers, and responses that do not match the request.
#include <penstock_ext/store/http/http_store.hpp>

#include <dlfcn.h>
#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <penstock_ext/store/cache/cached_store.hpp>
#include <penstock_ext/store/http/s3_store.hpp>

#include "ext/remote/range_server.hpp"
#include "ext/store/files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/limits.hpp"

namespace ps = penstock;
using std::chrono::milliseconds;
using test::error_of;
using test::has;
using test::http_request;
using test::lacks;

namespace {

// Number of further lookups that fail for names ending in ".test". Successful lookups return the
// loopback address.
std::atomic<int> failing_lookups{0};

}  // namespace

// libcurl calls this function instead of the system's to resolve names.
extern "C" int getaddrinfo(const char* name, const char* service, const ::addrinfo* hints,
                           ::addrinfo** found) {
  static const auto of_system =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool is_ours = name != nullptr && std::string_view{name}.ends_with(".test");
  if (is_ours && failing_lookups > 0) {
    --failing_lookups;
    return EAI_AGAIN;
  }
  return of_system(is_ours ? "127.0.0.1" : name, service, hints, found);
}

namespace {

const std::string content_of_faults = test::some_bytes(1000);

ps::http_options hasty(ps::http_options options = {}) {
  options.first_delay = milliseconds{1};
  options.max_delay = milliseconds{2};
  return options;
}

std::string range_of(const ps::http_store& store, std::uint64_t offset, std::size_t size) {
  return test::part_of(store, "x", offset, size);
}

// Returns the error that a read reports if the server gives this response to each request.
template <class E>
E fault_of(const test::range_server::handler& answers, std::uint64_t offset = 100,
           std::size_t size = 50, const ps::http_options& options = hasty()) {
  test::range_server server{answers};
  const ps::http_store store{server.url() + "/?key=s3cr3t", options};
  const E problem = error_of<E>([&] { (void)range_of(store, offset, size); });
  CHECK(problem.path() == server.url() + "/x");
  CHECK(problem.offset() == offset);
  CHECK(lacks(problem.what(), "s3cr3t"));
  return problem;
}

}  // namespace

TEST_CASE("requests with transient failures are retried",
          "[remote][promise:honest-10][fault:stores-5]") {
  const auto failing = GENERATE(0, 1, 2, 3, 4, 5, 6);
  CAPTURE(failing);
  test::range_server server{[&](const http_request& request) {
    const auto whole = test::ranged(request, content_of_faults);
    if (request.number >= 2) return whole;
    const std::size_t head = whole.bytes.find("\r\n\r\n") + 4;
    switch (failing) {
      case 0:
        return test::answer(503, {"Retry-After: 0"}, "busy");
      case 1:
        return test::answer(429, {});
      case 2:
        return test::http_reply{{}, true};  // closed without a response
      case 3:
        return whole.cut(head);  // truncated before the body
      case 4:
        return whole.cut(head + 20);  // truncated within the body
      case 5:
        return whole.cut(10);  // truncated within the header
      default:
        return test::answer(206, {"Content-Range: bytes 100-149/1000"}, "a body that is short");
    }
  }};
  const ps::http_store store{server.url(), hasty()};
  CHECK(range_of(store, 100, 50) == content_of_faults.substr(100, 50));
  CHECK(server.requests().size() == 3);
  CHECK(store.stats().retries == 2);
}

TEST_CASE("a server that keeps failing is unreachable after all attempts",
          "[remote][fault:stores-5]") {
  const auto busy = fault_of<ps::store_unreachable>(
      [](const http_request&) { return test::answer(503, {"Retry-After: 86400"}); });
  CHECK(has(busy.found(), "HTTP 503"));
  CHECK(has(busy.found(), "attempt 5 of 5"));
  CHECK(busy.expected() == "bytes 100 to 150");
  (void)fault_of<ps::store_unreachable>(
      [](const http_request&) { return test::http_reply{{}, true}; });

  // The server at this address no longer exists.
  std::string url;
  {
    const test::range_server gone{[](const http_request&) { return test::http_reply{}; }};
    url = gone.url();
  }
  const ps::http_store store{url, hasty({.attempts = 2})};
  const auto rejected = error_of<ps::store_unreachable>([&] { (void)store.size_of("x"); });
  CHECK(has(rejected.found(), "attempt 2 of 2"));
}

TEST_CASE("a failed name lookup is retried", "[remote][fault:stores-5]") {
  const int failures = GENERATE(1, 2, 1000);
  const bool by_proxy = GENERATE(false, true);
  CAPTURE(failures, by_proxy);
  test::range_server server{content_of_faults};
  const std::string port = server.url().substr(server.url().rfind(':'));
  if (by_proxy) ::setenv("http_proxy", ("http://proxy.test" + port).c_str(), 1);
  const std::string url = by_proxy ? "http://behind.example" : "http://store.test" + port;
  const ps::http_store store{url, hasty({.attempts = 4})};
  const ps::s3_store bucket{"b",
                            {.endpoint = url, .anonymous = true, .http = hasty({.attempts = 4})}};
  if (failures < 4) {
    failing_lookups = failures;
    CHECK(range_of(store, 100, 50) == content_of_faults.substr(100, 50));
    CHECK(store.stats().retries == static_cast<std::uint64_t>(failures));
    failing_lookups = failures;
    CHECK(test::part_of(bucket, "x", 7, 9) == content_of_faults.substr(7, 9));
  } else {
    failing_lookups = failures;
    const auto never = error_of<ps::store_unreachable>([&] { (void)range_of(store, 0, 5); });
    CHECK(has(never.found(), "resolve"));
    CHECK(has(never.found(), "attempt 4 of 4"));
    (void)error_of<ps::store_unreachable>([&] { (void)bucket.size_of("x"); });
    failing_lookups = 0;
    CHECK(range_of(store, 0, 5) == content_of_faults.substr(0, 5));
  }
  ::unsetenv("http_proxy");
}

TEST_CASE("at the deadline the error reports the number of attempts and their failure",
          "[remote][fault:stores-5]") {
  test::range_server server{
      [](const http_request&) { return test::answer(503, {"Retry-After: 3600"}); }};
  // The deadline may pass before the first response on a slow machine, so the limit grows.
  for (auto limit = milliseconds{100};; limit *= 10) {
    const ps::http_store store{server.url(),
                               {.max_delay = std::chrono::minutes{10}, .deadline = limit}};
    const auto late = error_of<ps::store_unreachable>([&] { (void)range_of(store, 100, 50); });
    CHECK(has(late.expected(), "deadline of " + std::to_string(limit.count()) + " ms"));
    CHECK(late.path() == server.url() + "/x");
    CHECK(late.offset() == 100);
    if (has(late.found(), "HTTP 503, attempt 1 of 5")) break;
    REQUIRE(limit < std::chrono::seconds{10});
  }
}

TEST_CASE("only the needed part of an error body is read", "[remote][fault:stores-5]") {
  const auto endless = std::size_t{64} << 20U;
  test::range_server server{[&](const http_request& request) {
    if (request.number > 0) return test::ranged(request, content_of_faults);
    return test::answer(503, {}, std::string(endless, '!'));
  }};
  const ps::http_store store{server.url(), hasty()};
  CHECK(range_of(store, 100, 50) == content_of_faults.substr(100, 50));
  CHECK(store.stats().retries == 1);
  CHECK(store.stats().bytes < endless / 2);
}

TEST_CASE("a store without a free descriptor fails at once", "[remote][fault:stores-5]") {
  // Opens the descriptors that libcurl keeps permanently.
  const ps::http_store first{"http://127.0.0.1:1"};
  const auto problem = [&] {
    const test::descriptor_limit none{0};
    return error_of<std::system_error>([&] { const ps::http_store store{"http://127.0.0.1:1"}; });
  }();
  CHECK(has(problem.what(), "ulimit -n"));
}

TEST_CASE("missing and rejected objects are distinguished without retries",
          "[remote][fault:stores-6]") {
  std::atomic<int> requested{0};
  const auto always = [&](int status) {
    return [&requested, status](const http_request&) {
      ++requested;
      return test::answer(status, {}, "<html>no</html>");
    };
  };
  CHECK(has(fault_of<ps::object_missing>(always(404)).found(), "404"));
  CHECK(has(fault_of<ps::object_missing>(always(410)).found(), "410"));
  CHECK(has(fault_of<ps::access_denied>(always(401)).found(), "credentials"));
  CHECK(has(fault_of<ps::access_denied>(always(403)).found(), "403"));
  CHECK(has(fault_of<ps::bad_response>(always(204)).found(), "204"));
  CHECK(has(fault_of<ps::bad_response>(always(505)).found(), "505"));
  CHECK(requested.load() == 6);
}

TEST_CASE("an answer with another range is rejected",
          "[remote][promise:honest-10][fault:stores-7]") {
  const auto with = [](const std::string& line, std::size_t size) {
    return [line, size](const http_request&) {
      return test::answer(206, {line}, content_of_faults.substr(0, size));
    };
  };
  for (const char* const line :
       {"Content-Range: bytes 101-150/1000", "Content-Range: bytes 100-148/1000",
        "Content-Range: bytes 0-49/1000", "Content-Range: bytes 100-150/1000",
        "Content-Range: bytes", "Content-Range: bytes */1000", "X-Nothing: 0"}) {
    CAPTURE(line);
    (void)fault_of<ps::bad_response>(with(line, 50));
  }
  const auto two = fault_of<ps::bad_response>([](const http_request&) {
    return test::answer(206,
                        {"Content-Range: bytes 0-49/1000", "Content-Range: bytes 100-149/1000"},
                        content_of_faults.substr(0, 50));
  });
  CHECK(two.expected() == "one Content-Range");
  // The object is shorter than the requested range.
  const auto shorter = fault_of<ps::file_truncated>(with("Content-Range: bytes 100-119/120", 20));
  CHECK(has(shorter.found(), "120 bytes"));
  const auto beyond = fault_of<ps::file_truncated>(
      [](const http_request& request) { return test::ranged(request, "short"); });
  CHECK(has(beyond.found(), "5 bytes"));
}

TEST_CASE("a whole object is accepted for a range only if they are equal",
          "[remote][fault:stores-7]") {
  const auto whole = [](const http_request&) { return test::answer(200, {}, content_of_faults); };
  const auto endless = [](const http_request&) {
    return test::http_reply{"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + content_of_faults,
                            true};
  };
  test::range_server server{whole};
  CHECK(range_of(ps::http_store{server.url()}, 0, 1000) == content_of_faults);
  test::range_server without_length{endless};
  CHECK(range_of(ps::http_store{without_length.url()}, 0, 1000) == content_of_faults);

  CHECK(has(fault_of<ps::bad_response>(whole).found(), "does not support range requests"));
  CHECK(has(fault_of<ps::bad_response>(whole, 0, 999).found(), "does not support range requests"));
  CHECK(has(fault_of<ps::file_truncated>(whole, 0, 1001).found(), "1000 bytes"));
  CHECK(has(fault_of<ps::bad_response>(endless, 0, 999).found(), "continues"));
}

TEST_CASE(
    "a chunked body that ends early is truncated, and a connection that ends early is "
    "retried",
    "[remote][fault:stores-7]") {
  std::atomic<int> requested{0};
  const auto chunks = [&](const std::string& end) {
    return [&requested, end](const http_request&) {
      ++requested;
      return test::http_reply{
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nshort\r\n" + end, true};
    };
  };
  CHECK(has(fault_of<ps::file_truncated>(chunks("0\r\n\r\n"), 0, 9).found(), "of 5 bytes"));
  CHECK(requested.load() == 1);
  (void)fault_of<ps::store_unreachable>(chunks("4\r\nx"), 0, 9);
  (void)fault_of<ps::store_unreachable>(
      [](const http_request&) { return test::http_reply{"HTTP/1.1 200 OK\r\n\r\nshort", true}; }, 0,
      9);
}

TEST_CASE("a body with a wrong checksum is requested again", "[remote][fault:stores-8]") {
  std::string content = "123456789";
  const std::string right = "y/Q5Jg==";
  // Returns a server that announces the checksum of the object and damages the first `damaged`
  // bodies.
  const auto server_of = [&](std::size_t damaged) {
    return [&, damaged](const http_request& request) {
      const std::string sent = request.number < damaged ? "123455789" : content;
      auto reply = test::ranged(request, sent);
      reply.bytes.insert(reply.bytes.find("ETag"), "x-amz-checksum-crc32: " + right + "\r\n");
      return reply;
    };
  };
  {
    test::range_server server{server_of(2)};
    const ps::http_store store{server.url(), hasty()};
    CHECK(range_of(store, 0, 9) == content);
    CHECK(store.stats().retries == 2);
    CHECK(range_of(store, 3, 4) == "4567");  // the response for a range has no checksum
  }
  {  // the second response has no checksum, so the checksum of the first response is discarded
    test::range_server server{[&](const http_request& request) {
      return request.number == 0 ? server_of(1)(request) : test::ranged(request, "123456788");
    }};
    CHECK(range_of(ps::http_store{server.url(), hasty()}, 0, 9) == "123456788");
  }
  const auto problem = fault_of<ps::store_unreachable>(server_of(100), 0, 9);
  CHECK(has(problem.found(), "crc32"));
  CHECK(has(problem.found(), "attempt 5 of 5"));
  test::range_server server{server_of(100)};
  CHECK(range_of(ps::http_store{server.url(), hasty({.verify_checksums = false})}, 0, 9) ==
        "123455789");
}

TEST_CASE("aborted attempts are counted and leave no request in flight",
          "[remote][fault:stores-5]") {
  test::gate end;
  test::range_server server{[&](const http_request&) {
    end.wait();
    return test::http_reply{{}, true};
  }};
  {
    const ps::http_store store{server.url(),
                               hasty({.attempts = 2, .silence_timeout = milliseconds{50}})};
    (void)error_of<ps::store_unreachable>([&] { (void)range_of(store, 3, 5); });
    CHECK(store.stats().in_flight == 0);
    CHECK(store.stats().connections == 2);
    CHECK(store.stats().requests == 2);
  }
  end.open();
}

TEST_CASE("an object that changes between two answers is detected",
          "[remote][promise:honest-10][fault:stores-8]") {
  std::atomic<int> version{1};
  std::string changing = content_of_faults;
  test::range_server server{[&](const http_request& request) {
    return test::ranged(request, changing, '"' + std::to_string(version.load()) + '"');
  }};
  const ps::http_store store{server.url()};
  const ps::http_store tolerant{server.url(), {.check_etag = false}};
  CHECK(range_of(store, 0, 10) == changing.substr(0, 10));
  CHECK(tolerant.size_of("x") == 1000);
  version = 2;
  const auto problem = error_of<ps::object_changed>([&] { (void)range_of(store, 0, 10); });
  CHECK(has(problem.expected(), "ETag"));
  CHECK(has(problem.found(), "new store"));
  (void)error_of<ps::object_changed>([&] { (void)store.size_of("x"); });
  CHECK(range_of(tolerant, 0, 10) == changing.substr(0, 10));
  CHECK(range_of(ps::http_store{server.url()}, 0, 10) == changing.substr(0, 10));

  changing += "more";
  const auto longer = error_of<ps::object_changed>([&] { (void)range_of(tolerant, 0, 10); });
  CHECK(has(longer.expected(), "1000 bytes"));
  CHECK(has(longer.found(), "1004 bytes"));
}

TEST_CASE("an object without a strong ETag that changes between two ranges is detected",
          "[remote][fault:stores-8]") {
  const std::string old_date = "Tue, 24 Nov 2026 10:00:00 GMT";
  const std::string new_date = "Tue, 24 Nov 2026 10:00:01 GMT";
  using lines = std::vector<std::string>;
  struct change {
    lines before;
    lines after;
    std::string named_before;  // empty if no change is detected
    std::string named_after = {};
  };
  const std::string dated = "Last-Modified: ";
  const change one = GENERATE_COPY(
      change{{dated + old_date}, {dated + new_date}, old_date, new_date},
      change{{dated + new_date}, {dated + old_date}, new_date, old_date},  // an older copy was
                                                                           // restored
      change{{"ETag: W/\"a\""}, {"ETag: W/\"b\""}, "W/\"a\"", "W/\"b\""},
      change{{"ETag: W/\"a\"", dated + old_date},
             {"ETag: W/\"a\"", dated + new_date},
             old_date,
             new_date},
      // A weak ETag becomes strong. Apache's ETags do this after one second.
      change{{"ETag: W/\"a\"", dated + old_date}, {"ETag: \"a\"", dated + old_date}, ""},
      // Two servers report different times for the same object.
      change{{"ETag: \"a\"", dated + old_date}, {"ETag: \"a\"", dated + new_date}, ""},
      // A header line disappears or appears between two requests.
      change{{dated + old_date}, {}, old_date, "1000 bytes: "},
      change{{}, {dated + new_date}, "1000 bytes, as", new_date},
      change{{"ETag: \"a\""}, {}, "\"a\"", "1000 bytes: "},
      change{{"ETag: \"a\"", dated + old_date}, {dated + old_date}, "\"a\"", old_date},
      change{{}, {"ETag: \"a\""}, "1000 bytes, as", "\"a\""});
  CAPTURE(one.before, one.after);
  std::string content = content_of_faults;
  test::range_server server{[&](const http_request& request) {
    return test::ranged(request, content, request.number == 0 ? one.before : one.after);
  }};
  const ps::http_store store{server.url()};
  CHECK(range_of(store, 0, 10) == content.substr(0, 10));
  if (one.named_before.empty()) {
    CHECK(range_of(store, 500, 10) == content.substr(500, 10));
    return;
  }
  const auto problem = error_of<ps::object_changed>([&] { (void)range_of(store, 500, 10); });
  CHECK(has(problem.expected(), one.named_before));
  CHECK(has(problem.found(), one.named_after));
  CHECK(has(problem.found(), "new store"));
  CHECK(problem.offset() == 500);
}

TEST_CASE("an answer to HEAD may omit headers of an answer to GET", "[remote][fault:stores-8]") {
  const auto omitting = GENERATE(as<std::string>{}, "HEAD", "GET");
  test::range_server server{[&](const http_request& request) {
    using lines = std::vector<std::string>;
    return test::ranged(request, content_of_faults,
                        request.method == omitting ? lines{} : lines{"ETag: \"a\""});
  }};
  const ps::http_store store{server.url()};
  CHECK(store.size_of("x") == 1000);
  if (omitting == "GET") {
    (void)error_of<ps::object_changed>([&] { (void)range_of(store, 0, 10); });
    return;
  }
  CHECK(range_of(store, 0, 10) == content_of_faults.substr(0, 10));
  CHECK(store.size_of("x") == 1000);
  CHECK(range_of(store, 90, 10) == content_of_faults.substr(90, 10));
}

TEST_CASE("a range with only its first bytes is continued", "[remote][fault:stores-7]") {
  const std::size_t max = GENERATE(1U, 7U, 49U);
  test::range_server server{[&](const http_request& request) {
    const auto [begin, end] = request.range(1000);
    if (request.number == 1) return test::answer(503, {});
    const std::string part = content_of_faults.substr(begin, (std::min)(max, end - begin));
    return test::answer(206,
                        {"ETag: \"a\"", "Content-Range: bytes " + std::to_string(begin) + '-' +
                                            std::to_string(begin + part.size() - 1) + "/1000"},
                        part);
  }};
  const ps::http_store store{server.url(), hasty({.attempts = 2})};
  CHECK(range_of(store, 100, 50) == content_of_faults.substr(100, 50));
  CHECK(server.requests().size() == 1 + (50 + max - 1) / max);
  CHECK(server.requests().back().lines.at("range").ends_with("-149"));
  CHECK(store.stats().ranges == 1);
  CHECK(store.stats().retries == 1);
}

TEST_CASE("the sizes of an object in two answers are compared", "[remote][fault:stores-7]") {
  const auto requested = [](const std::string& head, const test::range_server::handler& get) {
    test::range_server server{[&](const http_request& request) {
      if (request.method != "HEAD") return get(request);
      return test::http_reply{"HTTP/1.1 200 Test\r\n" + head + "\r\n"};
    }};
    return ps::http_store{server.url()}.size_of("x");
  };
  const auto whole = [](const http_request& request) {
    return test::ranged(request, content_of_faults);
  };
  const std::string zero = "Content-Length: 0\r\n";
  const auto none = error_of<ps::bad_response>([&] { (void)requested(zero, whole); });
  CHECK(has(none.found(), "0 bytes by HEAD and 1000 bytes by GET"));
  CHECK(requested("", whole) == 1000);
  CHECK(requested(zero, [](const auto&) { return test::answer(416, {}); }) == 0);
  CHECK(requested(zero, [](const auto&) { return test::answer(200, {}); }) == 0);
  CHECK(requested(zero, [](const auto&) {
          return test::answer(416, {"Content-Range: bytes */0"});
        }) == 0);
  const auto twice = error_of<ps::bad_response>(
      [&] { (void)requested("Content-Length: 999\r\nContent-Length: 1000\r\n", whole); });
  CHECK(has(twice.expected(), "one Content-Length"));
  CHECK(requested("Content-Length: 1000\r\nContent-Length: 1000\r\n", whole) == 1000);
}

TEST_CASE("sums of an object that was unpacked on the way are not compared",
          "[remote][fault:stores-8]") {
  const auto [lines, is_sound] = GENERATE(table<std::vector<std::string>, bool>(
      {{{"x-goog-stored-content-encoding: GZIP"}, true},
       {{"Warning: 214 UploadServer gunzipped"}, true},
       {{"x-goog-stored-content-encoding: Identity", "Content-Encoding: gzip"}, true},
       {{"x-goog-stored-content-encoding: gzip", "Content-Encoding: GZip"}, false},
       {{"x-goog-stored-content-encoding: identity"}, false},
       {{"x-goog-stored-content-encoding: gzip", "Content-Digest: sha-256=:AAAA:"}, false}}));
  CAPTURE(lines, is_sound);
  test::range_server server{[&, all = lines](const http_request&) {
    auto said = all;
    said.emplace_back("X-Goog-Hash: CRC32C=AAAAAA==,md5=AAAA");
    return test::answer(200, said, content_of_faults);
  }};
  const ps::http_store store{server.url(), hasty({.attempts = 2})};
  if (is_sound) {
    CHECK(range_of(store, 0, 1000) == content_of_faults);
  } else {
    (void)error_of<ps::store_unreachable>([&] { (void)range_of(store, 0, 1000); });
  }
  const auto part = error_of<ps::bad_response>([&] { (void)range_of(store, 0, 10); });
  CHECK(has(part.found(), is_sound ? "decompressed in transit" : "whole object"));
}

TEST_CASE("a server that supports If-Unmodified-Since sends nothing of a changed object",
          "[remote]") {
  const std::string old_date = "Tue, 24 Nov 2026 10:00:00 GMT";
  const std::string new_date = "Tue, 24 Nov 2026 10:00:01 GMT";
  std::atomic<bool> has_changed{false};
  test::range_server server{[&](const http_request& request) {
    const auto condition = request.lines.find("if-unmodified-since");
    if (has_changed && condition != request.lines.end() && condition->second == old_date) {
      return test::answer(412, {"Last-Modified: " + new_date});
    }
    return test::ranged(request, content_of_faults,
                        std::vector<std::string>{"Last-Modified: " + old_date});
  }};
  const ps::http_store store{server.url()};
  const ps::http_store heedless{server.url(), {.check_modified = false}};
  CHECK(store.size_of("x") == 1000);
  CHECK(heedless.size_of("x") == 1000);
  CHECK(range_of(store, 0, 10) == content_of_faults.substr(0, 10));
  has_changed = true;
  const auto problem = error_of<ps::object_changed>([&] { (void)range_of(store, 0, 10); });
  CHECK(has(problem.expected(), old_date));
  CHECK(has(problem.found(), new_date));
  CHECK(range_of(heedless, 0, 10) == content_of_faults.substr(0, 10));
}

TEST_CASE("without a version the size is compared, and such reads are counted", "[remote]") {
  std::string content = content_of_faults;
  test::range_server server{[&](const http_request& request) {
    return test::ranged(request, content, std::vector<std::string>{});
  }};
  const ps::http_store store{server.url()};
  CHECK(range_of(store, 0, 1000) == content);
  // a single request reads the whole object, so only one version is possible.
  CHECK(store.stats().unversioned == 0);
  CHECK(range_of(store, 0, 10) == content.substr(0, 10));
  CHECK(range_of(store, 900, 100) == content.substr(900));
  CHECK(store.stats().unversioned == 2);
  content.pop_back();
  const auto shorter = error_of<ps::object_changed>([&] { (void)range_of(store, 0, 10); });
  CHECK(has(shorter.expected(), "1000 bytes"));
  CHECK(has(shorter.found(), "999 bytes"));
  // An object that has become too short for a range has changed as well.
  (void)error_of<ps::object_changed>([&] { (void)range_of(store, 900, 100); });
  (void)error_of<ps::object_changed>([&] { (void)range_of(store, 999, 1); });
}

TEST_CASE("the parts of a split range are of one version of the object",
          "[remote][fault:stores-8]") {
  test::range_server server{[](const http_request& request) {
    const bool is_second = request.range(1000).first == 100;
    return test::ranged(request, content_of_faults, is_second ? "\"b\"" : "\"a\"");
  }};
  const ps::http_store store{server.url(), {.max_request_bytes = 100}};
  (void)error_of<ps::object_changed>([&] { (void)range_of(store, 0, 200); });
}

TEST_CASE("a cache keeps no block of a replaced object",
          "[remote][promise:honest-10][fault:stores-8]") {
  std::atomic<int> version{1};
  test::range_server server{[&](const http_request& request) {
    return test::ranged(request, content_of_faults, '"' + std::to_string(version.load()) + '"');
  }};
  const ps::http_store store{server.url()};
  const ps::cached_store kept{store, {.block_bytes = 100}};
  const auto first_of = [&](std::string_view object, std::uint64_t offset) {
    return test::part_of(kept, object, offset, 10);
  };
  CHECK(first_of("x", 0) == content_of_faults.substr(0, 10));
  // Finds object names whose hashes end with the same bits as the hash of this object.
  const auto last_bits = [](std::string_view name) {
    return std::hash<std::string_view>{}(name) % (1U << 14U);
  };
  for (int i = 0; i < 100'000; ++i) {
    const std::string other = "y" + std::to_string(i);
    if (last_bits(other) == last_bits("x")) (void)first_of(other, 0);
  }
  CHECK(server.requests().size() > 2);
  version = 2;
  (void)error_of<ps::object_changed>([&] { (void)first_of("x", 100); });
  CHECK(first_of("x", 0) == content_of_faults.substr(0, 10));
}

TEST_CASE("a size that HEAD does not report is found by requesting the first byte",
          "[remote][promise:honest-10]") {
  const auto head = GENERATE(400, 403, 405, 501, 200);
  CAPTURE(head);
  const std::string bytes = head == 501 ? std::string{} : content_of_faults;
  test::range_server server{[&](const http_request& request) {
    if (request.method != "HEAD") return test::ranged(request, bytes);
    return test::http_reply{"HTTP/1.1 " + std::to_string(head) + " Test\r\n\r\n"};
  }};
  const ps::http_store store{server.url()};
  CHECK(store.size_of("x") == bytes.size());
  CHECK(server.requests().back().lines.at("range") == "bytes=0-0");

  test::range_server vague{[&](const http_request& request) {
    if (request.method == "HEAD") return test::answer(405, {}, {}, "HEAD");
    return test::answer(206, {"Content-Range: bytes 0-0/*"}, "0");
  }};
  const ps::http_store other{vague.url()};
  (void)error_of<ps::bad_response>([&] { (void)other.size_of("x"); });
}

TEST_CASE("redirects are followed up to the limit", "[remote][fault:stores-7]") {
  test::range_server server{[&](const http_request& request) {
    if (request.path == "/there") return test::ranged(request, content_of_faults);
    return test::answer(302, {request.path == "/x" ? "Location: /there" : "Location: /again"});
  }};
  CHECK(range_of(ps::http_store{server.url()}, 7, 9) == content_of_faults.substr(7, 9));
  CHECK(server.requests().size() == 2);
  const ps::http_store circle{server.url() + "/deep", hasty({.max_redirects = 3})};
  const auto endless = error_of<ps::bad_response>([&] { (void)circle.size_of("y"); });
  CHECK(has(endless.found(), "redirects"));
  CHECK(server.requests().size() == 6);
  const ps::http_store none{server.url(), hasty({.max_redirects = 0})};
  (void)error_of<ps::bad_response>([&] { (void)range_of(none, 7, 9); });
  CHECK(server.requests().size() == 7);
}

TEST_CASE("a redirect leads to no other protocol than HTTP", "[remote][fault:stores-7]") {
  test::range_server server{
      [&](const http_request&) { return test::answer(302, {"Location: ftp://127.0.0.1:1/x"}); }};
  const ps::http_store store{server.url(), hasty()};
  (void)error_of<ps::bad_response>([&] { (void)range_of(store, 0, 5); });
}

TEST_CASE("a silent server costs an attempt", "[remote][fault:stores-5]") {
  test::gate end;
  test::range_server server{[&](const http_request& request) {
    auto reply = test::ranged(request, content_of_faults);
    if (request.number == 0) end.wait();
    return reply;
  }};
  {
    const ps::http_store store{server.url(),
                               hasty({.attempts = 100, .silence_timeout = milliseconds{50}})};
    CHECK(range_of(store, 3, 5) == content_of_faults.substr(3, 5));
    CHECK(store.stats().retries >= 1);
  }
  end.open();
}

TEST_CASE("a call ends at its deadline and no longer uses the caller's memory",
          "[remote][fault:stores-5]") {
  test::gate late;
  test::range_server server{[&](const http_request& request) {
    if (request.number == 0) late.wait();
    return test::ranged(request, content_of_faults);
  }};
  const ps::http_store store{server.url(), hasty({.deadline = milliseconds{50}})};
  std::string out(100, '?');
  const auto problem = error_of<ps::store_unreachable>(
      [&] { store.read({"x", 3, std::as_writable_bytes(std::span{out})}); });
  CHECK(has(problem.expected(), "deadline of 50 ms"));
  late.open();
  const ps::http_store patient{server.url()};
  CHECK(range_of(patient, 3, 5) == content_of_faults.substr(3, 5));
  CHECK(out == std::string(100, '?'));
}

TEST_CASE("the first range that fails ends the call, and not the store",
          "[remote][fault:stores-6]") {
  test::gate end;
  test::gate both_here;
  std::atomic<int> here{0};
  test::range_server server{[&](const http_request& request) {
    if (request.path == "/missing") return test::answer(404, {});
    if (request.path == "/held") end.wait();
    if (request.path == "/x") {
      if (++here == 2) both_here.open();
      both_here.wait();
    }
    return test::ranged(request, content_of_faults);
  }};
  {
    const ps::http_store store{
        server.url(), {.max_in_flight = 2, .merge_gap = 0, .deadline = milliseconds{20'000}}};
    std::string out(300, '?');
    const auto room = std::as_writable_bytes(std::span{out});
    const std::vector<ps::byte_range> ranges{{"held", 0, room.first(100)},
                                             {"missing", 0, room.subspan(100, 100)},
                                             {"other", 0, room.last(100)}};
    (void)error_of<ps::object_missing>([&] { store.read_many(ranges); });
    CHECK(out.substr(0, 100) == std::string(100, '?'));
    // The abandoned request for "held" no longer counts against the limit. The next two requests,
    // which wait for each other, are therefore both in flight.
    const std::vector<ps::byte_range> two{{"x", 0, room.first(100)}, {"x", 500, room.last(100)}};
    store.read_many(two);
    CHECK(out.substr(200) == content_of_faults.substr(500, 100));
  }
  end.open();
}

TEST_CASE("a store ends while its server is silent", "[remote][fault:stores-5]") {
  test::gate end;
  test::range_server server{[&](const http_request& request) {
    end.wait();
    return test::ranged(request, content_of_faults);
  }};
  {
    const ps::http_store store{server.url(), hasty({.deadline = milliseconds{20}})};
    (void)error_of<ps::store_unreachable>([&] { (void)store.size_of("x"); });
  }
  end.open();
}

// Hidden, because the test needs the server that tls.py starts.
TEST_CASE("certificates are checked, and no redirect leads out of TLS", "[.][tls]") {
  const char* const port = std::getenv("PENSTOCK_TLS_PORT");
  const char* const certificate = std::getenv("PENSTOCK_TLS_CA");
  REQUIRE((port != nullptr && certificate != nullptr));
  const std::string url = std::string{"https://127.0.0.1:"} + port;
  const ps::http_store trusting{url, hasty({.attempts = 1, .ca_file = certificate})};
  CHECK(trusting.size_of("x") == 10);
  (void)error_of<ps::bad_response>([&] { (void)trusting.size_of("down"); });
  const ps::http_store usual{url, hasty({.attempts = 1})};
  const auto unknown = error_of<ps::store_unreachable>([&] { (void)usual.size_of("x"); });
  CHECK(has(unknown.found(), "ca_file"));
  const ps::http_store other_name{std::string{"https://localhost:"} + port,
                                  hasty({.attempts = 1, .ca_file = certificate})};
  const auto foreign = error_of<ps::store_unreachable>([&] { (void)other_name.size_of("x"); });
  CHECK(has(foreign.found(), "for another host"));
  CHECK(lacks(foreign.found(), "ca_file"));
}
