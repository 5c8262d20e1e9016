// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/slab.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "support/catch.hpp"
#include "support/ledger_device.hpp"

namespace ps = penstock;

namespace {
static_assert(!std::copyable<ps::slab<ps::host_device>>);
static_assert(std::is_nothrow_move_constructible_v<ps::slab<ps::host_device>>);
}  // namespace

TEST_CASE("a slab takes its memory of the kind it is told, and frees it as that", "[memory]") {
  const ledger_device device;
  const auto kind =
      GENERATE(ps::memory_kind::device, ps::memory_kind::pinned, ps::memory_kind::pageable);
  {
    const ps::slab memory{device, 5000, kind};
    CHECK(memory.kind() == kind);
    CHECK(memory.bytes() == 5000);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 256 == 0);
    std::memset(memory.data(), 1, memory.bytes());
    CHECK(device.device_bytes() == (kind == ps::memory_kind::device ? 5000U : 0U));
    CHECK(device.pinned_bytes() == (kind == ps::memory_kind::pinned ? 5000U : 0U));
    CHECK(memory.pinned() == (kind == ps::memory_kind::pinned));
  }
  CHECK(device.device_bytes() == 0);
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("a slab that could not be locked says so", "[memory]") {
  const ledger_device device;
  device.refuse_to_pin();
  const ps::slab memory{device, 5000, ps::memory_kind::pinned};
  CHECK_FALSE(memory.pinned());
  CHECK(memory.kind() == ps::memory_kind::pinned);
}

TEST_CASE("a slab that is moved keeps its address and is freed once", "[memory]") {
  const ledger_device device;
  const auto kind =
      GENERATE(ps::memory_kind::device, ps::memory_kind::pinned, ps::memory_kind::pageable);
  {
    ps::slab first{device, 300, kind};
    std::byte* data = first.data();
    const bool pinned = first.pinned();
    const ps::slab second{std::move(first)};
    CHECK(second.data() == data);
    CHECK(second.bytes() == 300);
    CHECK(second.pinned() == pinned);
    CHECK(first.data() == nullptr);
    CHECK(first.bytes() == 0);
  }
  CHECK(device.device_bytes() + device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("a slab that is not to be had is out of memory, of every kind", "[memory]") {
  const ledger_device device;
  const auto kind =
      GENERATE(ps::memory_kind::device, ps::memory_kind::pinned, ps::memory_kind::pageable);
  CHECK_THROWS_AS((ps::slab{device, std::size_t{1} << 60, kind}), ps::out_of_memory);
  CHECK_THROWS_AS((ps::slab{device, 0, kind}), ps::out_of_memory);
  CHECK(device.bad_frees() == 0);
}
