// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/pinned_allocator.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <new>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/barely_aligned_device.hpp"
#include "support/catch.hpp"
#include "support/ledger_device.hpp"

namespace ps = penstock;

namespace {

template <class T>
using ledger_vector = std::vector<T, ps::pinned_allocator<T, ledger_device>>;

static_assert(std::is_same_v<ps::pinned_allocator<float>::value_type, float>);
static_assert(std::is_same_v<std::allocator_traits<ps::pinned_allocator<int>>::rebind_alloc<char>,
                             ps::pinned_allocator<char>>);

}  // namespace

TEST_CASE("a vector of pinned memory works like any other vector", "[memory]") {
  std::vector<std::uint32_t, ps::pinned_allocator<std::uint32_t>> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 0U);
  numbers.resize(100'000, 7);
  CHECK(numbers[999] == 999);
  CHECK(numbers[99'999] == 7);
  CHECK(reinterpret_cast<std::uintptr_t>(numbers.data()) % 4096 == 0);
  auto copy = numbers;
  CHECK(copy == numbers);
  const auto* data = numbers.data();
  const auto moved = std::move(numbers);
  CHECK(moved.data() == data);
}

TEST_CASE("an allocator allocates pinned memory of its device and frees all of it", "[memory]") {
  const ledger_device device;
  {
    ledger_vector<double> numbers{ps::pinned_allocator<double, ledger_device>{device}};
    numbers.reserve(500);
    CHECK(device.pinned_bytes() == 4000);
    CHECK(device.device_bytes() == 0);
    auto copy = numbers;
    copy.reserve(10);
    CHECK(device.pinned_bytes() == 4080);  // the copy uses the same device
  }
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("an allocator is rebound to another type on the same device", "[memory]") {
  const ledger_device device;
  {
    std::list<int, ps::pinned_allocator<int, ledger_device>> nodes{
        ps::pinned_allocator<int, ledger_device>{device}};
    nodes.push_back(1);
    CHECK(device.pinned_bytes() > sizeof(int));  // a node is larger than its value
  }
  CHECK(device.pinned_bytes() == 0);
  const ps::pinned_allocator<int, ledger_device> ints{device};
  ps::pinned_allocator<double, ledger_device> doubles{ints};
  double* data = doubles.allocate(3);
  CHECK(device.pinned_bytes() == 24);
  doubles.deallocate(data, 3);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("allocators of one device type are equal, so containers can swap and move memory",
          "[memory]") {
  const ps::pinned_allocator<int> ints;
  const ps::pinned_allocator<double> doubles;
  CHECK(ints == ps::pinned_allocator<int>{});
  CHECK(ints == doubles);
  CHECK_FALSE(ints != doubles);
}

TEST_CASE("an allocation above the address space is rejected without a device call", "[memory]") {
  const ledger_device device;
  ps::pinned_allocator<std::uint64_t, ledger_device> allocator{device};
  constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  CHECK_THROWS_AS(allocator.allocate(max / 8 + 1), std::bad_array_new_length);
  CHECK_THROWS_AS(allocator.allocate(max), std::bad_array_new_length);
  CHECK(device.requested() == 0);
  CHECK_THROWS_AS(allocator.allocate(max / 8), ps::out_of_memory);
  CHECK(device.requested() == 1);
}

TEST_CASE("a type with a larger alignment than the device's is aligned correctly", "[memory]") {
  struct alignas(4096) whole_page {
    unsigned char bytes[4096];
  };
  const barely_aligned_device device;
  {
    std::vector<whole_page, ps::pinned_allocator<whole_page, barely_aligned_device>> pages{
        ps::pinned_allocator<whole_page, barely_aligned_device>{device}};
    for (int i = 0; i < 5; ++i) {
      pages.emplace_back();
      CHECK(reinterpret_cast<std::uintptr_t>(pages.data()) % 4096 == 0);
      CHECK(device.holds(pages.data(), pages.size() * 4096));
    }
  }
  CHECK(device.pinned_bytes() == 0);
  CHECK(device.bad_frees() == 0);
}

TEST_CASE("an allocation of nothing has an address and can be freed", "[memory]") {
  penstock::pinned_allocator<double> allocator;
  double* const nothing = allocator.allocate(0);
  CHECK(nothing != nullptr);
  allocator.deallocate(nothing, 0);
}
