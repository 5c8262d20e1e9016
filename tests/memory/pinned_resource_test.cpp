// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/pinned_resource.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory_resource>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/barely_aligned_device.hpp"
#include "support/catch.hpp"
#include "support/ledger_device.hpp"

namespace ps = penstock;

namespace {
static_assert(std::is_base_of_v<std::pmr::memory_resource, ps::pinned_resource<>>);
}  // namespace

TEST_CASE("a pinned resource counts its allocated bytes and allocates from its device",
          "[memory]") {
  const ledger_device device;
  ps::pinned_resource pinned{device};
  CHECK(pinned.bytes() == 0);
  void* one = pinned.allocate(1000, 8);
  void* two = pinned.allocate(24, 256);
  CHECK(pinned.bytes() == 1024);
  CHECK(device.pinned_bytes() == 1024);
  CHECK(pinned.device().pinned_bytes() == 1024);  // a copy of the device with the same ledger
  CHECK(reinterpret_cast<std::uintptr_t>(one) % 256 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(two) % 256 == 0);
  pinned.deallocate(one, 1000, 8);
  CHECK(pinned.bytes() == 24);
  pinned.deallocate(two, 24, 256);
  CHECK(pinned.bytes() == 0);
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("an allocation of 0 bytes succeeds, as the standard requires", "[memory]") {
  const ledger_device device;
  ps::pinned_resource pinned{device};
  void* nothing = pinned.allocate(0, 1);
  CHECK(nothing != nullptr);
  pinned.deallocate(nothing, 0, 1);
  CHECK(pinned.bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("every alignment is supported even if the device aligns only to 256 bytes", "[memory]") {
  const barely_aligned_device device;
  ps::pinned_resource pinned{device};
  for (std::size_t alignment = 1; alignment <= std::size_t{1} << 20; alignment *= 2) {
    CAPTURE(alignment);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
      auto* data = static_cast<std::byte*>(pinned.allocate(bytes, alignment));
      CHECK(reinterpret_cast<std::uintptr_t>(data) % alignment == 0);
      CHECK(device.holds(data, bytes));
      if (bytes != 0) data[0] = data[bytes - 1] = std::byte{1};
      pinned.deallocate(data, bytes, alignment);
    }
  }
  CHECK(pinned.bytes() == 0);
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("a pool can allocate large blocks that are aligned to their size", "[memory]") {
  const barely_aligned_device device;
  ps::pinned_resource pinned{device};
  {
    std::pmr::synchronized_pool_resource pool{
        {.max_blocks_per_chunk = 4, .largest_required_pool_block = std::size_t{1} << 18}, &pinned};
    std::vector<std::pair<void*, std::size_t>> out;
    for (std::size_t bytes = 8; bytes <= std::size_t{1} << 18; bytes *= 2) {
      for (const std::size_t alignment : {std::size_t{1}, std::min<std::size_t>(bytes, 4096)}) {
        void* data = pool.allocate(bytes, alignment);
        CHECK(reinterpret_cast<std::uintptr_t>(data) % alignment == 0);
        std::memset(data, 1, bytes);
        out.emplace_back(data, bytes);
      }
    }
    for (const auto& [data, bytes] : out) pool.deallocate(data, bytes, 1);
    void* beyond = pool.allocate(std::size_t{1} << 20, 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(beyond) % 4096 == 0);
    CHECK(device.holds(beyond, std::size_t{1} << 20));
    pool.deallocate(beyond, std::size_t{1} << 20, 4096);
  }
  CHECK(pinned.bytes() == 0);
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("an impossible size is rejected and not counted", "[memory]") {
  ps::pinned_resource pinned;
  CHECK_THROWS_AS(pinned.allocate(std::size_t{1} << 60, 8), ps::out_of_memory);
  CHECK_THROWS_AS(pinned.allocate(std::numeric_limits<std::size_t>::max() - 4095, 4096),
                  ps::out_of_memory);  // the size plus the alignment would overflow
  CHECK(pinned.bytes() == 0);
  CHECK(pinned.pageable_bytes() == 0);
}

TEST_CASE("bytes that could not be locked are counted", "[memory]") {
  const ledger_device device;
  ps::pinned_resource pinned{device};
  void* locked = pinned.allocate(100, 8);
  CHECK(pinned.pageable_bytes() == 0);
  device.fail_to_pin();
  void* ordinary = pinned.allocate(30, 8);
  CHECK(pinned.pageable_bytes() == 30);
  pinned.deallocate(ordinary, 30, 8);
  pinned.deallocate(locked, 100, 8);
  CHECK(pinned.bytes() == 0);
  CHECK(pinned.pageable_bytes() == 30);  // counts all bytes ever allocated
}

TEST_CASE("a resource is equal only to itself", "[memory]") {
  const ps::pinned_resource one;
  const ps::pinned_resource two;
  CHECK(one.is_equal(one));
  CHECK_FALSE(one.is_equal(two));
}

TEST_CASE("a pool over a pinned resource supports containers and returns all memory", "[memory]") {
  const ledger_device device;
  ps::pinned_resource pinned{device};
  {
    std::pmr::synchronized_pool_resource pool{&pinned};
    std::pmr::vector<std::pmr::string> names{&pool};
    for (int i = 0; i < 1000; ++i) {
      names.emplace_back("a string too long for its own buffer, number " + std::to_string(i));
    }
    CHECK(names[999].ends_with("number 999"));
    CHECK(names[999].get_allocator().resource() == &pool);
    CHECK(pinned.bytes() > 1000 * 45);
    CHECK(device.requested() < 200);  // the pool allocates rarely
  }
  CHECK(pinned.bytes() == 0);
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("several threads allocate from one pinned resource", "[memory]") {
  const ledger_device device;
  ps::pinned_resource pinned{device};
  std::pmr::synchronized_pool_resource pool{&pinned};
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < 200; ++i) {
        const std::size_t bytes = 1 + thread * 1000 + i;
        auto* direct = static_cast<std::byte*>(pinned.allocate(bytes, 8));
        auto* pooled = static_cast<std::byte*>(pool.allocate(bytes, 8));
        direct[bytes - 1] = std::byte{1};
        pooled[bytes - 1] = std::byte{2};
        pool.deallocate(pooled, bytes, 8);
        pinned.deallocate(direct, bytes, 8);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  pool.release();
  CHECK(pinned.bytes() == 0);
  CHECK(device.bad_frees() == 0);
}
