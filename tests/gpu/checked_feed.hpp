// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/cuda.hpp>

#include "gpu/kernels.hpp"

/// MNIST-like data, and a check on the GPU of the bytes that arrive.
namespace gpu {

namespace ps = penstock;

struct digits {
  using record_type =
      ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
  std::uint64_t count = 0;
  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const auto image = ps::get<"image">(out).flat();
    for (std::size_t i = 0; i < image.size(); ++i) image[i] = pixel(index, i);
    ps::get<"label">(out) = static_cast<std::uint8_t>(index);
  }
};

/// Checks that batches arrive on a stream in the expected order.
class checker {
 public:
  checker(const ps::cuda_device& device, ps::cuda_stream_ref stream,
          std::span<const std::uint64_t> order)
      : device_(device),
        stream_(stream),
        order_(device, order.size_bytes(), ps::detail::memory_kind::device),
        found_(device, sizeof(findings), ps::detail::memory_kind::device) {
    const findings none{};
    device.copy_async(order_.data(), order.data(), order.size_bytes(), stream);
    device.copy_async(found_.data(), &none, sizeof(none), stream);
    device.synchronize(stream);
  }

  /// Queues the check of a batch on the stream `on`.
  template <class Batch>
  void check(const Batch& batch, ps::cuda_stream_ref on) const {
    gpu::check(on.get(), ps::get<"image">(batch).data(), ps::get<"label">(batch).data(),
               batch.size(), reinterpret_cast<const std::uint64_t*>(order_.data()),
               reinterpret_cast<findings*>(found_.data()));
  }

  /// Waits for the stream and returns the combined findings of all checks.
  [[nodiscard]] findings found() const {
    findings now{};
    device_.copy_async(&now, found_.data(), sizeof(now), stream_);
    device_.synchronize(stream_);
    return now;
  }

 private:
  ps::cuda_device device_;
  ps::cuda_stream_ref stream_;
  ps::detail::slab<ps::cuda_device> order_;
  ps::detail::slab<ps::cuda_device> found_;
};

/// Returns the samples of several epochs in order of delivery.
template <class Sampler>
std::vector<std::uint64_t> order_of(const Sampler& sampler, std::uint64_t samples,
                                    std::uint64_t epochs) {
  std::vector<std::uint64_t> all(samples * epochs);
  for (std::uint64_t e = 0; e < epochs; ++e) {
    sampler.order(samples, e).fill(0, std::span{all}.subspan(e * samples, samples));
  }
  return all;
}

}  // namespace gpu
