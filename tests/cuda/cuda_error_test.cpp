// SPDX-License-Identifier: BSL-1.0
#include <string>

#include <penstock/cuda/cuda_device.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

template <class Error>
void check_throws(cudaError_t code, const std::string& part) {
  INFO(part);
  const auto error =
      test::error_of<Error>([&] { ps::detail::throw_cuda_error(code, "cudaSomething"); });
  CHECK(error.code() == code);
  CHECK(std::string{error.call()} == "cudaSomething");
  for (const std::string& each :
       {part, std::string{"cudaSomething"}, std::string{cudaGetErrorName(code)},
        std::string{"cuda_error_test.cpp:"}}) {
    CHECK(test::has(error.what(), each));
  }
}

}  // namespace

TEST_CASE("a CUDA error names call, code, place and remedy, and has its own type",
          "[cuda][promise:honest-5]") {
  fake_cuda::reset();
  check_throws<ps::cuda_error>(cudaErrorInvalidValue, "a CUDA call failed");
  check_throws<ps::no_cuda_driver>(cudaErrorInsufficientDriver, "update the driver");
  check_throws<ps::no_cuda_device>(cudaErrorNoDevice, "CUDA_VISIBLE_DEVICES");
  check_throws<ps::capture_in_progress>(cudaErrorStreamCaptureIsolation, "end the capture");
  check_throws<ps::cuda_context_lost>(cudaErrorIllegalAddress, "compute-sanitizer");
}

TEST_CASE("an error with a common cause names it", "[cuda]") {
  fake_cuda::reset();
  check_throws<ps::no_cuda_driver>(cudaErrorInitializationError, "fork()");
  check_throws<ps::no_cuda_driver>(cudaErrorSystemNotReady, "nvidia-fabricmanager");
  for (const auto code : {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction,
                          cudaErrorUnsupportedPtxVersion}) {
    check_throws<ps::cuda_error>(code, "CMAKE_CUDA_ARCHITECTURES");
  }
}

TEST_CASE("errors that need a new process are a lost context, with older toolkits too", "[cuda]") {
  fake_cuda::reset();
  for (const int code :
       {226, 721, int{cudaErrorMpsClientTerminated}, int{cudaErrorExternalDevice}}) {
    check_throws<ps::cuda_context_lost>(static_cast<cudaError_t>(code), "context is lost");
  }
}

TEST_CASE("no driver, no device and a wrong ordinal are different errors",
          "[cuda][fault:devices-2]") {
  fake_cuda::reset({.no_driver = true});
  CHECK_THROWS_AS(ps::cuda_device{0}, ps::no_cuda_driver);
  CHECK_THROWS_AS(ps::cuda_device{0}, ps::no_cuda_driver);  // fails the second time too
  fake_cuda::reset({.devices = 0});
  CHECK_THROWS_AS(ps::cuda_device{0}, ps::no_cuda_device);
  fake_cuda::reset({.devices = 2});
  CHECK_NOTHROW(ps::cuda_device{1});
  CHECK_THROWS_AS(ps::cuda_device{2}, ps::invalid_device_ordinal);
  CHECK_THROWS_AS(ps::cuda_device{-1}, ps::invalid_device_ordinal);
  CHECK_THROWS_WITH(
      ps::cuda_device{2},
      "device ordinal 2 is out of range: there are 2 devices (CUDA_VISIBLE_DEVICES applies)");
}

TEST_CASE("the library clears the last error of its own calls", "[cuda][promise:honest-5]") {
  fake_cuda::reset();
  const ps::cuda_device device{0};
  fake_cuda::fail_call_of("cudaEventCreateWithFlags", 0, cudaErrorUnknown);
  CHECK_THROWS_AS(device.make_event(), ps::cuda_error);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK_NOTHROW(device.make_event());
}

TEST_CASE("an event that is not ready leaves no last error", "[cuda]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  auto event = device.make_event();
  fake_cuda::launch(stream.get(), [] {});
  device.record(event, stream);
  CHECK_FALSE(device.is_complete(event));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  device.synchronize(event);
  CHECK(device.is_complete(event));
}

TEST_CASE("a pending error of the program is reported as the program's and is not cleared",
          "[cuda][promise:honest-5][fault:devices-6]") {
  fake_cuda::reset();
  const ps::cuda_device device{0};
  auto event = device.make_event();
  const auto stream = device.make_stream();
  CHECK(cudaSetDevice(77) == cudaErrorInvalidDevice);  // an unchecked error of the program
  const auto calls = fake_cuda::calls();
  CHECK_THROWS_AS(device.wait(stream, event), ps::pending_cuda_error);
  CHECK(fake_cuda::calls() == calls);  // the library has made no call
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  CHECK_THROWS_AS(device.record(event, stream), ps::pending_cuda_error);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK_NOTHROW(device.record(event, stream));
}

TEST_CASE("a wait completes although an error of the program is pending", "[cuda]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  auto event = device.make_event();
  bool ran = false;
  fake_cuda::launch(stream.get(), [&ran] { ran = true; });
  device.record(event, stream);
  CHECK(cudaSetDevice(77) == cudaErrorInvalidDevice);
  CHECK_NOTHROW(device.synchronize(event));
  CHECK(ran);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("a wait for a default stream or a device completes although an error is pending",
          "[cuda][fault:devices-6]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late, .devices = 2});
  const ps::cuda_device device{1};
  const bool is_of_stream = GENERATE(true, false);
  bool ran = false;
  {
    const auto current = device.enter_scope();
    fake_cuda::launch(cudaStreamLegacy, [&ran] { ran = true; });
  }
  CHECK(cudaSetDevice(77) == cudaErrorInvalidDevice);
  if (is_of_stream) {
    CHECK_NOTHROW(device.synchronize(ps::cuda_stream_ref{cudaStreamLegacy}));
  } else {
    CHECK_NOTHROW(device.synchronize());
  }
  CHECK(ran);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("a failed wait replaces the program's pending error", "[cuda][fault:devices-6]") {
  fake_cuda::reset();
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  CHECK(cudaSetDevice(77) == cudaErrorInvalidDevice);
  fake_cuda::fail_call_of("cudaStreamSynchronize", 0, cudaErrorUnknown);
  CHECK_THROWS_AS(stream.synchronize(), ps::cuda_error);
  // Not success, because the program's call has failed.
  CHECK(cudaGetLastError() == cudaErrorUnknown);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("cudaErrorNotReady left by a polling program is not an error", "[cuda]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  auto event = device.make_event();
  fake_cuda::launch(stream.get(), [] {});
  CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);
  CHECK_NOTHROW(device.record(event, stream));
  fake_cuda::fail_call_of("cudaEventRecord", 0, cudaErrorUnknown);
  CHECK_THROWS_AS(device.record(event, stream), ps::cuda_error);
  // The library clears its own error, which has replaced the program's error.
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("destructors continue although an error of the program is pending", "[cuda]") {
  fake_cuda::reset();
  {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    const auto event = device.make_event();
    void* memory = device.allocate(100);
    CHECK(cudaSetDevice(77) == cudaErrorInvalidDevice);
    device.deallocate(memory, 100);
  }
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a driver that is being unloaded does not end the program", "[cuda]") {
  fake_cuda::reset();
  {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    const auto event = device.make_event();
    fake_cuda::unload();
  }
  fake_cuda::reset();
}

TEST_CASE("a kernel fault surfaces as a lost context in every later call", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_device device{0};
  {
    const auto stream = device.make_stream();
    auto event = device.make_event();
    fake_cuda::kernel_fault(stream.get(), cudaErrorIllegalAddress);
    CHECK_THROWS_AS(device.synchronize(ps::cuda_stream_ref{stream}), ps::cuda_context_lost);
    CHECK_THROWS_AS(device.record(event, stream), ps::cuda_context_lost);
    CHECK_THROWS_AS(device.allocate(100), ps::cuda_context_lost);
    CHECK_THROWS_AS(device.make_stream(), ps::cuda_context_lost);
  }
  fake_cuda::reset();
}
