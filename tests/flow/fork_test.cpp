// SPDX-License-Identifier: BSL-1.0
// Tests a process that calls fork() while it has a loader. The loader's threads do not exist in the
// child process.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <penstock/penstock.hpp>
#include <penstock_ext/results/results.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/in_child.hpp"
#include "support/numbered.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;
using test::in_child;

namespace {

/// Returns true if `step` throws because its threads do not exist in this process.
template <class Step>
bool is_rejected(Step step) {
  try {
    step();
    return false;
  } catch (const std::logic_error& error) {
    return std::string_view{error.what()}.find("by fork()") != std::string_view::npos;
  }
}

}  // namespace

TEST_CASE("in a forked child a loader throws on use and is destroyed without a hang",
          "[flow][fault:memory-7]") {
  const std::size_t workers = GENERATE(1U, 4U);
  const std::chrono::milliseconds timeout{GENERATE(0, 100'000)};
  auto loader = std::make_unique<ps::loader<numbered, ps::sequential>>(
      numbered{100}, ps::sequential{},
      ps::loader_options{.batch_size = 10, .workers = workers, .faults = {.timeout = timeout}});
  SECTION("idle") {
    CHECK(in_child([&] {
            const bool is_reported = is_rejected([&] { (void)samples_in(loader->epoch(0)); });
            loader.reset();
            return is_reported ? 7 : 1;
          }) == 7);
  }
  SECTION("in the middle of a loop, with a lease") {
    auto range = std::make_optional(loader->epochs(0, 20));
    auto it = range->begin();
    CHECK(in_child([&] {
            auto lease = std::move(*it);
            const bool is_reported = is_rejected([&] {
              for (;;) ++it;  // batches that were ready may still be delivered
            });
            range.reset();
            loader.reset();
            return is_reported && labels_of(lease).front() == 0 ? 7 : 1;
          }) == 7);
    CHECK(in_child([&] {
            loader.reset();
            range.reset();
            return 7;
          }) == 7);
    while (++it, it != range->end()) {
    }
  }
  CHECK(samples_in(loader->epoch(0)) == 100);  // the parent process is not affected
}

// Clang's ThreadSanitizer aborts if a child process detaches a thread of its parent.
#if !defined(PENSTOCK_TEST_THREADS_SANITIZED) || !defined(__clang__)
TEST_CASE("in a forked child a CPU stream throws on use and is destroyed without a hang",
          "[flow]") {
  const ps::cpu_device device;
  ps::detail::waitable_counter gate;
  auto stream = std::make_optional(device.make_stream());
  stream->launch([&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); });
  CHECK(in_child([&] {
          const bool is_reported = is_rejected([&] { device.synchronize(*stream); });
          stream.reset();
          return is_reported ? 7 : 1;
        }) == 7);
  CHECK(in_child([&] {  // no thread of the child makes room in the queue
          const bool is_reported = is_rejected([&] {
            for (int i = 0; i < 1000; ++i) stream->launch([] {});
          });
          stream.reset();
          return is_reported ? 7 : 1;
        }) == 7);
  gate.store(1);
  device.synchronize(*stream);
}

TEST_CASE("in a forked child a transfer with copies under way is destroyed without a hang",
          "[flow]") {
  const gated_device device;
  auto loader = std::make_unique<ps::loader<numbered, ps::sequential, gated_device>>(
      numbered{100}, ps::sequential{}, device, ps::loader_options{.batch_size = 10, .workers = 2});
  auto stream = std::make_optional(device.make_stream());
  auto feed = std::make_optional(ps::transfer{*loader, *stream});
  device.hold_copies();
  {
    auto range = std::make_optional(feed->epoch(0));
    [[maybe_unused]] const auto it = range->begin();
    CHECK(in_child([&] {
            range.reset();
            feed.reset();
            loader.reset();
            stream.reset();
            return 7;
          }) == 7);
    device.open_copies();
  }
  CHECK(samples_in(feed->epoch(1)) == 100);
  device.synchronize(*stream);
}
#endif

TEST_CASE("in a forked child results throw on use and are destroyed without a hang",
          "[flow][fault:memory-7]") {
  using numbers = ps::record<ps::field<"n", int>>;
  ps::batch_info info{.epoch = 0, .batch = 0, .size = 4, .valid_size = 4};
  std::atomic<long> worker{0};
  auto out = std::make_optional<ps::results<numbers>>(
      ps::cpu_device{}, 4, [&worker](auto&) { worker = this_thread_number(); });
  out->acquire(info).send();
  out->finish();
  wait_until_asleep(worker);  // the child cannot wait for this thread
  ++info.batch;
  auto slot = std::make_optional(out->acquire(info));
  CHECK(in_child([&] {
          bool is_reported = is_rejected([&] { (void)out->acquire(info); });
          is_reported = is_rejected([&] { slot->send(); }) && is_reported;
          is_reported = is_rejected([&] { out->finish(); }) && is_reported;
          is_reported = is_rejected([&] { out->close(); }) && is_reported;
          slot.reset();
          out.reset();
          return is_reported ? 7 : 1;
        }) == 7);
  CHECK(slot->send());
  out->finish();
  CHECK(out->stats().consumed == 2);
}

TEST_CASE("a loader without threads works in a forked child", "[flow][fault:memory-7]") {
  ps::loader loader{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  CHECK(samples_in(loader.epoch(0)) == 100);
  CHECK(in_child([&] { return static_cast<int>(samples_in(loader.epoch(1))); }) == 100);
}
