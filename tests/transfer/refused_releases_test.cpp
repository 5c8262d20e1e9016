// SPDX-License-Identifier: BSL-1.0
#include <penstock/transfer/detail/device_slots.hpp>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::refused_releases;

namespace {

std::exception_ptr error(const char* what) {
  return std::make_exception_ptr(std::runtime_error{what});
}

auto says(const char* what) { return Catch::Matchers::Message(what); }

}  // namespace

TEST_CASE("without a refusal nothing is thrown", "[transfer]") {
  refused_releases all;
  CHECK_FALSE(all.any());
  all.rethrow();
}

TEST_CASE("the first of several refusals is reported, once", "[transfer]") {
  refused_releases all;
  all.record(error("first"), false);
  all.record(error("second"), false);
  CHECK(all.any());
  CHECK_THROWS_MATCHES(all.rethrow(), std::runtime_error, says("first"));
  CHECK_FALSE(all.any());
  all.rethrow();
}

TEST_CASE("the refusal of a lost slot stays reported, whatever comes before and after it",
          "[transfer]") {
  refused_releases all;
  all.record(error("slot free"), false);
  all.record(error("slot lost"), true);
  all.record(error("slot free"), false);
  CHECK_THROWS_MATCHES(all.rethrow(), std::runtime_error, says("slot lost"));
  CHECK_THROWS_MATCHES(all.rethrow(), std::runtime_error, says("slot lost"));
  CHECK(all.any());
}

TEST_CASE("refusals may be recorded on other threads while the consumer checks",
          "[transfer][fault:devices-5]") {
  constexpr int threads = 3;
  constexpr int rounds = 2000;
  refused_releases all;
  std::atomic<int> running{threads};
  std::vector<std::thread> others;
  for (int i = 0; i < threads; ++i) {
    others.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) all.record(error("refused"), false);
      --running;
    });
  }
  int told = 0;
  const auto ask = [&] {
    try {
      all.rethrow();
    } catch (const std::runtime_error& refusal) {
      told += std::string_view{refusal.what()} == "refused" ? 1 : 0;
    }
  };
  while (running != 0) ask();
  for (auto& other : others) other.join();
  ask();
  CHECK(told >= 1);
  CHECK(told <= threads * rounds);
  CHECK_FALSE(all.any());
}
