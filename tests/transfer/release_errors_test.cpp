// SPDX-License-Identifier: BSL-1.0
#include <penstock/transfer/detail/device_slots.hpp>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::release_errors;

namespace {

std::exception_ptr error(const char* what) {
  return std::make_exception_ptr(std::runtime_error{what});
}

auto says(const char* what) { return Catch::Matchers::Message(what); }

}  // namespace

TEST_CASE("without a rejection nothing is thrown", "[transfer]") {
  release_errors all;
  CHECK_FALSE(all.any());
  all.rethrow();
}

TEST_CASE("the first of several rejections is reported, once", "[transfer]") {
  release_errors all;
  all.record(error("first"), false);
  all.record(error("second"), false);
  CHECK(all.any());
  CHECK_THROWS_MATCHES(all.rethrow(), std::runtime_error, says("first"));
  CHECK_FALSE(all.any());
  all.rethrow();
}

TEST_CASE("the rejection of a lost slot stays reported, whatever comes before and after it",
          "[transfer]") {
  release_errors all;
  all.record(error("slot free"), false);
  all.record(error("slot lost"), true);
  all.record(error("slot free"), false);
  CHECK_THROWS_MATCHES(all.rethrow(), std::runtime_error, says("slot lost"));
  CHECK_THROWS_MATCHES(all.rethrow(), std::runtime_error, says("slot lost"));
  CHECK(all.any());
}

TEST_CASE("rejections may be recorded on other threads while the consumer checks",
          "[transfer][fault:devices-5]") {
  constexpr int threads = 3;
  constexpr int rounds = 2000;
  release_errors all;
  std::atomic<int> running{threads};
  std::vector<std::thread> others;
  for (int i = 0; i < threads; ++i) {
    others.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) all.record(error("rejected"), false);
      --running;
    });
  }
  int reported = 0;
  const auto ask = [&] {
    try {
      all.rethrow();
    } catch (const std::runtime_error& rejection) {
      reported += std::string_view{rejection.what()} == "rejected" ? 1 : 0;
    }
  };
  while (running != 0) ask();
  for (auto& other : others) other.join();
  ask();
  CHECK(reported >= 1);
  CHECK(reported <= threads * rounds);
  CHECK_FALSE(all.any());
}
