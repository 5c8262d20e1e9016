// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/http_store.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ext/remote/range_server.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/in_child.hpp"

namespace ps = penstock;
using test::http_request;

namespace {

// Reads ranges of an object into contiguous memory and returns it.
std::string bytes_at(const ps::http_store& store, const std::string& object,
                     const std::vector<std::pair<std::uint64_t, std::size_t>>& places) {
  std::size_t size = 0;
  for (const auto& place : places) size += place.second;
  std::string out(size, '?');
  std::vector<ps::byte_range> ranges;
  size = 0;
  for (const auto& [offset, count] : places) {
    ranges.push_back({object, offset, std::as_writable_bytes(std::span{out}.subspan(size, count))});
    size += count;
  }
  store.read_many(ranges);
  return out;
}

// Returns the options with short retry delays.
ps::http_options quick(ps::http_options options = {}) {
  options.first_delay = std::chrono::milliseconds{1};
  options.max_delay = std::chrono::milliseconds{2};
  return options;
}

}  // namespace

TEST_CASE("a range of an object is read over HTTP", "[remote][promise:honest-10]") {
  const std::string content = test::some_bytes(100'000);
  test::range_server server{content};
  const ps::http_store store{server.url() + "/data/"};
  CHECK(store.size_of("x.bin") == content.size());
  CHECK(bytes_at(store, "x.bin", {{0, 10}}) == content.substr(0, 10));
  CHECK(bytes_at(store, "x.bin", {{99'990, 10}}) == content.substr(99'990));
  CHECK(bytes_at(store, "x.bin", {{0, content.size()}}) == content);
  CHECK(bytes_at(store, "x.bin", {{5, 0}}).empty());
  const auto requests = server.requests();
  REQUIRE(requests.size() == 4);
  CHECK(requests[0].method == "HEAD");
  CHECK(requests[1].path == "/data/x.bin");
  CHECK(requests[1].lines.at("range") == "bytes=0-9");
  const ps::http_stats stats = store.stats();
  CHECK(stats.requests == 4);
  CHECK(stats.retries == 0);
  CHECK(stats.ranges == 3);
  CHECK(stats.bytes == 100'020);
  CHECK(stats.connections == 1);  // the connection stayed open
  CHECK(stats.in_flight == 0);
  CHECK(stats.max_in_flight == 1);
  CHECK(stats.first_byte.count() == 4);
}

TEST_CASE("neighboring ranges are merged into one request, and distant or long ones are not",
          "[remote][promise:honest-10]") {
  const std::string content = test::some_bytes(5000);
  test::range_server server{content};
  const ps::http_store store{server.url(), {.merge_gap = 100, .max_request_bytes = 1000}};
  // Unsorted ranges with gaps and overlaps are merged into one request.
  const std::string near = bytes_at(store, "x", {{350, 50}, {0, 100}, {150, 100}, {20, 10}});
  CHECK(near == content.substr(350, 50) + content.substr(0, 100) + content.substr(150, 100) +
                    content.substr(20, 10));
  REQUIRE(server.requests().size() == 1);
  CHECK(server.requests()[0].lines.at("range") == "bytes=0-399");
  CHECK(store.stats().merged == 3);

  CHECK(bytes_at(store, "x", {{0, 10}, {111, 10}}) ==
        content.substr(0, 10) + content.substr(111, 10));
  CHECK(server.requests().size() == 3);
  CHECK(store.stats().ranges == 6);
  CHECK(bytes_at(store, "x", {{100, 2500}}) == content.substr(100, 2500));
  CHECK(server.requests().size() == 6);
  CHECK(store.stats().ranges == 7);
  CHECK(store.stats().merged == 3);
}

TEST_CASE("all requests of a batch are in flight at once", "[remote][promise:honest-10]") {
  const std::string content = test::some_bytes(64);
  test::gate all_here;
  test::range_server server{[&](const http_request& request) {
    all_here.wait();
    return test::ranged(request, content);
  }};
  const ps::http_store store{server.url()};
  std::string out(24 * 16, '?');
  std::vector<std::string> names;
  for (int i = 0; i < 24; ++i) names.push_back("object" + std::to_string(i));
  std::vector<ps::byte_range> ranges;
  for (std::size_t i = 0; i < names.size(); ++i) {
    ranges.push_back({names[i], i, std::as_writable_bytes(std::span{out}.subspan(16 * i, 16))});
  }
  std::thread caller{[&] { store.read_many(ranges); }};
  server.wait_for(24);  // the server has not answered any request yet
  all_here.open();
  caller.join();
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(out.substr(16 * i, 16) == content.substr(i, 16));
  }
  CHECK(server.requests().size() == 24);  // one round trip in addition to connecting
  CHECK(store.stats().max_in_flight == 24);
}

TEST_CASE("at most max_in_flight requests are in flight", "[remote][promise:honest-10]") {
  const std::string content = test::some_bytes(4096);
  std::atomic<int> here{0};
  std::atomic<int> max{0};
  test::range_server server{[&](const http_request& request) {
    const int now = ++here;
    for (int seen = max.load(); now > seen && !max.compare_exchange_weak(seen, now);) continue;
    auto reply = test::ranged(request, content);
    --here;
    return reply;
  }};
  const ps::http_store store{server.url(),
                             {.max_in_flight = 3, .merge_gap = 0, .max_request_bytes = 64}};
  CHECK(bytes_at(store, "x", {{0, content.size()}}) == content);
  CHECK(server.requests().size() == 64);
  CHECK(max.load() <= 3);
  CHECK(store.stats().max_in_flight == 3);
  CHECK(store.stats().connections <= 3);
}

TEST_CASE("several threads read from one store, whose server fails now and then",
          "[remote][promise:honest-10]") {
  const std::string content = test::some_bytes(50'000);
  test::range_server server{[&](const http_request& request) {
    if (request.number % 7 == 3) return test::answer(503, {});
    if (request.number % 11 == 5) return test::ranged(request, content).cut(150);
    return test::ranged(request, content);
  }};
  const ps::http_store store{server.url(), quick({.merge_gap = 0, .attempts = 50})};
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (std::size_t t = 0; t < 6; ++t) {
    callers.emplace_back([&, t] {
      for (std::size_t i = 0; i < 10; ++i) {
        const std::size_t a = 100 * t + i;
        const std::size_t b = 40'000 - 1000 * i;
        const std::string out = bytes_at(store, "x", {{b, 700}, {a, 300}});
        if (out != content.substr(b, 700) + content.substr(a, 300)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong.load() == 0);
  CHECK(store.stats().requests == server.requests().size());
}

TEST_CASE("names are percent-encoded and cannot leave the store", "[remote][fault:stores-6]") {
  test::range_server server{"0123456789"};
  const ps::http_store store{server.url() + "/a%20b?key=s3cr3t", {.headers = {"X-Key: t0ken"}}};
  CHECK(bytes_at(store, "d\xc3\xa4/x y+%41?.bin", {{2, 3}}) == "234");
  const auto requests = server.requests();
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].path == "/a%20b/d%C3%A4/x%20y%2B%2541%3F.bin?key=s3cr3t");
  CHECK(requests[0].lines.at("x-key") == "t0ken");
  for (const char* const name : {"", "/etc/passwd", "..", "a/../b", "a/..", "./a", "a/."}) {
    CAPTURE(name);
    const auto problem = test::error_of<ps::file_unreadable>([&] { (void)store.size_of(name); });
    CHECK(test::lacks(problem.what(), "s3cr3t"));
  }
  CHECK(server.requests().size() == 1);
  const ps::http_store loud{"HTTP" + server.url().substr(4)};
  CHECK(loud.size_of("x") == 10);
  CHECK(loud.root() == server.url());
}

TEST_CASE("an invalid URL or option is rejected by name", "[remote][fault:stores-6]") {
  const auto option_of = [](const std::string& url, const ps::http_options& options) {
    const auto problem =
        test::error_of<ps::option_error>([&] { const ps::http_store store(url, options); });
    CHECK(test::lacks(problem.what(), "s3cr3t"));
    return problem.option();
  };
  for (const char* const url :
       {"", "ftp://h/x", "http://", "http:///x", "https://:80/", "h/x", "http://me:s3cr3t@h/",
        "http://h/#x", "http://h/a b", "http://h\\x", "http://h/\n"}) {
    CAPTURE(url);
    CHECK(option_of(url, {}) == "base_url");
  }
  using std::chrono::milliseconds;
  CHECK(option_of("http://h", {.max_in_flight = 0}) == "max_in_flight");
  CHECK(option_of("http://h", {.max_request_bytes = 0}) == "max_request_bytes");
  CHECK(option_of("http://h", {.attempts = 0}) == "attempts");
  CHECK(option_of("http://h", {.first_delay = milliseconds{0}}) == "first_delay");
  CHECK(option_of("http://h", {.max_delay = milliseconds{-1}}) == "max_delay");
  CHECK(option_of("http://h", {.connect_timeout = milliseconds{0}}) == "connect_timeout");
  CHECK(option_of("http://h", {.silence_timeout = milliseconds{0}}) == "silence_timeout");
  CHECK(option_of("http://h", {.deadline = milliseconds{0}}) == "deadline");
  CHECK(option_of("http://h", {.max_redirects = 51}) == "max_redirects");
  CHECK(option_of("http://h", {.headers = {"A: s3cr3t\r\nB: c"}}) == "headers");
  CHECK(option_of("http://h", {.headers = {"s3cr3t"}}) == "headers");
}

TEST_CASE("in a forked child a store reports that its thread is missing",
          "[remote][promise:honest-11]") {
  test::range_server server{"0123456789"};
  ps::http_store store{server.url()};
  CHECK(store.size_of("x") == 10);
  const int end = test::in_child([&] {
    int code = 1;
    try {
      static_cast<void>(store.size_of("x"));
    } catch (const std::logic_error&) {
      code = 0;
    } catch (...) {
      code = 2;
    }
    {
      const ps::http_store gone = std::move(store);  // the destructor does not wait
    }
    return code;
  });
  CHECK(end == 0);
  CHECK(store.size_of("x") == 10);
}
