// SPDX-License-Identifier: BSL-1.0
// The GPU program: nvcc compiles main.cpp with one additional device.
#define EXAMPLE_HAS_CUDA
#include "cuda_backend.cuh"
#include "main.cpp"
