// SPDX-License-Identifier: BSL-1.0
// Runs on_device and a consumer's kernel on the fake CUDA runtime. The program is built once
// unchanged and once per mutant. `edges clean` passes if no round finds an error. `edges caught`
// passes if all rounds with the late policy and three quarters of the rounds with the random policy
// find an error.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda/digits_flow.hpp"
#include "kernels/passage.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t samples = 60;
constexpr std::size_t batch_size = 8;

struct to_float {
  [[nodiscard]] __device__ float operator()(std::uint8_t x) const { return static_cast<float>(x); }
};

/// The consumer's computation, which stores the batch.
__global__ void keep(const float* images, std::size_t count, float* to) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = images[i];
}

std::size_t wrong_in_passages() {
  std::size_t wrong = 0;
  for (const std::size_t length : {17U, 1025U, 4099U}) {
    const passages::passage one{length, 3, ps::on_device<"image">(to_float{})};
    wrong += one.wrong<"image">([](std::size_t i) { return to_float{}(passages::pixel(i)); });
    wrong += one.wrong_copies() + one.spoilt();
  }
  return wrong;
}

/// Runs two epochs of a feed with dependent kernels on two streams. Returns the number of wrong
/// values.
std::size_t wrong_in_feed() {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{samples},
                    ps::sequential{},
                    device,
                    {.batch_size = batch_size, .workers = 1, .prefetch = 2}};
  ps::transfer feed{loader, stream, ps::on_device<"image">(to_float{}), {.depth = 2}};
  std::vector<float> kept(2 * samples * 784);
  const ps::detail::slab memory{device, kept.size() * sizeof(float),
                                ps::detail::memory_kind::device};
  auto* to = reinterpret_cast<float*>(memory.data());
  for (auto& batch : feed.epochs(0, 2)) {
    const auto images = ps::get<"image">(std::as_const(batch)).flat();
    cudaLaunchConfig_t config{};
    config.gridDim = static_cast<unsigned>((images.size() + 255) / 256);
    config.blockDim = 256;
    config.stream = stream.get();
    if (cudaLaunchKernelEx(&config, &keep, images.data(), images.size(), to) != cudaSuccess) {
      return 1;
    }
    to += images.size();
  }
  device.copy_async(kept.data(), memory.data(), kept.size() * sizeof(float), stream);
  device.synchronize(ps::cuda_stream_ref{stream});
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto pixel = digits_flow::digits::pixel(i / 784 % samples, i % 784);
    wrong += kept[i] != static_cast<float>(pixel) ? 1U : 0U;
  }
  return wrong;
}

/// Returns the number of runs, out of `rounds`, that find an error.
int caught(fake_cuda::policy policy, int rounds) {
  int seen = 0;
  for (int round = 0; round < rounds; ++round) {
    fake_cuda::reset({.policy = policy,
                      .seed = static_cast<std::uint64_t>(round),
                      .kernels = static_cast<fake_cuda::order>(round % 3)});
    const std::size_t wrong = wrong_in_passages() + wrong_in_feed();
    if (wrong != 0 || !fake_cuda::findings().empty()) ++seen;
  }
  return seen;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int rounds = 12;
  const bool is_mutant = argc == 2 && std::strcmp(argv[1], "caught") == 0;
  const int late = caught(fake_cuda::policy::late, rounds);
  const int random = caught(fake_cuda::policy::random, rounds);
  std::printf("rounds of %d that see something wrong: late %d, random %d\n", rounds, late, random);
  if (is_mutant) return late == rounds && random >= rounds * 3 / 4 ? 0 : 1;
  return late + random == 0 ? 0 : 1;
}
