// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../examples/mlp/device_array.hpp"

namespace mlp {

using example::device_array;

}  // namespace mlp
