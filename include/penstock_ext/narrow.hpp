// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Transfers fewer bytes to the device: fields are copied in a narrow type, and the device widens
/// them. GPU kernels are in `narrow/widen_on_device.cuh`.

#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/half.hpp>
#include <penstock_ext/narrow/narrowed.hpp>
