// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/registered_memory.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/ledger_device.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

/// A device that records the registered ranges.
struct noting_device : ledger_device {
  struct call {
    const void* data;
    std::size_t bytes;
    bool read_only;
    bool operator==(const call&) const = default;
  };
  struct notes {
    std::vector<call> live;
    int wrong_ends = 0;
    bool rejects = false;
  };
  std::shared_ptr<notes> seen = std::make_shared<notes>();

  void register_memory(void* data, std::size_t bytes, bool read_only) const {
    if (seen->rejects) throw ps::out_of_memory("pinned", bytes, "rejected");
    seen->live.push_back({data, bytes, read_only});
  }
  void unregister_memory(void* data, std::size_t bytes) const noexcept {
    if (std::erase_if(seen->live,
                      [=](const call& of) { return of.data == data && of.bytes == bytes; }) != 1) {
      ++seen->wrong_ends;
    }
  }
};

using registered = ps::registered_memory<noting_device>;
static_assert(ps::registering_device<noting_device>);
static_assert(ps::registering_device<ps::cpu_device>);
static_assert(!ps::registering_device<ledger_device>);
static_assert(!std::copyable<registered> && std::movable<registered>);
static_assert(std::is_nothrow_move_constructible_v<registered> &&
              std::is_nothrow_move_assignable_v<registered>);

/// Newly mapped pages, which no other code has locked.
class pages {
 public:
  explicit pages(std::size_t count, int protection = PROT_READ | PROT_WRITE)
      : bytes_(count * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        data_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes_, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  pages(pages&&) = delete;
  ~pages() { ::munmap(data_, bytes_); }
  [[nodiscard]] std::span<std::byte> all() const { return {data_, bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

/// Returns true if the range is locked, because the kernel then does not discard the pages.
bool is_locked(std::span<const std::byte> range) {
  return ::madvise(const_cast<std::byte*>(range.data()), range.size(), MADV_DONTNEED) != 0;
}

}  // namespace

TEST_CASE("memory is registered for the lifetime of its registration and keeps its owner",
          "[memory]") {
  const noting_device device;
  std::vector<float> owner(1000, 1.0F);
  {
    const ps::registered_memory locked{device, std::as_writable_bytes(std::span{owner})};
    CHECK(device.seen->live == std::vector{noting_device::call{owner.data(), 4000, false}});
    CHECK(locked.memory().data() == reinterpret_cast<const std::byte*>(owner.data()));
    CHECK(locked.bytes() == 4000);
    CHECK_FALSE(locked.read_only());
  }
  CHECK(device.seen->live.empty());
  CHECK(device.seen->wrong_ends == 0);
  CHECK(owner == std::vector<float>(1000, 1.0F));
}

TEST_CASE("const memory is registered read-only", "[memory]") {
  const noting_device device;
  const std::vector<int> owner(10);
  {
    const ps::registered_memory locked{device, std::as_bytes(std::span{owner})};
    CHECK(device.seen->live == std::vector{noting_device::call{owner.data(), 40, true}});
    CHECK(locked.read_only());
  }
  CHECK(device.seen->live.empty());
}

TEST_CASE("a moved registration ends once, and move assignment ends the previous registration",
          "[memory]") {
  const noting_device device;
  std::vector<std::byte> first(10);
  std::vector<std::byte> second(20);
  {
    registered one{device, std::span{first}};
    registered moved{std::move(one)};
    CHECK(one.bytes() == 0);
    CHECK(moved.bytes() == 10);
    CHECK(device.seen->live.size() == 1);
    registered other{device, std::span<const std::byte>{second}};
    moved = std::move(other);
    CHECK(device.seen->live == std::vector{noting_device::call{second.data(), 20, true}});
    CHECK(moved.read_only());
    auto& same = moved;
    moved = std::move(same);
    CHECK(moved.bytes() == 20);
    CHECK(device.seen->live.size() == 1);
  }
  CHECK(device.seen->live.empty());
  CHECK(device.seen->wrong_ends == 0);
}

TEST_CASE("a failed registration throws and is not ended later", "[memory]") {
  const noting_device device;
  std::vector<std::byte> owner(10);
  device.seen->rejects = true;
  CHECK_THROWS_AS((registered{device, std::span{owner}}), ps::out_of_memory);
  CHECK(device.seen->wrong_ends == 0);
}

TEST_CASE("an empty range is registered without calling the device", "[memory]") {
  const noting_device device;
  device.seen->rejects = true;
  {
    const registered nothing{device, std::span<std::byte>{}};
    CHECK(nothing.bytes() == 0);
  }
  CHECK(device.seen->wrong_ends == 0);
}

TEST_CASE("the CPU device locks pages into RAM, including read-only pages", "[memory]") {
  if (test::sanitized) {
    WARN("not tested: sanitizers make mlock do nothing");
    return;
  }
  const pages writable{3};
  const pages constant{2, PROT_READ};
  {
    const ps::registered_memory one{ps::cpu_device{}, writable.all()};
    const ps::registered_memory two{ps::cpu_device{}, std::span<const std::byte>{constant.all()}};
    CHECK(is_locked(writable.all()));
    CHECK(is_locked(constant.all()));
  }
  CHECK_FALSE(is_locked(writable.all()));
  CHECK_FALSE(is_locked(constant.all()));
}

TEST_CASE("the error of the CPU device names the limit if the process may not lock memory",
          "[memory]") {
  if (test::sanitized) {
    WARN("not tested: sanitizers make mlock do nothing");
    return;
  }
  enum outcome { reported = 0, not_reported = 1, cannot_lower = 3 };
  const pages memory{2};
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const ::rlimit nothing{0, 0};
    // The limit does not apply to root, so the child changes its user to nobody.
    if (::setrlimit(RLIMIT_MEMLOCK, &nothing) != 0 || (::geteuid() == 0 && ::setuid(65534) != 0)) {
      ::_exit(cannot_lower);
    }
    try {
      const ps::registered_memory locked{ps::cpu_device{}, memory.all()};
      ::_exit(not_reported);
    } catch (const ps::out_of_memory& error) {
      const std::string text = error.what();
      const bool tells = error.bytes() == memory.all().size() &&
                         text.find("may lock 0 bytes") != std::string::npos &&
                         text.find("ulimit -l") != std::string::npos;
      ::_exit(tells ? reported : not_reported);
    }
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
