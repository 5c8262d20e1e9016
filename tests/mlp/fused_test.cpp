// SPDX-License-Identifier: BSL-1.0
#include "fused.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "mlp/replaying_backend.hpp"
#include "mlp/run_on_host.hpp"
#include "network.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

namespace {

using mlp::shape;

/// Samples with edge cases: black, white and noisy pixels, and all labels.
struct samples {
  std::vector<std::uint8_t> images;
  std::vector<float> floats;
  std::vector<std::uint8_t> labels;

  explicit samples(std::size_t count) : images(count * shape::inputs) {
    std::uint32_t state = 12345;
    for (auto& pixel : images) {
      state = state * 1664525U + 1013904223U;
      pixel = state >> 31U != 0 ? static_cast<std::uint8_t>(state >> 23U) : std::uint8_t{0};
      floats.push_back(mlp::kernel::normalised(pixel));
    }
    for (std::size_t i = 0; i < count; ++i) {
      labels.push_back(static_cast<std::uint8_t>(i * 7 % 10));
    }
  }
};

/// The memory of a network. A step may write only its own parts.
struct memory {
  std::vector<float> parameters = mlp::initial_parameters(7);
  std::vector<float> gradients = std::vector<float>(shape::parameters, NAN);
  std::vector<float> first = std::vector<float>(shape::parameters);
  std::vector<float> second = std::vector<float>(shape::parameters);
  std::vector<float> pixels, hidden1, hidden2, logits, gradient1, gradient2;
  mlp::kernel::step_state state;
  std::vector<float> losses;

  explicit memory(std::size_t count)
      : pixels(count * shape::inputs, NAN),
        hidden1(count * shape::hidden1, NAN),
        hidden2(count * shape::hidden2, NAN),
        logits(count * shape::classes, NAN),
        gradient1(count * shape::hidden1, NAN),
        gradient2(count * shape::hidden2, NAN),
        losses(3 * count, NAN) {}

  mlp::network_view view() {
    return {parameters.data(), gradients.data(), first.data(),   second.data(),
            pixels.data(),     hidden1.data(),   hidden2.data(), logits.data(),
            gradient1.data(),  gradient2.data(), &state,         losses.data(),
            losses.size()};
  }
};

struct reference {
  penstock::cpu_device device;
  mlp::network<mlp::host_backend> net;
  std::vector<float> losses;

  explicit reference(std::size_t count)
      : net(device, mlp::host_backend{}, count), losses(3 * count) {
    net.assign(mlp::initial_parameters(7), device.inline_stream());
  }
  void step(const samples& of, std::size_t count) {
    net.train(of.images.data(), of.labels.data(), count, losses, device.inline_stream());
  }
};

enum class way { fused, fused_from_floats, by_products, by_products_from_floats };

void step(memory& net, const samples& of, std::size_t count, way how, bool upwards = true) {
  const test::fused_context on{upwards};
  switch (how) {
    case way::fused:
      return mlp::fused::train(on, net.view(), of.images.data(), of.labels.data(), count);
    case way::fused_from_floats:
      return mlp::fused::train(on, net.view(), of.floats.data(), of.labels.data(), count);
    case way::by_products:
      return mlp::fused::train_by_products(on, net.view(), of.images.data(), of.labels.data(),
                                           count);
    case way::by_products_from_floats:
      return mlp::fused::train_by_products(on, net.view(), of.floats.data(), of.labels.data(),
                                           count);
  }
}

way any_way() {
  return GENERATE(way::fused, way::fused_from_floats, way::by_products,
                  way::by_products_from_floats);
}

double farthest(const std::vector<float>& a, const float* b) {
  double max = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double distance = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(distance <= max)) max = distance;  // also true if the distance is NaN
  }
  return max;
}

}  // namespace

TEST_CASE("a fused step has the losses and the gradients of the plain network", "[mlp]") {
  // Sizes near those of tiles and chunks: 4, 8, 64 and 256 samples, and 512 blocks.
  const std::size_t count =
      GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{63}, std::size_t{65},
               std::size_t{257}, std::size_t{515});
  const way how = any_way();
  CAPTURE(count, static_cast<int>(how));
  const samples data{count};
  memory net{count};
  reference plain{count};
  step(net, data, count, how);
  plain.step(data, count);

  double loss = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    loss = std::fmax(loss, std::abs(net.losses[i] - plain.losses[i]));
    CHECK_FALSE(std::isnan(net.losses[i]));
  }
  CHECK(loss < 1e-5);
  CHECK(std::isnan(net.losses[count]));
  double gradient = 0.0;
  double steepest = 0.0;
  double min_error = 0.0;
  for (std::size_t i = 0; i < shape::parameters; ++i) {
    // After one step, Adam's first moment is a tenth of the gradient.
    const double expected = plain.net.gradients().data()[i];
    const double found = static_cast<double>(net.first[i]) / 0.1;
    gradient = std::fmax(gradient, std::abs(found - expected));
    steepest = std::fmax(steepest, std::abs(expected));
    if (std::isnan(found)) min_error = 1.0;
  }
  CHECK(min_error == 0.0);
  CHECK(steepest > 1e-3);
  CHECK(gradient < 2e-6);
}

TEST_CASE("a fused step updates every parameter as Adam does", "[mlp]") {
  constexpr std::size_t count = 5;
  const way how = any_way();
  const samples data{count};
  memory net{count};
  std::vector<double> parameters(net.parameters.begin(), net.parameters.end());
  std::vector<double> first(shape::parameters);
  std::vector<double> second(shape::parameters);
  for (int t = 1; t <= 3; ++t) {
    const auto before = net.first;
    step(net, data, count, how);
    double max = 0.0;
    for (std::size_t i = 0; i < shape::parameters; ++i) {
      // Computes the gradient from the moment that includes it.
      const double g = (static_cast<double>(net.first[i]) - 0.9 * before[i]) / 0.1;
      first[i] = 0.9 * first[i] + 0.1 * g;
      second[i] = 0.999 * second[i] + 0.001 * g * g;
      const double m = first[i] / (1.0 - std::pow(0.9, t));
      const double v = second[i] / (1.0 - std::pow(0.999, t));
      parameters[i] -= 1e-3 * m / (std::sqrt(v) + 1e-8);
      max = std::fmax(max, std::abs(parameters[i] - net.parameters[i]));
    }
    CAPTURE(t);
    CHECK(max < 4e-6);
  }
}

TEST_CASE("no thread of a fused kernel reads data that another thread writes in the same phase",
          "[mlp]") {
  constexpr std::size_t count = 70;
  const way how = any_way();
  const samples data{count};
  memory upwards{count};
  memory downwards{count};
  for (int i = 0; i < 2; ++i) {
    step(upwards, data, count, how, true);
    step(downwards, data, count, how, false);
  }
  CHECK(upwards.parameters == downwards.parameters);
  CHECK(farthest(upwards.first, downwards.first.data()) == 0.0);
}

TEST_CASE("fused steps have nearly the same losses as the plain network", "[mlp]") {
  constexpr std::size_t count = 20;
  const way how = any_way();
  const samples data{count};
  memory net{count};
  reference plain{count};
  for (int i = 0; i < 5; ++i) {
    step(net, data, count, how);
    plain.step(data, count);
    CHECK(net.state.first == static_cast<std::uint64_t>(i % 3) * count);
    for (std::size_t s = 0; s < count; ++s) {
      const std::size_t at = net.state.first + s;
      CHECK(std::abs(net.losses[at] - plain.losses[at]) < 1e-4);
    }
  }
}

TEST_CASE("small and large tiles of the first layer produce the same bits", "[mlp]") {
  constexpr std::size_t count = 37;
  const samples data{count};
  memory small{count};
  memory large{count};
  using four = mlp::fused::first_layer<std::uint8_t, 4>;
  using eight = mlp::fused::first_layer<std::uint8_t, 8>;
  test::run_on_host(four{data.images.data(), small.view(), count});
  test::run_on_host(eight{data.images.data(), large.view(), count});
  CHECK(small.hidden1 == large.hidden1);
}
