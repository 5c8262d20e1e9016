// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace test {

/// Whether AddressSanitizer or ThreadSanitizer watches: memory costs more then, and work some ten
/// times as much.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

/// Whether this program is compiled with optimisation.
#ifdef __OPTIMIZE__
inline constexpr bool optimised = true;
#else
inline constexpr bool optimised = false;
#endif

}  // namespace test
