// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "host_backend.hpp"
#include "network.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

namespace {

using mlp::shape;
using network = mlp::network<mlp::host_backend>;

constexpr std::size_t batch = 5;

struct sample_set {
  std::vector<std::uint8_t> images = std::vector<std::uint8_t>(batch * shape::inputs);
  std::vector<std::uint8_t> labels{3, 0, 9, 3, 7};

  sample_set() {
    std::uint32_t state = 12345;
    for (auto& pixel : images) {
      state = state * 1664525U + 1013904223U;
      pixel = state >> 31U != 0 ? static_cast<std::uint8_t>(state >> 23U) : std::uint8_t{0};
    }
  }
};

/// Returns the outputs of one layer, computed in double precision by the definition of a layer.
std::vector<double> layer(const std::vector<double>& inputs, const std::vector<double>& parameters,
                          std::size_t weight, std::size_t bias, std::size_t outputs) {
  std::vector<double> result(outputs);
  for (std::size_t o = 0; o < outputs; ++o) {
    result[o] = parameters[bias + o];
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      result[o] += parameters[weight + i * outputs + o] * inputs[i];
    }
  }
  return result;
}

std::vector<double> relu(std::vector<double> values) {
  for (double& value : values) value = std::max(value, 0.0);
  return values;
}

/// Returns the mean cross-entropy of the first `count` samples, computed without the code of the
/// network.
double reference_loss(const std::vector<double>& parameters, const sample_set& of,
                      std::size_t count = batch) {
  double sum = 0.0;
  for (std::size_t s = 0; s < count; ++s) {
    std::vector<double> pixels;
    for (std::size_t i = 0; i < shape::inputs; ++i) {
      pixels.push_back((of.images[s * shape::inputs + i] / 255.0 - 0.1307) / 0.3081);
    }
    const auto hidden1 =
        relu(layer(pixels, parameters, shape::weight1, shape::bias1, shape::hidden1));
    const auto hidden2 =
        relu(layer(hidden1, parameters, shape::weight2, shape::bias2, shape::hidden2));
    const auto logits = layer(hidden2, parameters, shape::weight3, shape::bias3, shape::classes);
    double exponentials = 0.0;
    for (const double logit : logits) exponentials += std::exp(logit);
    sum += std::log(exponentials) - logits[of.labels[s]];
  }
  return sum / static_cast<double>(count);
}

struct fixture {
  penstock::cpu_device device;
  penstock::cpu_device::stream_ref stream = device.inline_stream();
  network net{device, mlp::host_backend{}, batch};
  sample_set data;
  std::vector<float> initial = mlp::initial_parameters(7);
  std::vector<float> losses = std::vector<float>(batch);

  fixture() { net.assign(initial, stream); }
  void step(std::size_t count = batch) {
    net.train(data.images.data(), data.labels.data(), count, losses, stream);
  }
};

std::vector<float> copy_of(const mlp::device_array<float, penstock::cpu_device>& array) {
  return {array.data(), array.data() + array.size()};
}

}  // namespace

TEST_CASE("the initial parameters fill their ranges, and differ between seeds", "[mlp]") {
  const auto values = mlp::initial_parameters(1);
  REQUIRE(values.size() == shape::parameters);
  CHECK(values != mlp::initial_parameters(2));
  const auto largest = [&](std::size_t first, std::size_t last) {
    float max = 0.0F;
    for (std::size_t i = first; i < last; ++i) max = std::max(max, std::abs(values[i]));
    return max;
  };
  CHECK(largest(shape::weight1, shape::weight2) <= 1.0F / 28.0F);
  CHECK(largest(shape::weight1, shape::weight2) > 0.99F / 28.0F);
  CHECK(largest(shape::weight3, shape::parameters) <= 0.125F);
  CHECK(largest(shape::weight3, shape::parameters) > 0.12F);
}

TEST_CASE("the losses are the cross-entropies of the samples", "[mlp]") {
  fixture f;
  const std::vector<double> parameters(f.initial.begin(), f.initial.end());
  const std::size_t count = GENERATE(std::size_t{1}, std::size_t{3}, batch);
  f.step(count);
  double mean = 0.0;
  for (std::size_t i = 0; i < count; ++i) mean += f.losses[i] / static_cast<double>(count);
  CHECK(std::abs(mean - reference_loss(parameters, f.data, count)) < 1e-5);
}

TEST_CASE("the gradients are the slopes of the mean loss", "[mlp]") {
  fixture f;
  f.step();
  const auto gradients = copy_of(f.net.gradients());
  std::vector<double> parameters(f.initial.begin(), f.initial.end());
  struct part {
    std::size_t first, last;
  };
  const part parts[] = {{shape::weight1, shape::bias1}, {shape::bias1, shape::weight2},
                        {shape::weight2, shape::bias2}, {shape::bias2, shape::weight3},
                        {shape::weight3, shape::bias3}, {shape::bias3, shape::parameters}};
  for (const part& p : parts) {
    CAPTURE(p.first);
    double steepest = 0.0;
    const std::size_t stride = (p.last - p.first) / 10;
    for (std::size_t i = p.first; i < p.last; i += stride) {
      constexpr double h = 1e-5;
      const double value = parameters[i];
      parameters[i] = value + h;
      const double above = reference_loss(parameters, f.data);
      parameters[i] = value - h;
      const double below = reference_loss(parameters, f.data);
      parameters[i] = value;
      const double slope = (above - below) / (2.0 * h);
      CAPTURE(i);
      CHECK(std::abs(gradients[i] - slope) < 1e-5 + 1e-3 * std::abs(slope));
      steepest = std::max(steepest, std::abs(slope));
    }
    CHECK(steepest > 1e-3);  // otherwise the comparison would be meaningless
  }
}

TEST_CASE("a step equals the Adam update in the paper", "[mlp]") {
  fixture f;
  std::vector<double> parameters(f.initial.begin(), f.initial.end());
  std::vector<double> first(shape::parameters);
  std::vector<double> second(shape::parameters);
  for (int t = 1; t <= 3; ++t) {
    f.step();
    const auto gradients = copy_of(f.net.gradients());
    const auto updated = copy_of(f.net.parameters());
    double farthest = 0.0;
    for (std::size_t i = 0; i < shape::parameters; ++i) {
      const double g = gradients[i];
      first[i] = 0.9 * first[i] + 0.1 * g;
      second[i] = 0.999 * second[i] + 0.001 * g * g;
      const double m = first[i] / (1.0 - std::pow(0.9, t));
      const double v = second[i] / (1.0 - std::pow(0.999, t));
      parameters[i] -= 1e-3 * m / (std::sqrt(v) + 1e-8);
      farthest = std::max(farthest, std::abs(parameters[i] - updated[i]));
    }
    CAPTURE(t);
    CHECK(farthest < 2e-6);
  }
}

TEST_CASE("assigned parameters restart training with the same bits", "[mlp]") {
  fixture f;
  const auto run = [&] {
    f.net.assign(f.initial, f.stream);
    for (int i = 0; i < 3; ++i) f.step();
    f.step(2);
    return copy_of(f.net.parameters());
  };
  CHECK(run() == run());
}

TEST_CASE("evaluation counts the samples whose largest logit is their label", "[mlp]") {
  fixture f;
  std::uint64_t right = 0;
  for (int i = 0; i < 30; ++i) f.step();
  f.net.evaluate(f.data.images.data(), f.data.labels.data(), batch, &right, f.stream);
  CHECK(right == batch);
  f.data.labels[1] = 4;
  f.net.evaluate(f.data.images.data(), f.data.labels.data(), batch, &right, f.stream);
  CHECK(right == batch - 1);
  f.net.evaluate(f.data.images.data(), f.data.labels.data(), 2, &right, f.stream);
  CHECK(right == 1);
}

TEST_CASE("the largest logit includes the bias", "[mlp]") {
  const float bias[] = {0.0F, 2.0F, -3.0F};
  const float logits[] = {1.0F, 0.0F, 3.0F, 1.0F, -2.0F, 4.5F};
  const std::uint8_t labels[] = {1, 2};
  const mlp::kernel::is_right<3> is_right{bias, labels, logits};
  CHECK(is_right(0) == 1);
  CHECK(is_right(1) == 1);
  const std::uint8_t without_bias[] = {2, 0};
  CHECK(mlp::kernel::is_right<3>{bias, without_bias, logits}(0) == 0);
}

TEST_CASE("the plain product equals the product of the CPU device", "[mlp]") {
  constexpr std::size_t m = 3;
  constexpr std::size_t n = 2;
  constexpr std::size_t k = 4;
  const std::vector<float> a{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const std::vector<float> b{1, -2, 3, -4, 0.5F, 6, -7, 8};
  std::vector<float> expected(m * n);
  std::vector<float> found(m * n);
  mlp::host_context{}.multiply<mlp::transpose::no, mlp::transpose::no>(m, n, k, a.data(), b.data(),
                                                                       expected.data());
  const mlp::kernel::product product{m, k, a.data(), b.data(), found.data()};
  for (std::size_t i = 0; i < m * n; ++i) product(i);
  CHECK(found == expected);
}

TEST_CASE("the network has the same results on a stream with its own thread", "[mlp]") {
  fixture f;
  f.step();
  f.step();
  const auto expected = copy_of(f.net.parameters());
  auto stream = f.device.make_stream();
  f.net.assign(f.initial, stream);
  for (int i = 0; i < 2; ++i) {
    f.net.train(f.data.images.data(), f.data.labels.data(), batch, std::span<float>{f.losses},
                stream);
  }
  f.device.synchronize(stream);
  CHECK((copy_of(f.net.parameters()) == expected));
}

TEST_CASE("column sums have the same bits at every address", "[mlp]") {
  constexpr std::size_t rows = 128;
  constexpr std::size_t columns = 8;
  std::vector<float> matrix(rows * columns);
  std::uint32_t state = 99;
  for (float& value : matrix) {
    state = state * 1664525U + 1013904223U;
    value = 1.0F / static_cast<float>(1U + state % 100'003U);
  }
  std::vector<float> expected(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < columns; ++i) expected[row] += matrix[i * rows + row];
  }
  std::vector<float> place(rows + 32);
  for (std::size_t shift = 0; shift < 32; ++shift) {
    CAPTURE(shift);
    mlp::host_context{}.sum_columns(rows, columns, matrix.data(), &place[shift]);
    CHECK(std::equal(expected.begin(), expected.end(), &place[shift]));
  }
}
