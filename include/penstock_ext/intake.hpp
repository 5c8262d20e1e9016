// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Batches that producers push: cameras, network cards, other streams.

#include <penstock_ext/intake/intake.hpp>
