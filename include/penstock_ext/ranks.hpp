// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Ranks of data-parallel training: reads the variables of the launcher, and checks that all ranks
/// have the same configuration.

#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>
