// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/device/cpu_device.hpp>
#include <penstock/order/random.hpp>

#if defined(__CUDACC__)
#define DATA_PARALLEL_KERNEL __host__ __device__
#else
#define DATA_PARALLEL_KERNEL
#endif

/// A perceptron 784-32-10 with ReLU, softmax cross-entropy and momentum. The network is small
/// because this example is about the all-reduce. Each kernel is a function of one index, has the
/// same source on both devices, and sums in a fixed order.
namespace data_parallel {

inline constexpr std::size_t inputs = 28 * 28;
inline constexpr std::size_t hidden = 32;
inline constexpr std::size_t classes = 10;
/// A single array contains all parameters. Each layer stores its weights, input by input, and then
/// its bias.
inline constexpr std::size_t second_layer = hidden * (inputs + 1);
inline constexpr std::size_t parameters = second_layer + classes * (hidden + 1);

/// Kernel arguments of a pass. The arrays are in device memory and have one row per sample.
struct pass {
  const std::uint8_t* images;
  const std::uint8_t* labels;
  std::size_t count;  ///< number of samples
  float scale;        ///< the weight of a sample in the loss
  const float* weights;
  float* outputs;  ///< outputs of the hidden layer
  float* slopes1;  ///< gradients of the hidden layer's inputs
  float* slopes2;  ///< gradients of the logits
  float* losses;
  float* gradients;

  [[nodiscard]] DATA_PARALLEL_KERNEL float pixel(std::size_t sample, std::size_t i) const {
    return (static_cast<float>(images[sample * inputs + i]) / 255.0F - 0.13F) / 0.31F;
  }
};

/// Computes one output of the hidden layer.
struct hide : pass {
  DATA_PARALLEL_KERNEL void operator()(std::size_t i) const {
    const std::size_t sample = i / hidden;
    const std::size_t unit = i % hidden;
    float sum = weights[inputs * hidden + unit];
    for (std::size_t k = 0; k < inputs; ++k) sum += weights[k * hidden + unit] * pixel(sample, k);
    outputs[i] = sum > 0.0F ? sum : 0.0F;
  }
};

/// Computes the loss of a sample and the gradients of its logits.
struct judge : pass {
  DATA_PARALLEL_KERNEL void operator()(std::size_t sample) const {
    const float* layer = weights + second_layer;
    float logits[classes];
    float largest = -INFINITY;
    for (std::size_t c = 0; c < classes; ++c) {
      logits[c] = layer[hidden * classes + c];
      for (std::size_t h = 0; h < hidden; ++h) {
        logits[c] += layer[h * classes + c] * outputs[sample * hidden + h];
      }
      largest = logits[c] > largest ? logits[c] : largest;
    }
    float sum = 0.0F;
    for (const float logit : logits) sum += std::exp(logit - largest);
    const std::size_t label = labels[sample];
    losses[sample] = std::log(sum) - (logits[label] - largest);
    for (std::size_t c = 0; c < classes; ++c) {
      const float share = std::exp(logits[c] - largest) / sum;
      slopes2[sample * classes + c] = scale * (share - (c == label ? 1.0F : 0.0F));
    }
  }
};

/// Computes the gradient of a parameter of the second layer.
struct differentiate_second : pass {
  DATA_PARALLEL_KERNEL void operator()(std::size_t i) const {
    const std::size_t input = i / classes;
    float sum = 0.0F;
    for (std::size_t n = 0; n < count; ++n) {
      const float from = input == hidden ? 1.0F : outputs[n * hidden + input];
      sum += slopes2[n * classes + i % classes] * from;
    }
    gradients[second_layer + i] = sum;
  }
};

/// Computes the gradient of the input of a hidden unit.
struct go_back : pass {
  DATA_PARALLEL_KERNEL void operator()(std::size_t i) const {
    float sum = 0.0F;
    for (std::size_t c = 0; c < classes; ++c) {
      sum += weights[second_layer + i % hidden * classes + c] * slopes2[i / hidden * classes + c];
    }
    slopes1[i] = outputs[i] > 0.0F ? sum : 0.0F;
  }
};

/// Computes the gradient of a parameter of the first layer.
struct differentiate_first : pass {
  DATA_PARALLEL_KERNEL void operator()(std::size_t i) const {
    const std::size_t input = i / hidden;
    float sum = 0.0F;
    for (std::size_t n = 0; n < count; ++n) {
      sum += slopes1[n * hidden + i % hidden] * (input == inputs ? 1.0F : pixel(n, input));
    }
    gradients[i] = sum;
  }
};

/// Updates one parameter.
struct learn {
  float* weights;
  float* momenta;
  const float* gradients;
  DATA_PARALLEL_KERNEL void operator()(std::size_t i) const {
    momenta[i] = 0.9F * momenta[i] + gradients[i];
    weights[i] -= 0.02F * momenta[i];
  }
};

/// Runs a kernel for all indices below `count`, in stream order. CUDA devices have their own
/// overload.
template <class Kernel>
void each(penstock::cpu_stream_ref stream, std::size_t count, const Kernel& kernel) {
  stream.launch([count, kernel] {
    for (std::size_t i = 0; i < count; ++i) kernel(i);
  });
}

/// An owning array of `size()` elements in device memory.
template <class T, class Device>
class array {
 public:
  using stream_ref = typename Device::stream_ref;

  array(const Device& device, std::size_t size)
      : device_(device), size_(size), data_(static_cast<T*>(device.allocate(size * sizeof(T)))) {}
  array(array&&) = delete;
  ~array() { device_.deallocate(data_, size_ * sizeof(T)); }

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Copies `values` to the array and waits until the copy is complete.
  void put(std::span<const T> values, stream_ref stream) {
    device_.copy_async(data_, values.data(), values.size_bytes(), stream);
    device_.synchronize(stream);
  }
  /// Waits for the work on the stream and returns the elements.
  [[nodiscard]] std::vector<T> get(stream_ref stream) const {
    std::vector<T> values(size_);
    device_.copy_async(values.data(), data_, size_ * sizeof(T), stream);
    device_.synchronize(stream);
    return values;
  }

 private:
  Device device_;
  std::size_t size_;
  T* data_;
};

/// The network on one device. All functions except the constructor and `assign` only queue work,
/// and return without waiting for it.
template <class Device>
class network {
 public:
  using stream_ref = typename Device::stream_ref;

  /// Allocates memory. `samples` is the maximum number of samples per call.
  network(const Device& device, std::size_t samples)
      : weights(device, parameters),
        momenta(device, parameters),
        outputs_(device, samples * hidden),
        slopes1_(device, samples * hidden),
        slopes2_(device, samples * classes) {}

  /// Sets the initial parameters and zero momenta.
  void assign(std::uint64_t seed, stream_ref stream) {
    penstock::sample_generator random{penstock::random_key{.seed = seed}, 0};
    std::vector<float> values(parameters);
    for (std::size_t i = 0; i < parameters; ++i) {
      const float limit = i < second_layer ? 1.0F / 28.0F : 0.17F;
      values[i] = penstock::uniform(random, -limit, limit);
    }
    weights.put(values, stream);
    momenta.put(std::vector<float>(parameters), stream);
  }

  /// Writes the losses of `count` samples, and the gradients of `scale` times their sum, to device
  /// memory. Calls `after(place, length)` for each layer, starting with the last layer, as soon as
  /// the work that computes the gradients of the layer has been queued.
  template <class After>
  void differentiate(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count,
                     float scale, float* losses, float* gradients, stream_ref stream,
                     const After& after) {
    const pass all{images,          labels,          count,           scale,  weights.data(),
                   outputs_.data(), slopes1_.data(), slopes2_.data(), losses, gradients};
    each(stream, count * hidden, hide{all});
    each(stream, count, judge{all});
    each(stream, parameters - second_layer, differentiate_second{all});
    after(second_layer, parameters - second_layer);
    each(stream, count * hidden, go_back{all});
    each(stream, second_layer, differentiate_first{all});
    after(0, second_layer);
  }
  void update(const float* gradients, stream_ref stream) {
    each(stream, parameters, learn{weights.data(), momenta.data(), gradients});
  }

  array<float, Device> weights;
  array<float, Device> momenta;

 private:
  array<float, Device> outputs_;
  array<float, Device> slopes1_;
  array<float, Device> slopes2_;
};

}  // namespace data_parallel

#undef DATA_PARALLEL_KERNEL
