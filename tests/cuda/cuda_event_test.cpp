// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/cuda_device.hpp>

#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("only timing events record time, and no event uses blocking synchronization", "[cuda]") {
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

TEST_CASE("the device measures the time between two timing events and rejects other events",
          "[cuda]") {
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
    CHECK_THROWS_AS(device.elapsed(begin, end), ps::cuda_error);  // the events are not complete yet
    device.synchronize(end);
    // The clock of the fake CUDA runtime advances by 1 ms per operation.
    CHECK(device.elapsed(begin, end) == std::chrono::milliseconds{2});
    CHECK_THROWS_AS(device.elapsed(begin, plain), ps::cuda_error);
    device.deallocate(memory, 256);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a sleeping wait restores the thread's timer slack, even if it fails", "[cuda]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  const bool fails = GENERATE(false, true);
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  auto event = device.make_event(ps::event_wait::by_host);
  REQUIRE(::prctl(PR_SET_TIMERSLACK, 70'000UL) == 0);
  int meanwhile = 0;
  bool can_tell = true;  // false if the system hides the timer slack of other threads
  const std::string slack = "/proc/" + std::to_string(::gettid()) + "/timerslack_ns";
  fake_cuda::launch(stream.get(), [&] {
    // Waits until the waiting thread sleeps instead of polling.
    for (int turn = 0; turn < 2000 && meanwhile != 1; ++turn) {
      can_tell = can_tell && std::ifstream{slack} >> meanwhile;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  });
  device.record(event, stream);
  if (fails) {
    fake_cuda::fail_call_of("cudaEventQuery", 1, cudaErrorUnknown);
    CHECK_THROWS_AS(device.synchronize(event), ps::cuda_error);
  } else {
    device.synchronize(event);
    CHECK((meanwhile == 1 || !can_tell));
  }
  CHECK(::prctl(PR_GET_TIMERSLACK) == 70'000);
  ::prctl(PR_SET_TIMERSLACK, 0UL);  // restores the default of the process
  device.synchronize(ps::cuda_stream_ref{stream});
}
