#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/transform_reduce.h>

#include "device_array.hpp"
#include "kernels.hpp"
#include "lies.hpp"

namespace mlp {

/// Where the parameters lie: all in one array, so that Adam is one pass. Weights are
/// outputs x inputs, column-major; all offsets are multiples of 16 floats.
struct shape {
  static constexpr std::size_t inputs = 28 * 28;
  static constexpr std::size_t hidden1 = 128;
  static constexpr std::size_t hidden2 = 64;
  static constexpr std::size_t classes = 10;

  static constexpr std::size_t weight1 = 0;
  static constexpr std::size_t bias1 = weight1 + hidden1 * inputs;
  static constexpr std::size_t weight2 = bias1 + hidden1;
  static constexpr std::size_t bias2 = weight2 + hidden2 * hidden1;
  static constexpr std::size_t weight3 = bias2 + hidden2;
  static constexpr std::size_t bias3 = weight3 + classes * hidden2;
  static constexpr std::size_t parameters = bias3 + classes;
};

/// Adam's constants, and the factors that correct its moments for their start at zero.
class adam_schedule {
 public:
  /// The factors of the next step, which is counted.
  kernel::adam_rates next() {
    first_power_ *= beta1;
    second_power_ *= beta2;
    const double correction = std::sqrt(1.0 - second_power_);
    return {static_cast<float>(learning_rate * correction / (1.0 - first_power_)),
            static_cast<float>(epsilon * correction)};
  }

 private:
  static constexpr double learning_rate = 1e-3;
  static constexpr double beta1 = kernel::adam_update::beta1;
  static constexpr double beta2 = kernel::adam_update::beta2;
  static constexpr double epsilon = 1e-8;
  double first_power_ = 1.0;
  double second_power_ = 1.0;
};

/// A perceptron 784-128-64-10 with ReLU, softmax cross-entropy and Adam, on the device of `Backend`.
///
/// Takes images as bytes in device memory, `count` x 784, and normalises them itself. `train` and
/// `evaluate` enqueue and return; nothing is allocated after construction. Not thread-safe.
template <class Backend>
class network {
 public:
  using device_type = typename Backend::device_type;
  using stream_ref = typename Backend::stream_ref;

  /// For batches of up to `batch_size` samples. All parameters are 0 until `assign`.
  network(const device_type& device, const Backend& backend, std::size_t batch_size)
      : backend_(backend),
        parameters_(device, shape::parameters),
        gradients_(device, shape::parameters),
        first_moments_(device, shape::parameters),
        second_moments_(device, shape::parameters),
        pixels_(device, batch_size * shape::inputs),
        hidden1_(device, batch_size * shape::hidden1),
        hidden2_(device, batch_size * shape::hidden2),
        logits_(device, batch_size * shape::classes),
        gradient1_(device, batch_size * shape::hidden1),
        gradient2_(device, batch_size * shape::hidden2) {}

  /// Starts anew from these `shape::parameters` values: moments and step count are 0 again.
  void assign(std::span<const float> parameters, stream_ref stream) {
    const std::vector<float> zeros(shape::parameters);
    parameters_.upload(parameters, 0, stream);
    first_moments_.upload(zeros, 0, stream);
    second_moments_.upload(zeros, 0, stream);
    schedule_ = {};
  }

  [[nodiscard]] const device_array<float, device_type>& parameters() const { return parameters_; }
  /// The gradients of the last step's mean loss, in the parameters' order.
  [[nodiscard]] const device_array<float, device_type>& gradients() const { return gradients_; }

  /// One step on `count` samples: forward, backward, Adam. Each sample's loss before the step goes to
  /// `losses[0, count)`. All pointers are to device memory that lives until the stream is past it.
  void train(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count,
             float* losses, stream_ref stream) {
    const auto rates = schedule_.next();
    backend_.enqueue(stream, [this, images, labels, count, losses, rates] {
      forward(images, count);
      backward(labels, count, losses);
      each(shape::parameters,
           kernel::adam_update{gradients_.data(), parameters_.data(), first_moments_.data(),
                               second_moments_.data(), rates});
    });
  }

  /// How many of `count` samples are classified rightly, into `*right`, host memory that lives until
  /// the stream is past it.
  void evaluate(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count,
                std::size_t* right, stream_ref stream) {
    backend_.enqueue(stream, [this, images, labels, count, right] {
      forward(images, count);
      const kernel::is_right<shape::classes> is_right{at(shape::bias3), labels, logits_.data()};
      *right = thrust::transform_reduce(backend_.policy(), first(), first() + signed_size(count),
                                        is_right, std::size_t{0}, thrust::plus<std::size_t>{});
    });
  }

 private:
  using array = device_array<float, device_type>;
  static constexpr auto straight = lies::straight;
  static constexpr auto transposed = lies::transposed;

  static auto first() { return thrust::counting_iterator<std::size_t>{0}; }
  static std::ptrdiff_t signed_size(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

  template <class Kernel>
  void each(std::size_t count, const Kernel& kernel) {
    thrust::for_each_n(backend_.policy(), first(), count, kernel);
  }

  [[nodiscard]] const float* at(std::size_t parameter) const {
    return parameters_.data() + parameter;
  }
  [[nodiscard]] float* gradient_at(std::size_t parameter) const {
    return gradients_.data() + parameter;
  }

  /// Up to the logits, without their bias.
  void forward(const std::uint8_t* images, std::size_t count) {
    each(count * shape::inputs, kernel::normalise{images, pixels_.data()});

    backend_.template multiply<straight, straight>(
        shape::hidden1, count, shape::inputs, at(shape::weight1), pixels_.data(), hidden1_.data());
    each(count * shape::hidden1,
         kernel::add_bias_relu<shape::hidden1>{at(shape::bias1), hidden1_.data()});

    backend_.template multiply<straight, straight>(shape::hidden2, count, shape::hidden1,
                                                   at(shape::weight2), hidden1_.data(),
                                                   hidden2_.data());
    each(count * shape::hidden2,
         kernel::add_bias_relu<shape::hidden2>{at(shape::bias2), hidden2_.data()});

    backend_.template multiply<straight, straight>(
        shape::classes, count, shape::hidden2, at(shape::weight3), hidden2_.data(), logits_.data());
  }

  /// From the logits to all gradients. The logits become their own gradient.
  void backward(const std::uint8_t* labels, std::size_t count, float* losses) {
    each(count,
         kernel::softmax_cross_entropy<shape::classes>{at(shape::bias3), labels, logits_.data(),
                                                       losses, 1.0F / static_cast<float>(count)});
    layer_gradients(shape::classes, shape::hidden2, count, logits_, hidden2_, shape::weight3,
                    shape::bias3);

    backend_.template multiply<transposed, straight>(shape::hidden2, count, shape::classes,
                                                     at(shape::weight3), logits_.data(),
                                                     gradient2_.data());
    each(count * shape::hidden2, kernel::relu_gradient{hidden2_.data(), gradient2_.data()});
    layer_gradients(shape::hidden2, shape::hidden1, count, gradient2_, hidden1_, shape::weight2,
                    shape::bias2);

    backend_.template multiply<transposed, straight>(shape::hidden1, count, shape::hidden2,
                                                     at(shape::weight2), gradient2_.data(),
                                                     gradient1_.data());
    each(count * shape::hidden1, kernel::relu_gradient{hidden1_.data(), gradient1_.data()});
    layer_gradients(shape::hidden1, shape::inputs, count, gradient1_, pixels_, shape::weight1,
                    shape::bias1);
  }

  /// The gradients of a layer's weights and bias from those of its outputs and from its inputs.
  void layer_gradients(std::size_t outputs, std::size_t inputs, std::size_t count,
                       const array& gradient, const array& input, std::size_t weight,
                       std::size_t bias) {
    backend_.template multiply<straight, transposed>(outputs, inputs, count, gradient.data(),
                                                     input.data(), gradient_at(weight));
    backend_.sum_columns(outputs, count, gradient.data(), gradient_at(bias));
  }

  Backend backend_;
  array parameters_;
  array gradients_;
  array first_moments_;
  array second_moments_;
  array pixels_;
  array hidden1_;
  array hidden2_;
  array logits_;
  array gradient1_;
  array gradient2_;
  adam_schedule schedule_;
};

}  // namespace mlp
