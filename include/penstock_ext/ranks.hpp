// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Ranks of data-parallel training: the launcher's variables, and a check that all ranks train
/// alike.

#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>
