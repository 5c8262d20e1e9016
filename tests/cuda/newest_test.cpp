// SPDX-License-Identifier: BSL-1.0
// Tests `transfer_options::newest` with a loop that only launches its steps. Frames arrive while a
// step runs, at any time that the device may choose for its work. Only the frames that are handed
// out are counted.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/clean_double.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/frames.hpp"

namespace ps = penstock;

TEST_CASE("a loop that only launches gets the newest frame at the end of the step before it",
          "[cuda]") {
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const std::size_t depth = GENERATE(1, 2, 3);
  const std::size_t in_body = GENERATE(0, 1, 2);  // frames that can be copied during the step
  const std::size_t in_step = GENERATE(0, 1, 3);  // frames that arrive while the step runs
  const std::size_t frames = in_body + in_step;
  if (frames == 0) return;
  CAPTURE(depth, in_body, in_step);
  const clean_double clean{{.policy = policy, .seed = depth}};
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
    const bool is_last = got.size() == steps;
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
}
