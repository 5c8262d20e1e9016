// SPDX-License-Identifier: BSL-1.0
#pragma once

/// What a rank knows of the others: the launcher's variables, and a check that all run the same.

#include <penstock_ext/ranks/require_same_run.hpp>
#include <penstock_ext/ranks/world.hpp>
