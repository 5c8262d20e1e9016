// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace mlp {

/// Whether a product takes a matrix with rows and columns exchanged.
enum class transpose { no, yes };

}  // namespace mlp
