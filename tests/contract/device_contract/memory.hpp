// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

#include <penstock/device/device.hpp>

#include "contract/device_contract/scoped_memory.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

inline constexpr std::array memory_sizes = {
    std::size_t{1},    std::size_t{255},  std::size_t{256},     std::size_t{257},
    std::size_t{4096}, std::size_t{4097}, std::size_t{1} << 20, (std::size_t{3} << 20) + 1};

template <subject S>
void device_memory_is_aligned_to_256_bytes_and_all_there(const S& s) {
  const auto device = s.device();
  for (const std::size_t bytes : memory_sizes) {
    INFO(bytes << " bytes");
    const device_memory one{device, bytes};
    const device_memory two{device, bytes};
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(two.data()) % 256 == 0);
    // Fills both blocks completely. Filling one block must not change the other block.
    const pinned_memory from{device, 2 * bytes};
    const pinned_memory to{device, 2 * bytes};
    fill_pattern(from.data(), 2 * bytes, 6);
    auto stream = device.make_stream();
    device.copy_async(one.data(), from.data(), bytes, stream);
    device.copy_async(two.data(), from.data() + bytes, bytes, stream);
    device.copy_async(to.data(), one.data(), bytes, stream);
    device.copy_async(to.data() + bytes, two.data(), bytes, stream);
    device.synchronize(typename S::device_type::stream_ref{stream});
    CHECK(std::memcmp(from.data(), to.data(), 2 * bytes) == 0);
  }
}

template <subject S>
void pinned_memory_is_aligned_to_256_bytes_and_the_hosts_to_write(const S& s) {
  const auto device = s.device();
  for (const std::size_t bytes : memory_sizes) {
    INFO(bytes << " bytes");
    const pinned_memory one{device, bytes};
    const pinned_memory two{device, bytes};
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(two.data()) % 256 == 0);
    std::memset(one.data(), 1, bytes);
    std::memset(two.data(), 2, bytes);
    CHECK(one.data()[bytes - 1] == std::byte{1});
    CHECK(two.data()[0] == std::byte{2});
  }
}

template <subject S>
void a_size_that_nobody_has_is_out_of_memory_and_says_how_much(const S& s) {
  const auto device = s.device();
  constexpr std::size_t max = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {max, max - 4094, max - 4096, max / 2, std::size_t{1} << 60}) {
    INFO(bytes << " bytes");
    const auto tells = [bytes](const penstock::out_of_memory& error) {
      return error.bytes() == bytes &&
             std::string{error.what()}.find(std::to_string(bytes)) != std::string::npos;
    };
    const auto matcher =
        Catch::Matchers::Predicate<penstock::out_of_memory>(tells, "says the number of bytes");
    CHECK_THROWS_MATCHES(device.allocate(bytes), penstock::out_of_memory, matcher);
    CHECK_THROWS_MATCHES(device.allocate_pinned(bytes), penstock::out_of_memory, matcher);
  }
  const device_memory still_works{device, 1};
}

}  // namespace contract
