// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/cuda_device.hpp>

#include <chrono>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("events time only where they are to, and none has the driver interrupted", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_device device;
  const ps::cuda_event by_default{0};
  CHECK(fake_cuda::event_flags(by_default.get()) == cudaEventDisableTiming);
  CHECK(by_default.is_polled());
  const auto by_host = device.make_event(ps::event_wait::by_host);
  CHECK(fake_cuda::event_flags(by_host.get()) == cudaEventDisableTiming);
  CHECK(by_host.is_polled());
  const auto by_streams = device.make_event(ps::event_wait::by_streams);
  CHECK(fake_cuda::event_flags(by_streams.get()) == cudaEventDisableTiming);
  CHECK_FALSE(by_streams.is_polled());
  const auto timed = device.make_event(ps::event_wait::timed);
  CHECK(fake_cuda::event_flags(timed.get()) == cudaEventDefault);
}

TEST_CASE("the device tells the time between two timed events, and refuses others", "[cuda]") {
  fake_cuda::reset();
  {
    const ps::cuda_device device;
    const auto stream = device.make_stream();
    auto begin = device.make_event(ps::event_wait::timed);
    auto end = device.make_event(ps::event_wait::timed);
    auto plain = device.make_event(ps::event_wait::by_streams);
    auto* memory = device.allocate(256);
    device.record(begin, stream);
    device.copy_async(memory, memory, 64, stream);
    device.copy_async(memory, memory, 64, stream);
    device.record(end, stream);
    device.record(plain, stream);
    CHECK_THROWS_AS(device.elapsed(begin, end), ps::cuda_error);  // not complete yet
    device.synchronize(end);
    CHECK(device.elapsed(begin, end) == std::chrono::milliseconds{2});  // the double's: one each
    CHECK_THROWS_AS(device.elapsed(begin, plain), ps::cuda_error);
    device.deallocate(memory, 256);
  }
  CHECK(fake_cuda::expect_clean());
}
