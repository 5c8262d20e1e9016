// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/penstock.hpp>

#include "data.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "host_backend.hpp"
#include "run_on.hpp"
// Included after the host backend, because the stand-ins extend the namespace of Thrust.
#include "cuda_backend.cuh"

/// The training loops of bench/mlp on the CUDA device with the fake CUDA runtime, and on the CPU
/// device.
namespace fused_on_cuda {

namespace ps = penstock;

/// A set of digits.
struct digits : mlp::digit_set {
  explicit digits(std::size_t count, std::uint64_t first_key = 0)
      : mlp::digit_set(mlp::random_digits(count, first_key)) {}
  [[nodiscard]] auto data() const { return first(0); }
};

[[nodiscard]] inline mlp::options chosen_for(std::size_t epochs) {
  mlp::options chosen;
  chosen.epochs = epochs;
  chosen.batch = 16;
  chosen.workers = 1;
  chosen.seed = 5;
  return chosen;
}

/// The trace of a run, and the accuracy of the network on other digits.
struct outcome {
  mlp::run_trace trace;
  double accuracy = 0.0;
};

/// Trains once in each mode.
template <class Backend, class Data>
[[nodiscard]] std::vector<outcome> train(const typename Backend::device_type& device,
                                         const Backend& backend, const Data& data,
                                         const Data& tested, const mlp::options& chosen,
                                         const std::vector<mlp::technique>& modes) {
  using pixel = mlp::pixel_of<Data>;
  device.make_current();
  const auto stream = Backend::make_stream(device);
  mlp::trainer<Backend> trained{device,        backend,     stream,     chosen.batch,
                                chosen.epochs, data.size(), chosen.seed};
  mlp::sample_store<typename Backend::device_type, pixel> test{device, tested.size()};
  test.fill(0, tested, {}, stream);
  std::vector<outcome> found;
  for (const mlp::technique mode : modes) {
    if (mode == mlp::technique::serial) {
      mlp::train_serially(data, device, trained, chosen);
    } else if (mode == mlp::technique::workers) {
      mlp::train_with_workers(data, device, trained, chosen);
    } else if (mode == mlp::technique::overlapped) {
      mlp::train_overlapped(data, device, trained, chosen);
    } else {
      const mlp::resident_set<Backend, pixel> set{
          device,       stream,        data,       false, mlp::order_of(chosen),
          chosen.batch, chosen.epochs, chosen.seed};
      static_cast<void>(mlp::train_resident(set, data.size(), device, trained, chosen));
    }
    found.push_back(
        {trained.trace(), trained.accuracy(test.images.data(), test.labels.data(), tested.size())});
  }
  return found;
}

/// Trains on the CPU device, in one mode.
template <class Data>
[[nodiscard]] outcome on_host(const Data& data, const Data& tested, const mlp::options& chosen) {
  return train(ps::cpu_device{}, mlp::host_backend{}, data, tested, chosen,
               {mlp::technique::serial})[0];
}

/// Trains on the CUDA device, with the kernels specified by `chosen`.
template <class Data>
[[nodiscard]] std::vector<outcome> on_cuda(const Data& data, const Data& tested,
                                           const mlp::options& chosen,
                                           const std::vector<mlp::technique>& modes) {
  const ps::cuda_device device{0};
  const mlp::cuda_backend backend{device, chosen.kernels, chosen.graph};
  return train(device, backend, data, tested, chosen, modes);
}

/// Returns the largest difference in mean loss between two runs over their first five steps, or
/// fewer if the runs are shorter. Returns NaN if a loss is NaN.
[[nodiscard]] inline double first_losses_apart(const outcome& a, const outcome& b,
                                               const mlp::options& chosen) {
  const auto found = mlp::first_losses_of(a.trace, chosen);
  const auto expected = mlp::first_losses_of(b.trace, chosen);
  double max = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double apart = std::abs(found.at(i) - expected[i]);
    if (!(apart <= max)) max = apart;
  }
  return max;
}

}  // namespace fused_on_cuda
