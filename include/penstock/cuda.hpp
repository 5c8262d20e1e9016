// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The CUDA umbrella header. Requires `cuda_runtime_api.h` and the runtime library
/// (`penstock::cuda`), but not nvcc. Code compiled by nvcc can also include `cuda/on_device.cuh`.

#include <penstock/penstock.hpp>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/cuda_pinned.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/device_memory_ref.hpp>
#include <penstock/cuda/step_graphs.hpp>

/// 1 if the program links `penstock::compiled_cuda`, which contains the shared parts of loaders and
/// transfers on CUDA devices. The CMake target defines this macro. A program may combine sources
/// with and without it.
#ifndef PENSTOCK_COMPILED_CUDA
#define PENSTOCK_COMPILED_CUDA 0
#endif

#if PENSTOCK_COMPILED_CUDA
#if !PENSTOCK_COMPILED
#error "PENSTOCK_COMPILED_CUDA=1 needs PENSTOCK_COMPILED=1 too"
#endif
extern template struct penstock::detail::delete_outside_of_work<penstock::cuda_stream_ref>;
PENSTOCK_LOADERS_ON(extern template, penstock::cuda_device)
PENSTOCK_TRANSFERS_ON(extern template, penstock::cuda_device)
#endif
