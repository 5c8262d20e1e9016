// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstring>
#include <memory>
#include <vector>

namespace test {

/// Runs a kernel on the calling thread. In each phase of a block, its threads run one by one, in
/// ascending or descending order. The order matters only if a thread reads data that another thread
/// writes in the same phase.
template <class Kernel>
void run_on_host(const Kernel& kernel, bool upwards = true) {
  const auto shared = std::make_unique<typename Kernel::shared>();
  for (unsigned block = 0; block < kernel.blocks(); ++block) {
    std::vector<typename Kernel::local> locals(Kernel::threads);
    std::memset(static_cast<void*>(shared.get()), 0xff, sizeof *shared);  // sets every float to NaN
    for (unsigned p = 0; p < kernel.phases(block); ++p) {
      for (unsigned i = 0; i < Kernel::threads; ++i) {
        const unsigned thread = upwards ? i : Kernel::threads - 1 - i;
        kernel.phase(p, block, thread, *shared, locals[thread]);
      }
    }
  }
}

}  // namespace test
