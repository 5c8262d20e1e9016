// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <type_traits>

#include <penstock/cuda/cuda_device.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

static_assert(std::is_convertible_v<cudaEvent_t, ps::cuda_event_ref>);
static_assert(std::is_convertible_v<const ps::cuda_event&, ps::cuda_event_ref>);
static_assert(!std::is_convertible_v<int, ps::cuda_event_ref>);
static_assert(!std::is_convertible_v<std::nullptr_t, ps::cuda_event_ref>);

TEST_CASE("events have no timing, and let a thread sleep if they are made for that", "[cuda]") {
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
