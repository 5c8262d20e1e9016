// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Copies the results of steps to host threads while the next steps run.

#include <penstock_ext/results/results.hpp>
