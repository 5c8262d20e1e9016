// SPDX-License-Identifier: BSL-1.0
// The program for a GPU: main.cpp by nvcc, with one device more to choose from.
#define EXAMPLE_HAS_CUDA
#include "cuda_backend.cuh"
#include "main.cpp"
