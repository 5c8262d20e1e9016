// SPDX-License-Identifier: BSL-1.0
// Makes each call of a flow with two epochs and six batches fail once. The consumer must receive
// the right exception, all threads must end, and no object may leak.
#include <cstdint>
#include <string>

#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace {

enum class ended { well, by_our_error };

/// Runs the flow with a failing call. A flow that ignores the failure must have delivered correct
/// data.
ended run(const digits_flow::settings& how, std::uint64_t& right) {
  digits_flow::outcome found;
  ended result = ended::well;
  try {
    digits_flow::run(ps::cuda_device{0}, how, found);
  } catch (const ps::cuda_error& error) {
    CHECK(error.code() == cudaErrorUnknown);
    result = ended::by_our_error;
  } catch (const ps::out_of_memory&) {
    result = ended::by_our_error;
  }
  CHECK(found.wrong == 0);
  right = found.right;
  CHECK(cudaGetLastError() == cudaSuccess);
  for (const auto& finding : fake_cuda::findings()) FAIL_CHECK(finding.text);
  CHECK(fake_cuda::expect_clean());
  return result;
}

void sweep(const digits_flow::settings& how, std::uint64_t batches, fake_cuda::policy policy) {
  fake_cuda::reset({.policy = policy});
  std::uint64_t right = 0;
  REQUIRE(run(how, right) == ended::well);
  REQUIRE(right == batches);
  // With worker threads, the number of calls varies slightly between runs. The loop therefore
  // continues beyond the last call of the longest run.
  const std::uint64_t calls = fake_cuda::calls() + 10;
  std::uint64_t failures = 0;
  // Programs are ten times slower under a sanitizer, so only every seventh call is tested. Each
  // configuration starts at a different call.
  const std::uint64_t step = test::sanitized ? 7 : 1;
  for (std::uint64_t k = (2 * how.workers + static_cast<std::uint64_t>(policy)) % step; k < calls;
       k += step) {
    INFO("call " << k << " of " << calls);
    fake_cuda::reset({.policy = policy});
    fake_cuda::fail_call(k, cudaErrorUnknown);
    if (run(how, right) == ended::by_our_error) ++failures;
  }
  // Only failures in destructors and in optional queries may go unreported.
  CHECK(failures > calls / step / 4);
}

}  // namespace

TEST_CASE("if any call fails, the consumer gets the error and nothing leaks",
          "[cuda][fault:devices-3]") {
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const std::size_t workers = GENERATE(0U, 2U);
  INFO("policy " << static_cast<int>(policy) << ", workers " << workers);
  SECTION("in two whole epochs") { sweep({.workers = workers, .epochs = 2}, 12, policy); }
  SECTION("with a break in the second epoch") {
    sweep({.workers = workers, .epochs = 2, .stop_after = 9}, 9, policy);
  }
}

TEST_CASE("if any call of one function fails, the consumer gets the error and nothing leaks",
          "[cuda][fault:devices-3]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::random);
  for (const char* name :
       {"cudaGetDeviceCount", "cudaGetDevice", "cudaSetDevice",
        "cudaThreadExchangeStreamCaptureMode", "cudaStreamCreateWithFlags", "cudaStreamDestroy",
        "cudaStreamSynchronize", "cudaStreamWaitEvent", "cudaStreamIsCapturing",
        "cudaStreamGetDevice", "cudaEventCreateWithFlags", "cudaEventDestroy", "cudaEventRecord",
        "cudaEventSynchronize", "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost",
        "cudaMemcpyAsync"}) {
    fake_cuda::reset({.policy = policy});
    std::uint64_t right = 0;
    REQUIRE(run({.epochs = 2}, right) == ended::well);
    const std::uint64_t calls = fake_cuda::calls_of(name);
    for (std::uint64_t k = 0; k < calls; k += test::sanitized ? 3 : 1) {
      INFO(name << " " << k << " of " << calls);
      fake_cuda::reset({.policy = policy});
      fake_cuda::fail_call_of(name, k, cudaErrorUnknown);
      run({.epochs = 2}, right);
    }
  }
}

TEST_CASE("if every call starting at the k-th fails, all threads still end",
          "[cuda][fault:devices-3]") {
  fake_cuda::reset();
  std::uint64_t right = 0;
  REQUIRE(run({.epochs = 2}, right) == ended::well);
  const std::uint64_t calls = fake_cuda::calls() + 10;
  // Must outlive the work that a lost context leaves on the streams, because nothing waits for this
  // work.
  digits_flow::outcome found;
  for (std::uint64_t k = 0; k < calls; ++k) {
    INFO("from call " << k << " on, of " << calls);
    fake_cuda::reset();
    fake_cuda::fail_from(k, cudaErrorUnknown);
    try {
      digits_flow::run(ps::cuda_device{0}, {.epochs = 2}, found);
    } catch (const ps::error&) {
    }
    CHECK(found.wrong == 0);
  }
  fake_cuda::reset();
}
