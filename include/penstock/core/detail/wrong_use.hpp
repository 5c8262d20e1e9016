// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdio>
#include <cstdlib>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The message for a lease that holds no batch.
inline constexpr const char* lease_without_batch =
    "a lease was used that holds no batch: it was moved from, given back by release_after, never "
    "given one, or captured by reference in work that ran after the loop body: capture the view, "
    "`x = ps::get<\"x\">(batch)`";

/// In any build: ends the program with a one-line message before it uses memory that it does not
/// hold.
[[noreturn, gnu::cold, gnu::noinline]] inline void wrong_use(const char* message) noexcept {
  std::fprintf(stderr, "penstock: %s\n", message);
  std::fflush(stderr);
  std::abort();
}

/// For a lease that holds no batch.
[[noreturn, gnu::cold, gnu::noinline]] inline void no_batch() noexcept {
  wrong_use(lease_without_batch);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
