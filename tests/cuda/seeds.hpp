// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PENSTOCK_TESTS_ARE_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PENSTOCK_TESTS_ARE_SANITIZED
#endif

/// How many seeds the random policy gets: under a sanitizer, ten times slower, fewer.
#ifdef PENSTOCK_TESTS_ARE_SANITIZED
inline constexpr std::uint64_t seed_count = 50;
#else
inline constexpr std::uint64_t seed_count = 1000;
#endif
