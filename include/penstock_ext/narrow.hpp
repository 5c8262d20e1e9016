// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Transfers fewer bytes to the device by copying fields in a narrow type and widening them on the
/// device. GPU kernels are in `narrow/widen_on_device.cuh`.

#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/half.hpp>
#include <penstock_ext/narrow/narrowed.hpp>
