// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Ranks in data-parallel training. Reads launcher variables, and checks that all ranks have the
/// same configuration.

#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>
