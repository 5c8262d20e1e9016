// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/detail/http_call.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

struct called {
  std::string out = std::string(8, '?');
  ps::byte_range range{"x", 10, std::as_writable_bytes(std::span{out})};
  ps::detail::http_call call{
      ps::detail::plan_requests({&range, 1}, 0, 100, [](auto) { return std::string{}; })};

  bool deliver(const std::string& text, std::uint64_t position) {
    return call.deliver(call.plan().requests.front(), position, std::as_bytes(std::span{text}));
  }
};

}  // namespace

TEST_CASE("a finished call writes to no memory", "[remote][fault:stores-5]") {
  called given_up;
  CHECK(given_up.deliver("ab", 10));
  CHECK_FALSE(given_up.call.wait_until(std::chrono::steady_clock::now()));
  CHECK(given_up.call.was_over());
  CHECK_FALSE(given_up.deliver("cd", 12));
  CHECK(given_up.out == "ab??????");
  // No caller is left to receive the error.
  given_up.call.fail(std::make_exception_ptr(std::runtime_error{"late"}));
  given_up.call.finish_one();

  called late;
  late.call.record(std::make_exception_ptr(std::logic_error{"first"}));
  late.call.record(std::make_exception_ptr(std::runtime_error{"second"}));
  CHECK_FALSE(late.call.was_over());
  CHECK_THROWS_AS(late.call.wait_until(std::chrono::steady_clock::now()), std::runtime_error);

  called failed;
  failed.call.fail(std::make_exception_ptr(std::runtime_error{"first"}));
  failed.call.fail(std::make_exception_ptr(std::logic_error{"second"}));
  CHECK_FALSE(failed.deliver("ab", 10));
  CHECK_THROWS_AS(failed.call.wait_until(std::chrono::steady_clock::now()), std::runtime_error);
  CHECK(failed.out == "????????");

  called whole;
  whole.call.record(std::make_exception_ptr(std::runtime_error{"before"}));
  CHECK(whole.deliver("cdefgh", 12));
  CHECK(whole.deliver("ab", 10));
  whole.call.finish_one();
  CHECK(whole.call.wait_until(std::chrono::steady_clock::now()));
  CHECK(whole.out == "abcdefgh");
}
