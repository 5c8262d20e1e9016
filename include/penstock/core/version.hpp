// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The version of the library headers: major * 10000 + minor * 100 + patch.
#define PENSTOCK_VERSION 100
#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

#if defined(_MSVC_LANG)
#error "penstock supports Linux with GCC >= 12, clang >= 14 or nvcc >= 12.4"
#elif __cplusplus < 202002L
#error "penstock needs C++20: compile with -std=c++20 (nvcc: -std=c++20 as well)"
// Including a missing file stops the compiler before it reports many errors.
#include "penstock needs C++20"
#elif !defined(__cpp_exceptions)
#error "penstock needs exceptions: compile without -fno-exceptions"
#include "penstock needs exceptions"
#endif

#include <version>
#if defined(_LIBCPP_VERSION) && !defined(__cpp_lib_jthread)
#error "penstock needs std::stop_token: with libc++ 18 or newer compile with -fexperimental-library"
#include "penstock needs std::stop_token"
#endif

/// 1 in a build that checks how leases and views are used (see docs/checked.md). The default is 0.
/// The value must be the same in the whole program. The CMake target defines 1 in Debug builds,
/// unless the option `PENSTOCK_CHECKED` specifies another value.
#ifndef PENSTOCK_CHECKED
#define PENSTOCK_CHECKED 0
#endif

/// 1 in a build that marks its stages for profilers through NVTX. The default is 0. The value must
/// be the same in the whole program. Defined by the CMake target `penstock::nvtx`.
#ifndef PENSTOCK_NVTX
#define PENSTOCK_NVTX 0
#endif

/// 1 if the program links `penstock::compiled`, a static library of the parts that do not depend on
/// a dataset or a record. The default is 0, for headers only. Defined by the CMake target.
#ifndef PENSTOCK_COMPILED
#define PENSTOCK_COMPILED 0
#endif

/// @cond components of the namespace name below
#if PENSTOCK_CHECKED
#define PENSTOCK_ABI_CHECKED _checked
#else
#define PENSTOCK_ABI_CHECKED
#endif
#if PENSTOCK_NVTX
#define PENSTOCK_ABI_NVTX _nvtx
#else
#define PENSTOCK_ABI_NVTX
#endif
#if PENSTOCK_COMPILED
#define PENSTOCK_ABI_COMPILED _compiled
#else
#define PENSTOCK_ABI_COMPILED
#endif
#define PENSTOCK_ABI_PASTE(a, b, c) v0##a##b##c
#define PENSTOCK_ABI_JOIN(a, b, c) PENSTOCK_ABI_PASTE(a, b, c)
/// @endcond

/// The name of the inline namespace. It prevents linking of incompatible builds, because views and
/// leases in a checked build have a different layout, and functions in an NVTX build do more.
/// Objects that use `penstock::compiled` and objects that use only the headers share only the
/// symbols of `penstock::per_process`, so one program may contain both.
#define PENSTOCK_ABI \
  PENSTOCK_ABI_JOIN(PENSTOCK_ABI_CHECKED, PENSTOCK_ABI_NVTX, PENSTOCK_ABI_COMPILED)

/// The namespace of all public names. The inline namespace contains the ABI version, so that two
/// versions, or a checked and an unchecked build, do not share symbols in one program.
namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The version of the headers that this translation unit includes.
struct version_number {
  /// Incremented for incompatible changes.
  int major_number;
  /// Incremented for additions, and before 1.0 also for incompatible changes.
  int minor_number;
  /// Incremented for fixes.
  int patch_number;
  friend constexpr bool operator==(version_number, version_number) = default;
};

}  // namespace detail

/// The version of these headers, as in `version.major_number`. Comparable.
inline constexpr detail::version_number version{PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR,
                                                PENSTOCK_VERSION_PATCH};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
