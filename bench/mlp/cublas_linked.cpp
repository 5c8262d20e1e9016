// SPDX-License-Identifier: BSL-1.0
// The usual case: without cuBLAS the program would not have started.
#include "cublas.hpp"

std::optional<std::string> mlp::why_no_cublas() { return std::nullopt; }
