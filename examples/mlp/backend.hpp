// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/system/cpp/execution_policy.h>
#include <thrust/transform_reduce.h>

#include <penstock/device/cpu_device.hpp>

#include "device_array.hpp"

namespace example {

/// Runs the network on the CPU device. The thread of the training loop takes the place of a stream,
/// so the step is the body of the loop. The network uses a single thread, so that every sum has a
/// fixed order. `cuda_backend` has the same members for a GPU, and the rest of the program is the
/// same for both.
class cpu_backend {
 public:
  using device_type = penstock::cpu_device;
  /// Stands in for `penstock::step_graphs`: calls every step.
  struct step_graphs {
    explicit step_graphs(const device_type&) {}
    template <class Batch, class Step>
    void launch(const Batch&, device_type::stream_ref stream, const Step& step) {
      step(stream);
    }
    template <class Step>
    void launch(std::size_t, std::size_t, device_type::stream_ref stream, const Step& step) {
      step(stream);
    }
    void clear() {}
  };
  /// The tile of a product: eight rows of sixteen columns fill the vector registers of AVX2 and
  /// AVX-512.
  static constexpr std::size_t tile_height = 8;
  static constexpr std::size_t tile_width = 16;

  [[nodiscard]] const device_type& device() const { return device_; }
  [[nodiscard]] device_type::stream_ref stream() const { return device_.inline_stream(); }
  [[nodiscard]] static std::string name() { return "CPU device"; }
  /// True if the step occupies a core that the workers could otherwise use.
  static constexpr bool shares_cores = true;

  /// Execution policy for Thrust.
  [[nodiscard]] static auto policy() { return thrust::cpp::par; }

  /// Sets *to to the sum of function(i) for all i < count.
  template <class Function>
  void sum(std::size_t count, const Function& function, float* to) const {
    const thrust::counting_iterator<std::size_t> first{0};
    *to = thrust::transform_reduce(policy(), first, first + static_cast<std::ptrdiff_t>(count),
                                   function, 0.0F, thrust::plus<float>{});
  }

 private:
  device_type device_;
};

}  // namespace example
