// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/version.hpp>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Copies like `std::memcpy`, but on x86-64 the stores of whole blocks bypass the caches. Such
/// stores do not first read the cache lines of `to`, and do not evict other lines. Copies four runs
/// of 4 KiB at a time, because a hardware prefetcher follows several runs but does not cross a
/// page. All stores are ordered before later stores of the thread. glibc uses the same method in
/// `memcpy` for copies that exceed its share of the last-level cache.
inline void copy_non_temporal(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::size_t done = 0;
#if defined(__x86_64__)
  constexpr std::size_t line = 64;
  constexpr std::size_t run = 4096;
  constexpr std::size_t block = 4 * run;
  const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  if (bytes >= head + block) {
    std::memcpy(to, from, head);
    for (done = head; bytes - done >= block; done += block) {
      const std::byte* const ahead = bytes - done >= 2 * block ? from + block : from;
      for (std::size_t at = done; at < done + run; at += line) {
        for (std::size_t i = at; i < at + block; i += run) {
          _mm_prefetch(ahead + i, _MM_HINT_T0);
          const auto* const source = reinterpret_cast<const __m128i*>(from + i);
          auto* const target = reinterpret_cast<__m128i*>(to + i);
          const __m128i a = _mm_loadu_si128(source);
          const __m128i b = _mm_loadu_si128(source + 1);
          const __m128i c = _mm_loadu_si128(source + 2);
          const __m128i d = _mm_loadu_si128(source + 3);
          _mm_stream_si128(target, a);
          _mm_stream_si128(target + 1, b);
          _mm_stream_si128(target + 2, c);
          _mm_stream_si128(target + 3, d);
        }
      }
    }
    // A release does not order non-temporal stores. Without the fence, a device or another thread
    // could see that the copy is complete and then read old bytes.
    _mm_sfence();
  }
#endif
  if (done != bytes) std::memcpy(to + done, from + done, bytes - done);
}

/// Returns true if `copy_non_temporal` is faster than `std::memcpy` for a ring of `ring_bytes`
/// bytes that a single thread fills and no core reads. On a Xeon, the ratio of their times was 0.73
/// to 0.88 if the ring was at least as large as the L2 cache of the core, and 0.95 to 1.07 for
/// smaller rings (see bench/results/2026-11-30-staging.txt). A cache of unknown size counts as
/// empty. Returns false on processors other than x86-64, which were not measured.
[[nodiscard]] inline bool prefers_non_temporal(std::size_t ring_bytes) noexcept {
#if defined(__x86_64__) && defined(_SC_LEVEL2_CACHE_SIZE)
  return static_cast<long long>(ring_bytes) >= ::sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  static_cast<void>(ring_bytes);
  return false;
#endif
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
