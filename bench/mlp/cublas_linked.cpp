// SPDX-License-Identifier: BSL-1.0
// Used if the program is linked with cuBLAS, without which it would not start.
#include "cublas.hpp"

std::optional<std::string> mlp::why_no_cublas() { return std::nullopt; }
