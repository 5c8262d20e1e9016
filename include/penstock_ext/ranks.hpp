// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Ranks of data-parallel training: the variables of the launcher, and a check that all ranks have
/// the same configuration.

#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>
