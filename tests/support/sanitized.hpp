// SPDX-License-Identifier: BSL-1.0
#pragma once

#if defined(__SANITIZE_THREAD__)  // GCC
#define PENSTOCK_TEST_THREADS_SANITIZED
#elif defined(__SANITIZE_ADDRESS__)
#define PENSTOCK_TEST_SANITIZED
#elif defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define PENSTOCK_TEST_THREADS_SANITIZED
#elif __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define PENSTOCK_TEST_SANITIZED
#endif
#endif
#if defined(PENSTOCK_TEST_THREADS_SANITIZED)
#define PENSTOCK_TEST_SANITIZED
#endif

namespace test {

/// True if AddressSanitizer or ThreadSanitizer is active. Programs then need more memory and about
/// ten times as much time.
#if defined(PENSTOCK_TEST_SANITIZED)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// True if this program is compiled with optimization.
#ifdef __OPTIMIZE__
inline constexpr bool optimised = true;
#else
inline constexpr bool optimised = false;
#endif

}  // namespace test
