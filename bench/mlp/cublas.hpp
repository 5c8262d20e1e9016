// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <string>

namespace mlp {

/// Why cuBLAS can't be loaded here; nothing where it can.
[[nodiscard]] std::optional<std::string> why_no_cublas();

}  // namespace mlp
