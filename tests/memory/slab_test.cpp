// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/support/slab.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "support/catch.hpp"
#include "support/ledger_device.hpp"

namespace ps = penstock;

namespace {
static_assert(!std::copyable<ps::detail::slab<ps::cpu_device>>);
static_assert(std::is_nothrow_move_constructible_v<ps::detail::slab<ps::cpu_device>>);

struct never_pins : ledger_device {
  [[nodiscard]] ps::pinned_block allocate_pinned(std::size_t bytes) const {
    throw ps::out_of_memory("pinned", bytes, "not on this machine");
  }
};

struct broken_device : ledger_device {
  [[nodiscard]] ps::pinned_block allocate_pinned(std::size_t) const {
    throw std::runtime_error("the device is gone");
  }
};

/// A device that records the units passed by the slab.
struct slab_device : ledger_device {
  struct units {
    std::size_t taken = 1;
    std::size_t freed = 1;
  };
  std::shared_ptr<units> seen = std::make_shared<units>();

  [[nodiscard]] ps::pinned_block allocate_pinned(std::size_t bytes, std::size_t unit = 7) const {
    seen->taken = unit;
    return ledger_device::allocate_pinned(bytes);
  }
  void deallocate_pinned(void* data, std::size_t bytes, std::size_t unit = 7) const noexcept {
    seen->freed = unit;
    ledger_device::deallocate_pinned(data, bytes);
  }
};
}  // namespace

TEST_CASE("a slab allocates and frees memory of the requested kind", "[memory]") {
  const ledger_device device;
  const auto kind = GENERATE(ps::detail::memory_kind::device, ps::detail::memory_kind::pinned,
                             ps::detail::memory_kind::pageable);
  {
    const ps::detail::slab memory{device, 5000, kind};
    CHECK(memory.bytes() == 5000);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % 256 == 0);
    std::memset(memory.data(), 1, memory.bytes());
    CHECK(device.device_bytes() == (kind == ps::detail::memory_kind::device ? 5000U : 0U));
    CHECK(device.pinned_bytes() == (kind == ps::detail::memory_kind::pinned ? 5000U : 0U));
    CHECK(memory.pinned() == (kind == ps::detail::memory_kind::pinned));
  }
  CHECK(device.device_bytes() == 0);
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("a slab that could not be locked reports it", "[memory][fault:memory-3]") {
  const ledger_device device;
  device.fail_to_pin();
  const ps::detail::slab memory{device, 5000, ps::detail::memory_kind::pinned};
  CHECK_FALSE(memory.pinned());
}

TEST_CASE("a slab falls back to pageable memory only if pinning fails", "[memory]") {
  const never_pins rejecting;
  {
    const ps::detail::slab memory{rejecting, 5000, ps::detail::memory_kind::pinned_or_pageable};
    CHECK_FALSE(memory.pinned());
    std::memset(memory.data(), 1, memory.bytes());
  }
  CHECK(rejecting.bad_frees() == 0);
  CHECK_THROWS_AS((ps::detail::slab{rejecting, 5000, ps::detail::memory_kind::pinned}),
                  ps::out_of_memory);

  const ledger_device device;
  {
    const ps::detail::slab memory{device, 5000, ps::detail::memory_kind::pinned_or_pageable};
    CHECK(memory.pinned());
    CHECK(device.pinned_bytes() == 5000);
  }
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("only a failure to pin falls back to pageable memory: other errors propagate",
          "[memory]") {
  CHECK_THROWS_MATCHES(
      (ps::detail::slab{broken_device{}, 5000, ps::detail::memory_kind::pinned_or_pageable}),
      std::runtime_error, Catch::Matchers::Message("the device is gone"));
}

TEST_CASE("a device that pins in pieces receives the unit when allocating and freeing",
          "[memory]") {
  const slab_device device;
  {
    ps::detail::slab memory{device, 5000, ps::detail::memory_kind::pinned, 500};
    CHECK(device.seen->taken == 500);
    const ps::detail::slab moved{std::move(memory)};
  }
  CHECK(device.seen->freed == 500);
  { const ps::detail::slab memory{device, 5000, ps::detail::memory_kind::pinned_or_pageable, 250}; }
  CHECK(device.seen->taken == 250);
  CHECK(device.seen->freed == 250);
  { const ps::detail::slab memory{device, 5000, ps::detail::memory_kind::pinned}; }
  CHECK(device.seen->taken == 0);
  CHECK(device.seen->freed == 0);
}

TEST_CASE("a slab that is moved keeps its address and is freed once", "[memory]") {
  const ledger_device device;
  const auto kind = GENERATE(ps::detail::memory_kind::device, ps::detail::memory_kind::pinned,
                             ps::detail::memory_kind::pageable);
  {
    ps::detail::slab first{device, 300, kind};
    std::byte* data = first.data();
    const bool pinned = first.pinned();
    const ps::detail::slab second{std::move(first)};
    CHECK(second.data() == data);
    CHECK(second.bytes() == 300);
    CHECK(second.pinned() == pinned);
    CHECK(first.data() == nullptr);
    CHECK(first.bytes() == 0);
  }
  CHECK(device.device_bytes() + device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("a slab that cannot be allocated throws out_of_memory for every kind of memory",
          "[memory][fault:memory-4]") {
  const ledger_device device;
  const auto kind =
      GENERATE(ps::detail::memory_kind::device, ps::detail::memory_kind::pinned,
               ps::detail::memory_kind::pageable, ps::detail::memory_kind::pinned_or_pageable);
  CHECK_THROWS_AS((ps::detail::slab{device, std::size_t{1} << 60, kind}), ps::out_of_memory);
  CHECK_THROWS_AS((ps::detail::slab{device, 0, kind}), ps::out_of_memory);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("an error for host memory names the kind of memory and the options to lower",
          "[memory][fault:memory-4]") {
  const auto reported = Catch::Matchers::Predicate<ps::out_of_memory>(
      [](const ps::out_of_memory& error) {
        const std::string text = error.what();
        return text.starts_with("pageable memory: 1152921504606846976 bytes") &&
               text.find("prefetch") != std::string::npos;
      },
      "says pageable, bytes and prefetch");
  CHECK_THROWS_MATCHES(
      (ps::detail::slab{ledger_device{}, std::size_t{1} << 60, ps::detail::memory_kind::pageable}),
      ps::out_of_memory, reported);
}
