// SPDX-License-Identifier: BSL-1.0
// Feeds a CUDA kernel. Images are copied as bytes, a quarter of the size of floats, and converted
// to floats on the device. Each batch takes one launch. nvcc compiles the program for a GPU. The
// tests run it without a GPU, with the fake CUDA runtime in tests/fake_cuda.
#include <penstock/cuda.hpp>
#include <penstock/cuda/on_device.cuh>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

namespace ps = penstock;

// All pixels of image i have the value i % 256.
struct toy_images {
  using record_type =
      ps::record<ps::field<"image", std::uint8_t, 16, 16>, ps::field<"number", std::uint32_t>>;
  std::uint64_t size() const { return 1000; }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    for (auto& pixel : ps::get<"image">(out).flat()) pixel = static_cast<std::uint8_t>(i % 256);
    ps::get<"number">(out) = static_cast<std::uint32_t>(i);
  }
};

// Writes the mean of image i to means[i]. Each thread processes one image.
__global__ void mean_of_each(ps::tensor_view<const float, ps::dyn, 16, 16> images,
                             ps::tensor_view<const std::uint32_t, ps::dyn> numbers, float* means) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= numbers.size()) return;
  float sum = 0.0F;
  for (unsigned pixel = 0; pixel < 256; ++pixel) sum += images(i, pixel / 16, pixel % 16);
  means[numbers[i]] = sum / 256.0F;
}

int main() {
  const ps::cuda_device device{0};
  const ps::cuda_stream stream = device.make_stream();
  ps::loader loader{toy_images{}, ps::shuffled{.seed = 1}, device, {.batch_size = 64}};
  // Converts bytes to floats on the device: (x / 255 - 0.5) / 0.5.
  const auto to_float = ps::on_device<"image">(ps::normalised({.mean = 0.5, .deviation = 0.5}));
  ps::transfer feed{loader, stream, to_float};

  // Page-locked host memory to which kernels can write.
  const ps::pinned_allocator<float, ps::cuda_device> pinned{device};
  std::vector means(1000, 0.0F, pinned);

  // Each batch needs a single launch, while the next batches are copied and converted.
  for (auto& batch : feed.epoch(0)) {
    mean_of_each<<<1, 64, 0, stream.get()>>>(ps::get<"image">(batch), ps::get<"number">(batch),
                                             means.data());
  }
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    std::cerr << "a launch failed: " << cudaGetErrorString(error) << '\n';
    return 1;
  }
  device.synchronize(ps::cuda_stream_ref{stream});

  double worst = 0.0;
  for (std::size_t i = 0; i < means.size(); ++i)
    worst = std::fmax(worst, std::fabs(means[i] - (static_cast<double>(i % 256) / 127.5 - 1.0)));
  std::cout << "1000 means, off by at most " << worst << '\n';
  return worst < 1e-5 ? 0 : 1;
}
