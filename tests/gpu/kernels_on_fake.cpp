// SPDX-License-Identifier: BSL-1.0
// Implements kernels.cu and tensors.cu for the fake CUDA runtime, so that the tests of this folder
// run without a GPU.
#include "fake_cuda/fake_cuda.hpp"
#include "gpu/kernels.hpp"
#include "gpu/tensors.hpp"

#include <utility>

namespace gpu {

void launch(cudaStream_t stream, std::function<void()> work) {
  fake_cuda::launch(stream, std::move(work));
}

// Does nothing, because the fake CUDA runtime already runs work as late as possible.
void delay(cudaStream_t stream, std::uint64_t) {
  fake_cuda::launch(stream, [] {});
}

bool delay_takes_time() { return false; }

void check(cudaStream_t stream, const std::uint8_t* images, const std::uint8_t* labels,
           std::size_t samples, const std::uint64_t* order, findings* found) {
  const auto compare = [=] {
    const auto first = found->position;
    for (std::size_t n = 0; n < samples; ++n) {
      const std::uint64_t index = order[first + n];
      for (std::size_t i = 0; i < 784; ++i) found->wrong += images[n * 784 + i] != pixel(index, i);
      found->wrong += labels[n] != static_cast<std::uint8_t>(index);
    }
    found->position = first + samples;
  };
  fake_cuda::launch(stream, compare, {images, labels, order, found});
}

void digest(cudaStream_t stream, const ragged_batch& batch, std::uint64_t* digests) {
  const auto make = [=] {
    for (std::size_t n = 0; n < batch.tokens.size(); ++n) digests[n] = batch.digest(n);
  };
  fake_cuda::launch(stream, make, {batch.tokens.data(), digests});
}

void add_one(cudaStream_t stream, std::uint8_t* data, std::size_t count, std::size_t stride) {
  const auto add = [=] {
    for (std::size_t i = 0; i < count; ++i) ++data[i * stride];
  };
  fake_cuda::launch(stream, add, {data});
}

void fault(cudaStream_t stream) { fake_cuda::kernel_fault(stream, cudaErrorIllegalAddress); }

void add_last_rows(cudaStream_t stream, const images_view& images, unsigned long long* sum) {
  const auto add = [=] {
    for (std::size_t n = 0; n < images.extent(0); ++n) {
      for (std::size_t i = 0; i < 28; ++i) *sum += images(n, std::size_t{27}, i);
    }
  };
  fake_cuda::launch(stream, add, {images.data(), sum});
}

void add_all(cudaStream_t stream, const images_view& images, unsigned long long* sum) {
  const auto add = [=] {
    for (const std::uint8_t x : images.flat()) *sum += x;
  };
  fake_cuda::launch(stream, add, {images.data(), sum});
}

}  // namespace gpu
