// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/shared_value.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "support/catch.hpp"
#include "support/parking_atomics.hpp"

namespace ps = penstock;

namespace {

/// Two words that always have equal values.
struct pair {
  std::uint64_t first = 1;
  std::uint64_t second = 1;
  friend bool operator==(const pair&, const pair&) = default;
};

/// Atomics that can stop a thread inside a call and that count retries.
struct yielding_atomics : parking_atomics {
  static inline std::atomic<std::uint32_t> yields{0};
  static void yield() noexcept {
    ++yields;
    parking_atomics::yield();
  }
};

using shared_pair = ps::detail::shared_value<pair, yielding_atomics>;
constexpr pair one{1, 1};
constexpr pair two{2, 2};

}  // namespace

TEST_CASE("a shared value returns the value that was written last", "[load]") {
  ps::detail::shared_value<std::optional<std::uint32_t>> value;
  CHECK(value.load() == std::nullopt);
  value.store(7);
  CHECK(value.load() == 7U);
  value.store(std::nullopt);
  CHECK(value.load() == std::nullopt);
  CHECK(ps::detail::shared_value<pair>{two}.load() == two);
}

TEST_CASE("a reader that is overtaken by a writer gets a complete value", "[load]") {
  bool has_stopped = true;
  for (std::uint64_t step = 1; has_stopped; ++step) {
    INFO("before step " << step);
    shared_pair value{one};
    pair got{};
    parked_thread reader{step, [&] { got = value.load(); }};
    has_stopped = reader.has_stopped();
    value.store(two);
    reader.finish();
    CHECK((got == one || got == two));
    CHECK((step > 1 || got == two));
  }
}

TEST_CASE("a reader waits for a writer that is in the middle of a write", "[load]") {
  bool has_stopped = true;
  for (std::uint64_t step = 1; has_stopped; ++step) {
    INFO("before step " << step);
    shared_pair value{one};
    parked_thread writer{step, [&] { value.store(two); }};
    has_stopped = writer.has_stopped();
    pair got{};
    std::atomic<bool> is_done{false};
    yielding_atomics::yields = 0;
    std::thread reader{[&] {
      got = value.load();
      is_done = true;
    }};
    while (yielding_atomics::yields == 0 && !is_done) std::this_thread::yield();
    writer.finish();
    reader.join();
    CHECK((got == one || got == two));
  }
}
