// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <string>

namespace mlp {

/// Returns the reason why cuBLAS cannot be loaded, or an empty optional if it can.
[[nodiscard]] std::optional<std::string> why_no_cublas();

}  // namespace mlp
