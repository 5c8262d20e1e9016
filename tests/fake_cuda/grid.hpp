// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fake_cuda.hpp"
#include "kernel.hpp"

namespace fake_cuda::detail {

/// A kernel launch.
struct grid {
  const void* kernel = nullptr;
  kernel_type type;
  std::shared_ptr<void> arguments;
  dim3 blocks;
  dim3 threads;
};

/// The receiver of findings about a kernel.
class kernel_findings {
 public:
  virtual void find(const std::string& kind, const std::string& text) = 0;

 protected:
  ~kernel_findings() = default;
};

/// Runs a grid on the calling thread, block by block, with one fiber per thread of a block. Returns
/// the number of barriers that its blocks have passed.
std::uint64_t run(const grid& what, order how, std::uint64_t seed, kernel_findings& hear);

}  // namespace fake_cuda::detail
