// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>

#include <penstock/core/detail/checked_off.hpp>
#include <penstock/core/detail/checked_on.hpp>
#include <penstock/core/detail/wrong_use.hpp>

/// @file
/// The checked build: `-DPENSTOCK_CHECKED=1` for the whole program; the CMake target defines it in
/// Debug builds. With 2, a SIGSEGV handler also names the batch that a stale address belonged to.
/// Views grow by two words, and each access through a view checks its lease. docs/checked.md lists
/// what is reported. In other builds all of this is empty.

static_assert(std::is_trivially_copyable_v<penstock::detail::lease_tag>);
