// SPDX-License-Identifier: BSL-1.0
// Tests guarantees of the CPU device that go beyond the contract of all devices (tests/contract).
#include <penstock/device/cpu_device.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <penstock/threads/support/waitable_counter.hpp>

#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

static_assert(ps::device<ps::cpu_device>);
static_assert(std::is_nothrow_copy_constructible_v<ps::cpu_device>);

/// Returns the number of bytes that this process has locked into memory.
std::size_t locked_bytes() {
  std::ifstream status{"/proc/self/status"};
  for (std::string word; status >> word;) {
    std::size_t kib = 0;
    if (word == "VmLck:" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace

TEST_CASE("a CPU device and its copies keep their options", "[device]") {
  const ps::cpu_device device{
      {.copy_bytes_per_second = 12.5, .launch_latency = std::chrono::nanoseconds{7}}};
  const auto copy = device;
  CHECK(copy.options().copy_bytes_per_second == 12.5);
  CHECK(copy.options().launch_latency == std::chrono::nanoseconds{7});
  CHECK(ps::cpu_device{}.options().copy_bytes_per_second == 0.0);
}

TEST_CASE("on the inline stream records and copies complete immediately", "[device]") {
  const ps::cpu_device device;
  const auto here = device.inline_stream();
  ps::detail::waitable_counter gate;
  auto held = device.make_stream();
  auto event = device.make_event();
  held.launch([&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); });
  device.record(event, held);
  CHECK_FALSE(device.is_complete(event));
  device.record(event, here);  // does not wait for later work on the other stream
  CHECK(device.is_complete(event));
  const std::uint64_t from = 42;
  std::uint64_t to = 0;
  device.copy_async(&to, &from, sizeof to, here);
  CHECK(to == 42);
  device.synchronize(here);
  gate.store(1);
}

TEST_CASE("a small copy runs immediately on an idle stream, and otherwise in order", "[device]") {
  const ps::cpu_device device;
  std::uint64_t from = 1;
  std::uint64_t to = 0;
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  device.copy_async(&to, &from, sizeof to, stream);
  CHECK(to == 1);
  stream.launch([&gate] { gate.wait([](std::uint32_t open) { return open != 0; }); });
  from = 2;
  device.copy_async(&to, &from, sizeof to, stream);
  CHECK(to == 1);
  gate.store(1);
  stream.synchronize();
  CHECK(to == 2);
  device.copy_async(&from, &to, sizeof to, stream);  // an idle stream behaves the same
  CHECK(from == 2);
}

TEST_CASE("a wait of the inline stream blocks the calling thread", "[device]") {
  const ps::cpu_device device;
  ps::detail::waitable_counter gate;
  auto stream = device.make_stream();
  auto event = device.make_event();
  std::atomic<bool> released{false};
  stream.launch([&] {
    gate.wait([](std::uint32_t open) { return open != 0; });
    released = true;
  });
  device.record(event, stream);
  std::thread opener{[&gate] { gate.store(1); }};
  device.wait(device.inline_stream(), event);
  CHECK(released);
  opener.join();
}

TEST_CASE("memory of a CPU device is zeroed", "[device]") {
  const ps::cpu_device device;
  constexpr std::size_t bytes = (std::size_t{2} << 20) + 5000;
  auto* data = static_cast<std::byte*>(device.allocate(bytes));
  CHECK(std::count(data, data + bytes, std::byte{0}) == std::ptrdiff_t{bytes});
  device.deallocate(data, bytes);
}

TEST_CASE("no two allocations of a CPU device share a page", "[device]") {
  const ps::cpu_device device;
  void* one = device.allocate(1);
  void* two = device.allocate(1);
  const auto page = [](void* data) { return reinterpret_cast<std::uintptr_t>(data) / 4096; };
  CHECK(reinterpret_cast<std::uintptr_t>(one) % 4096 == 0);
  CHECK(page(one) != page(two));
  device.deallocate(one, 1);
  device.deallocate(two, 1);
}

TEST_CASE("an allocation of no bytes throws, and freeing no memory does nothing", "[device]") {
  const ps::cpu_device device;
  CHECK_THROWS_AS(device.allocate(0), ps::out_of_memory);
  CHECK_THROWS_AS(device.allocate_pinned(0), ps::out_of_memory);
  device.deallocate(nullptr, 100);
  device.deallocate_pinned(nullptr, 100);
}

TEST_CASE("all memory that a CPU device reports as pinned is locked", "[device]") {
  if (test::sanitized) {
    WARN("not tested: sanitizers make mlock do nothing");
    return;
  }
  const ps::cpu_device device;
  const std::size_t before = locked_bytes();
  const auto block = device.allocate_pinned(5000);
  CHECK(locked_bytes() - before == (block.pinned ? 8192U : 0U));
  device.deallocate_pinned(block.data, 5000);
  CHECK(locked_bytes() == before);
  const std::size_t plain = locked_bytes();
  void* data = device.allocate(5000);
  CHECK(locked_bytes() == plain);  // device memory is never locked
  device.deallocate(data, 5000);
}

TEST_CASE("if the process may not lock memory, pinned memory is ordinary and reports it",
          "[device]") {
  if (test::sanitized) {
    WARN("not tested: sanitizers make mlock do nothing");
    return;
  }
  enum outcome { reported = 0, not_reported = 1, unusable = 2, cannot_lower = 3 };
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit nothing{0, 0};
    // The limit does not apply to root, so the child switches to the user nobody.
    if (::setrlimit(RLIMIT_MEMLOCK, &nothing) != 0 || (::geteuid() == 0 && ::setuid(65534) != 0)) {
      ::_exit(cannot_lower);
    }
    const auto block = ps::cpu_device{}.allocate_pinned(5000);
    auto* bytes = static_cast<volatile char*>(block.data);
    bytes[0] = 1;
    bytes[4999] = 2;
    if (bytes[0] != 1 || bytes[4999] != 2) ::_exit(unusable);
    ::_exit(block.pinned ? not_reported : reported);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == cannot_lower) {
    WARN("not tested: the process may not give up its right to lock memory");
    return;
  }
  CHECK(WEXITSTATUS(status) == reported);
}

TEST_CASE("in a forked child memory is freed without a wait for the parent's streams",
          "[device][fault:memory-7]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  ps::detail::waitable_counter go;
  stream.launch([&go] { go.wait([](std::uint32_t now) { return now != 0; }); });
  auto used = device.make_event();
  device.record(used, stream);
  CHECK(test::in_child([&] {
          const ps::cpu_stream_ref work = stream;
          return ps::detail::synchronize_before_free(device, used) &&
                         ps::detail::synchronize_before_free(device, work)
                     ? 7
                     : 1;
        }) == 7);
  go.store(1);
  CHECK(ps::detail::synchronize_before_free(device, used));
}

TEST_CASE("a thread that has entered flushes denormals to zero", "[device]") {
  const auto product = [] {
    const volatile float small = std::numeric_limits<float>::min();
    const volatile float half = 0.5F;
    return small * half;
  };
  const auto read = [] {
    const volatile float denormal = std::numeric_limits<float>::denorm_min();
    const volatile float large = 1e30F;
    return denormal * large;
  };
  float written = 1.0F;
  float seen = 1.0F;
  std::thread entered{[&] {
    ps::cpu_device{}.make_current();
    written = product();
    seen = read();
  }};
  entered.join();
  CHECK(written == 0.0F);
  CHECK(seen == 0.0F);
  CHECK(product() != 0.0F);
  CHECK(read() != 0.0F);
}
