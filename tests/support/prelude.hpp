// SPDX-License-Identifier: BSL-1.0
#pragma once

// Headers that nearly every test includes, built as a precompiled header. A test must still include
// the headers it uses, because a build may disable precompiled headers.
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
