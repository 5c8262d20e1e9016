// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/pinned_allocator.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "memory/barely_aligned_device.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("up to the device's alignment, no padding is added", "[memory]") {
  const ledger_device device;
  for (std::size_t alignment = 1; alignment <= 256; alignment *= 2) {
    const auto block = ps::detail::allocate_aligned_pinned(device, 1000, alignment);
    CHECK(device.pinned_bytes() == 1000);
    ps::detail::deallocate_aligned_pinned(device, block.data, 1000, alignment);
  }
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("above the device's alignment, the alignment is added and the block is found again",
          "[memory]") {
  const barely_aligned_device device;
  for (std::size_t alignment = 512; alignment <= 65536; alignment *= 2) {
    CAPTURE(alignment);
    const auto block = ps::detail::allocate_aligned_pinned(device, 1000, alignment);
    CHECK(block.pinned);
    CHECK(reinterpret_cast<std::uintptr_t>(block.data) % alignment == 0);
    CHECK(device.holds(block.data, 1000));
    CHECK(device.holds(static_cast<std::byte*>(block.data) - sizeof(void*), sizeof(void*)));
    CHECK(device.pinned_bytes() == 1000 + alignment + 256);
    ps::detail::deallocate_aligned_pinned(device, block.data, 1000, alignment);
  }
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("a block that could not be locked reports it, aligned or not", "[memory]") {
  const ledger_device device;
  device.fail_to_pin();
  const auto block = ps::detail::allocate_aligned_pinned(device, 10, 4096);
  CHECK_FALSE(block.pinned);
  ps::detail::deallocate_aligned_pinned(device, block.data, 10, 4096);
}

TEST_CASE("an invalid alignment and an overflowing size make no device call", "[memory]") {
  const ledger_device device;
  constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  for (const std::size_t alignment : {std::size_t{0}, std::size_t{3}, std::size_t{768}}) {
    CHECK_THROWS_AS(ps::detail::allocate_aligned_pinned(device, 10, alignment), ps::out_of_memory);
  }
  CHECK_THROWS_AS(ps::detail::allocate_aligned_pinned(device, max - 4095, 4096), ps::out_of_memory);
  CHECK(device.requested() == 0);
}

TEST_CASE("freeing a null pointer does nothing", "[memory]") {
  ps::detail::deallocate_aligned_pinned(ps::cpu_device{}, nullptr, 10, 4096);
  ps::detail::deallocate_aligned_pinned(ps::cpu_device{}, nullptr, 10, 8);
}
