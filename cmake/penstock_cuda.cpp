// SPDX-License-Identifier: BSL-1.0
// penstock::compiled_cuda: what penstock.cpp has of the CPU device, of the CUDA device.
#include <penstock/cuda.hpp>

#if !PENSTOCK_COMPILED || !PENSTOCK_COMPILED_CUDA
#error \
    "compile with PENSTOCK_COMPILED=1 and PENSTOCK_COMPILED_CUDA=1, as the CMake target \
penstock::compiled_cuda does"
#endif

PENSTOCK_ENGINE_OF(template, penstock::cuda_device)
