// SPDX-License-Identifier: BSL-1.0
// Tests the order of transforms on the copy stream of a CUDA device. Host code replaces the kernels
// of `on_device`; the tests in tests/gpu check the results of the kernels on a GPU.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using floats = ps::record<ps::field<"image", float, 28, 28>, ps::field<"label", std::uint8_t>>;

/// Converts bytes to floats, as a kernel would.
const auto to_floats = [](ps::const_batch_view<digits_flow::record> in, ps::batch_view<floats> out,
                          ps::cuda_stream_ref stream) {
  const auto work = [in, out] {
    const auto from = ps::get<"image">(in).flat();
    const auto to = ps::get<"image">(out).flat();
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
    const auto labels = ps::get<"label">(in).flat();
    for (std::size_t i = 0; i < labels.size(); ++i) ps::get<"label">(out)(i) = labels[i];
  };
  fake_cuda::launch(stream.get(), work, {in.slab(), out.slab()});
};

bool holds(const ps::const_batch_view<floats>& batch, std::uint64_t first) {
  const auto images = ps::get<"image">(batch).flat();
  for (std::size_t n = 0; n < batch.size(); ++n) {
    if (ps::get<"label">(batch)(n) != static_cast<std::uint8_t>(first + n)) return false;
    for (std::size_t i = 0; i < 784; ++i) {
      if (images[n * 784 + i] != static_cast<float>(digits_flow::digits::pixel(first + n, i)))
        return false;
    }
  }
  return true;
}

/// Runs two epochs of three full batches and a short batch. Returns the number of correct batches.
std::uint64_t run(std::size_t workers) {
  std::uint64_t right = 0;
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{28},
                    ps::sequential{},
                    device,
                    {.batch_size = 8, .workers = workers, .prefetch = 2}};
  ps::transfer feed{loader, stream, ps::on_stream<floats>(to_floats), {.depth = 2}};
  for (auto& batch : feed.epochs(0, 2)) {
    const auto look = [view = std::as_const(batch).view(), first = 8 * batch.number(), &right] {
      if (holds(view, first)) ++right;
    };
    fake_cuda::launch(stream.get(), look, {batch.data()});
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  return right;
}

}  // namespace

TEST_CASE("batches pass a transform correctly and in order under each policy", "[cuda]") {
  const std::size_t workers = GENERATE(0U, 2U);
  for (const auto policy : {fake_cuda::policy::late, fake_cuda::policy::early}) {
    fake_cuda::reset({.policy = policy});
    CHECK(run(workers) == 8);
    CHECK(fake_cuda::statistics().synchronous_copies == 0);
    CHECK(fake_cuda::expect_clean());
  }
  for (std::uint64_t seed = 0; seed < (seed_count() + 9) / 10; ++seed) {
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = seed});
    INFO("seed " << seed);
    CHECK(run(workers) == 8);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("if any call around a transform fails, the consumer gets the error and nothing leaks",
          "[cuda][fault:devices-3]") {
  fake_cuda::reset();
  REQUIRE(run(1) == 8);
  const std::uint64_t calls = fake_cuda::calls() + 10;
  std::uint64_t reached = 0;  // a run that polls less often makes fewer calls
  std::uint64_t failures = 0;
  for (std::uint64_t k = 0; k < calls; ++k) {
    INFO("call " << k << " of " << calls);
    fake_cuda::reset();
    fake_cuda::fail_call(k, cudaErrorUnknown);
    try {
      static_cast<void>(run(1));
    } catch (const ps::cuda_error& error) {
      CHECK(error.code() == cudaErrorUnknown);
      ++failures;
    }
    if (fake_cuda::calls() > k) ++reached;
    CHECK(cudaGetLastError() == cudaSuccess);
    for (const auto& finding : fake_cuda::findings()) FAIL_CHECK(finding.text);
    CHECK(fake_cuda::expect_clean());
  }
  CHECK(failures > reached * 2 / 5);  // only destructors and optional calls do not report failures
}

TEST_CASE("a transform runs with the transfer's device current", "[cuda]") {
  const clean_fake until_the_end{{.devices = 2}};
  const ps::cuda_device device{1};
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{8}, ps::sequential{}, device, {.batch_size = 8}};
  std::vector<int> seen;
  const auto look = [&](auto in, auto out, ps::cuda_stream_ref on) {
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    seen.push_back(current);
    to_floats(in, out, on);
  };
  ps::transfer feed{loader, stream, ps::on_stream<floats>(look)};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  CHECK(seen == std::vector<int>{1});
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
}
