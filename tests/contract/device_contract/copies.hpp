// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "contract/device_contract/held_work.hpp"
#include "contract/device_contract/scoped_memory.hpp"
#include "contract/device_contract/subject.hpp"
#include "support/catch.hpp"

namespace contract {

template <subject S>
void copies_move_the_bytes_and_no_other(const S& s) {
  const auto device = s.device();
  constexpr std::size_t guard = 64;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{7}, std::size_t{255}, std::size_t{256}, std::size_t{257},
        std::size_t{4096}, std::size_t{4097}, (std::size_t{1} << 20) + 3, std::size_t{5} << 20}) {
    INFO(bytes << " bytes");
    const std::size_t all = bytes + 2 * guard;
    const pinned_memory before{device, all};
    const pinned_memory from{device, bytes};
    const pinned_memory after{device, all};
    const device_memory there{device, all};
    fill_pattern(before.data(), all, 1);
    fill_pattern(from.data(), bytes, 2);
    auto stream = device.make_stream();
    device.copy_async(there.data(), before.data(), all, stream);
    device.copy_async(there.data() + guard, from.data(), bytes, stream);
    device.copy_async(after.data(), there.data(), all, stream);
    device.synchronize(typename S::device_type::stream_ref{stream});
    CHECK(std::memcmp(after.data(), before.data(), guard) == 0);
    CHECK(std::memcmp(after.data() + guard, from.data(), bytes) == 0);
    CHECK(std::memcmp(after.data() + guard + bytes, before.data() + guard + bytes, guard) == 0);
  }
}

template <subject S>
void copies_of_one_stream_run_in_order(const S& s) {
  const auto device = s.device();
  constexpr std::size_t bytes = 100'000;
  constexpr std::size_t rounds = 20;
  const device_memory there{device, bytes};
  const pinned_memory from{device, bytes * rounds};
  const pinned_memory to{device, bytes * rounds};
  fill_pattern(from.data(), bytes * rounds, 3);
  auto stream = device.make_stream();
  for (std::size_t i = 0; i < rounds; ++i) {  // all rounds use the same device memory
    device.copy_async(there.data(), from.data() + i * bytes, bytes, stream);
    device.copy_async(to.data() + i * bytes, there.data(), bytes, stream);
  }
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(std::memcmp(to.data(), from.data(), bytes * rounds) == 0);
}

template <subject S>
void a_copy_reads_its_source_in_stream_order(const S& s) {
  const auto device = s.device();
  constexpr std::size_t bytes = 5000;
  const device_memory there{device, bytes};
  const pinned_memory from{device, bytes};
  const pinned_memory to{device, bytes};
  std::fill(from.begin(), from.end(), std::byte{1});
  std::fill(to.begin(), to.end(), std::byte{0});
  std::size_t early = 99;
  auto stream = device.make_stream();
  s.launch(stream, [&] { std::fill(from.begin(), from.end(), std::byte{2}); });
  device.copy_async(there.data(), from.data(), bytes, stream);
  s.launch(stream, [&] { std::fill(from.begin(), from.end(), std::byte{3}); });
  s.launch(stream, [&] {
    early = static_cast<std::size_t>(std::count(to.begin(), to.end(), std::byte{2}));
  });
  device.copy_async(to.data(), there.data(), bytes, stream);
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(early == 0);
  CHECK(std::count(to.begin(), to.end(), std::byte{2}) == std::ptrdiff_t{bytes});
}

template <subject S>
void a_copy_waits_for_held_work_and_the_caller_does_not(const S& s) {
  const auto device = s.device();
  const device_memory there{device, 256};
  const pinned_memory from{device, 256};
  const pinned_memory to{device, 256};
  std::fill(from.begin(), from.end(), std::byte{1});
  std::fill(to.begin(), to.end(), std::byte{0});
  auto stream = device.make_stream();
  const hold held;
  std::atomic<bool> copied{false};
  held.on(s, stream);
  device.copy_async(there.data(), from.data(), 256, stream);
  device.copy_async(to.data(), there.data(), 256, stream);
  s.launch(stream, [&copied] { copied.store(true); });
  CHECK_FALSE(happens(copied));
  // The copy has not run yet, so it copies these new contents of the source.
  std::fill(from.begin(), from.end(), std::byte{7});
  held.let_go();
  device.synchronize(typename S::device_type::stream_ref{stream});
  CHECK(copied.load());
  CHECK(std::count(to.begin(), to.end(), std::byte{7}) == 256);
}

}  // namespace contract
