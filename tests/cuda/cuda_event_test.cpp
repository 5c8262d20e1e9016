// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/cuda_device.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("events have no timing, threads sleep only on events made for it", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_device device;
  const ps::cuda_event by_default{0};
  CHECK(fake_cuda::event_flags(by_default.get()) ==
        (cudaEventDisableTiming | cudaEventBlockingSync));
  const auto by_host = device.make_event(ps::event_wait::by_host);
  CHECK(fake_cuda::event_flags(by_host.get()) == (cudaEventDisableTiming | cudaEventBlockingSync));
  const auto by_streams = device.make_event(ps::event_wait::by_streams);
  CHECK(fake_cuda::event_flags(by_streams.get()) == cudaEventDisableTiming);
}
