// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <type_traits>
#include <utility>

#include <penstock/cuda/cuda_device.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

static_assert(!std::is_copy_constructible_v<ps::cuda_event>);
static_assert(std::is_nothrow_move_constructible_v<ps::cuda_event>);

TEST_CASE("an event is destroyed once, by its last owner", "[cuda]") {
  fake_cuda::reset();
  {
    ps::cuda_event first{0};
    const cudaEvent_t handle = first.get();
    REQUIRE(handle != nullptr);
    ps::cuda_event second = std::move(first);
    ps::cuda_event third;
    CHECK(third.get() == nullptr);
    third = std::move(second);
    CHECK(third.get() == handle);
    third = ps::cuda_event{0};
    CHECK(third.get() != nullptr);
    CHECK(fake_cuda::live().events == 1);
  }
  CHECK(fake_cuda::live().events == 0);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("an event that is released belongs to the caller, and can be taken back", "[cuda]") {
  fake_cuda::reset();
  ps::cuda_event event{0};
  const cudaEvent_t handle = event.release();
  CHECK(fake_cuda::live().events == 1);
  { const auto taken = ps::cuda_event::from_native_handle(handle); }
  CHECK(fake_cuda::live().events == 0);
  CHECK(fake_cuda::expect_clean());
}

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
