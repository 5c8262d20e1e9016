// SPDX-License-Identifier: BSL-1.0
// Tests a faulting kernel. The fault destroys the context of the process, so the test restarts this
// program as a child process with the hidden test.
#include <penstock/cuda.hpp>

#include "gpu/checked_feed.hpp"
#include "gpu/child.hpp"
#include "gpu/kernels.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("child: a faulting kernel", "[.child]") {
  gpu::require_a_child();
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::loader loader{gpu::digits{6400}, ps::sequential{}, device, {.batch_size = 64, .workers = 4}};
  ps::transfer feed{loader, stream};
  const auto train = [&] {
    for (auto& batch : feed.epochs(0, 1000)) {
      if (batch.number() == 3) gpu::fault(stream.get());
    }
    device.synchronize(ps::cuda_stream_ref{stream});
  };
  CHECK_THROWS_AS(train(), ps::cuda_context_lost);
  CHECK_THROWS_AS(train(), ps::cuda_context_lost);  // the context stays lost
}

TEST_CASE("a kernel fault is a lost context, and all threads end", "[gpu][fault:devices-1]") {
  gpu::require_child_passes("child: a faulting kernel");
}
