// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The umbrella with the CUDA device. Needs `cuda_runtime_api.h` and the runtime library
/// (`penstock::cuda`), and no nvcc. For code that nvcc compiles there is `device/on_device.cuh` besides.

#include <penstock/penstock.hpp>

#include <penstock/device/cuda_call.hpp>
#include <penstock/device/cuda_device.hpp>
#include <penstock/device/cuda_error.hpp>
#include <penstock/device/cuda_event.hpp>
#include <penstock/device/cuda_graph.hpp>
#include <penstock/device/cuda_graphs.hpp>
#include <penstock/device/cuda_pinned.hpp>
#include <penstock/device/cuda_stream.hpp>
