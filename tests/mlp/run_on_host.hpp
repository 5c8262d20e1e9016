// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstring>
#include <memory>
#include <vector>

namespace test {

/// Runs a kernel on the calling thread: in each phase of a block its threads one by one, upwards or
/// downwards, which makes no difference unless one needs what another writes in that phase.
template <class Kernel>
void run_on_host(const Kernel& kernel, bool upwards = true) {
  const auto shared = std::make_unique<typename Kernel::shared>();
  for (unsigned block = 0; block < kernel.blocks(); ++block) {
    std::vector<typename Kernel::local> locals(Kernel::threads);
    std::memset(static_cast<void*>(shared.get()), 0xff, sizeof *shared);  // all of them NaN
    for (unsigned p = 0; p < kernel.phases(block); ++p) {
      for (unsigned i = 0; i < Kernel::threads; ++i) {
        const unsigned thread = upwards ? i : Kernel::threads - 1 - i;
        kernel.phase(p, block, thread, *shared, locals[thread]);
      }
    }
  }
}

}  // namespace test
