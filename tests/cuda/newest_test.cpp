// SPDX-License-Identifier: BSL-1.0
// Tests `transfer_options::newest` with a loop body that only launches its step. Frames arrive
// while a step runs, and the device may choose any order for its work. The tests count only the
// delivered frames.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/streamed/streamed.hpp>

#include "cuda/clean_fake.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/frames.hpp"

namespace ps = penstock;

TEST_CASE("a loop that only launches gets the newest frame at the end of the step before it",
          "[cuda]") {
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const std::size_t depth = GENERATE(1U, 2U, 3U);
  // Number of frames that can be copied during the step.
  const std::size_t in_body = GENERATE(0U, 1U, 2U);
  const std::size_t in_step = GENERATE(0U, 1U, 3U);  // number of frames that arrive during the step
  const std::size_t frames = in_body + in_step;
  if (frames == 0) return;
  CAPTURE(depth, in_body, in_step);
  const clean_fake clean{{.policy = policy, .seed = depth}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  frame_queue<ps::cuda_device> source{device};
  source.push(1);
  constexpr std::size_t steps = 6;
  std::vector<std::uint64_t> expected;
  for (std::size_t step = 0; step != steps; ++step) expected.push_back(step * frames);
  std::vector<std::uint64_t> got;
  std::vector<std::uint64_t> computed;
  ps::transfer feed{source, stream, {.depth = depth, .newest = true}};
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.skipped() == (got.empty() ? 0 : frames - 1));
    got.push_back(batch.tag());
    const bool is_last = got.size() >= steps;
    if (!is_last) source.push(in_body);
    const auto step = [&source, &computed, in_step, is_last,
                       frame = ps::get<"frame">(batch).data()] {
      computed.push_back(*frame);
      if (!is_last) source.push(in_step);
    };
    fake_cuda::launch(stream.get(), step, {batch.data()});
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(got == expected);
  CHECK(computed == expected);
  // With other policies a step may run before the body ends.
  if (policy == fake_cuda::policy::late) {
    const std::size_t copies_of_a_step = (in_body != 0 ? 1U : 0U) + (in_step != 0 ? 1U : 0U);
    CHECK(feed.stats().copies == 1 + (steps - 1) * copies_of_a_step);
  }
}

TEST_CASE("newest delivers each batch of a stream or counts it as skipped", "[cuda]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::random);
  const std::size_t depth = GENERATE(1U, 4U);
  const auto zero_copy = GENERATE(ps::zero_copy_use::never, ps::zero_copy_use::always);
  CAPTURE(depth);
  const clean_fake clean{{.policy = policy, .seed = depth}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  using number = ps::record<ps::field<"x", std::uint64_t>>;
  constexpr std::uint64_t count = 1003;
  ps::streamed<number, ps::cuda_device> source{
      device,
      [next = std::uint64_t{0}](ps::batch_view<number> out) mutable {
        std::size_t n = 0;
        while (n != out.size() && next != count) ps::get<"x">(out[n++]) = next++;
        return n;
      },
      {.batch_size = 10, .workers = 2, .prefetch = 5}};
  ps::transfer feed{
      source, stream, {.depth = depth, .newest = true, .tuning = {.zero_copy = zero_copy}}};
  std::uint64_t next = 0;
  std::size_t wrong = 0;
  for (auto& batch : feed.epoch(0)) {
    next += 10 * batch.skipped();
    const auto look = [next, &wrong, size = batch.size(), x = ps::get<"x">(batch).data()] {
      for (std::size_t i = 0; i != size; ++i) wrong += x[i] == next + i ? 0U : 1U;
    };
    fake_cuda::launch(stream.get(), look, {batch.data()});
    next += batch.size();
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  CHECK(next == count);
  CHECK(wrong == 0);
}
