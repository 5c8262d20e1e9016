// SPDX-License-Identifier: BSL-1.0
#pragma once

// The includes of nearly every test, compiled once for all of them as a precompiled header. A test
// must still include what it uses, because CMake skips this header if precompiled headers are
// disabled.
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
