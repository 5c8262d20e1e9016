// SPDX-License-Identifier: BSL-1.0
#pragma once

// What nearly every test includes, compiled once for all of them (a precompiled header). A test
// still names what it uses: CMake leaves this out where precompiled headers are turned off.
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
