// SPDX-License-Identifier: BSL-1.0
// Used if the program is linked with cuBLAS, so that it starts only if cuBLAS is installed.
#include "cublas.hpp"

std::optional<std::string> mlp::why_no_cublas() { return std::nullopt; }
