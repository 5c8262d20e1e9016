// SPDX-License-Identifier: BSL-1.0
#include "mixed.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <penstock_ext/narrow/half.hpp>

#include "data.hpp"
#include "host_backend.hpp"
#include "network.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

namespace {

using mlp::precision_choice;
using mlp::shape;
using mixed_trainer = mlp::trainer<mlp::host_backend>;

/// Digits as bytes, and as the floats that the network receives.
struct some_digits {
  std::vector<std::uint8_t> bytes;
  std::vector<float> floats;
  std::vector<std::uint8_t> labels;

  explicit some_digits(std::size_t count, std::uint64_t first_key = 0) {
    mlp::digit_set made = mlp::random_digits(count, first_key);
    bytes = std::move(made.images);
    labels = std::move(made.labels);
    for (const std::uint8_t pixel : bytes) floats.push_back(mlp::kernel::normalised(pixel));
  }
};

mixed_trainer trainer_of(std::size_t batch, std::size_t epochs, std::size_t samples,
                         const mlp::step_options& how) {
  const penstock::cpu_device device;
  return {device, {}, device.inline_stream(), batch, epochs, samples, 7, how};
}

/// Trains on all digits in order.
template <class Pixel>
void train_on(mixed_trainer& trained, const std::vector<Pixel>& images,
              const std::vector<std::uint8_t>& labels, std::size_t batch, std::size_t epochs) {
  for (std::size_t e = 0; e < epochs; ++e) {
    for (std::size_t first = 0; first < labels.size(); first += batch) {
      trained.step(0, &images[first * shape::inputs], &labels[first],
                   std::min(batch, labels.size() - first));
    }
  }
}

double farthest(const std::vector<float>& a, const std::vector<float>& b) {
  double max = a.size() == b.size() ? 0.0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double apart = std::abs(double{a[i]} - double{b[i]});
    if (!(apart <= max)) max = apart;
  }
  return max;
}

/// Returns the outputs of a layer in double precision, from operands rounded by `round`.
template <class Round>
std::vector<double> rounded_layer(const std::vector<double>& inputs,
                                  const std::vector<float>& parameters, std::size_t weight,
                                  std::size_t bias, std::size_t outputs, const Round& round) {
  std::vector<double> result(outputs);
  for (std::size_t o = 0; o < outputs; ++o) {
    result[o] = double{parameters[bias + o]};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      result[o] +=
          round(parameters[weight + i * outputs + o]) * round(static_cast<float>(inputs[i]));
    }
  }
  return result;
}

template <class Round>
double rounded_loss(const std::vector<float>& parameters, const float* image, std::size_t label,
                    const Round& round) {
  std::vector<double> values(image, image + shape::inputs);
  values = rounded_layer(values, parameters, shape::weight1, shape::bias1, shape::hidden1, round);
  for (double& value : values) value = std::max(value, 0.0);
  values = rounded_layer(values, parameters, shape::weight2, shape::bias2, shape::hidden2, round);
  for (double& value : values) value = std::max(value, 0.0);
  values = rounded_layer(values, parameters, shape::weight3, shape::bias3, shape::classes, round);
  double sum = 0.0;
  for (const double logit : values) sum += std::exp(logit);
  return std::log(sum) - values[label];
}

}  // namespace

TEST_CASE("batches accumulated into one step have the losses of one large batch, up to rounding",
          "[mlp]") {
  const some_digits digits{100};
  auto large = trainer_of(64, 3, 100, {});
  train_on(large, digits.bytes, digits.labels, 64, 3);
  // Each step accumulates four batches. The last step of an epoch has the remaining batches of 16,
  // 16 and 4 samples.
  auto small = trainer_of(16, 3, 100, {.accumulate = 4});
  train_on(small, digits.bytes, digits.labels, 16, 3);
  const auto expected = large.trace();
  const auto found = small.trace();
  CHECK(farthest(found.losses, expected.losses) < 2e-5);
  CHECK(farthest(found.parameters, expected.parameters) < 2e-5);
  // A step after each small batch, without accumulation, has different results.
  auto alone = trainer_of(16, 3, 100, {});
  train_on(alone, digits.bytes, digits.labels, 16, 3);
  CHECK(farthest(alone.trace().losses, expected.losses) > 1e-2);
}

TEST_CASE("a step of several batches starts again after a restart", "[mlp]") {
  const some_digits digits{40};
  auto trained = trainer_of(16, 1, 40, {.accumulate = 2});
  train_on(trained, digits.bytes, digits.labels, 16, 1);
  const auto expected = trained.trace();
  trained.restart();
  trained.step(0, digits.bytes.data(), digits.labels.data(), 16);  // the first of two batches
  trained.rewind();
  train_on(trained, digits.bytes, digits.labels, 16, 1);
  CHECK(trained.trace() == expected);
}

TEST_CASE("operands of products are rounded, but parameters are not", "[mlp]") {
  const some_digits digits{5};
  const auto parameters = mlp::initial_parameters(7);
  const auto check = [&](precision_choice precision, const auto& round) {
    auto trained = trainer_of(5, 1, 5, {.precision = precision});
    train_on(trained, digits.bytes, digits.labels, 5, 1);
    const auto found = trained.trace();
    double apart = 0.0;
    double unlike = 0.0;
    for (std::size_t i = 0; i < 5; ++i) {
      const float* image = &digits.floats[i * shape::inputs];
      const double rounded = rounded_loss(parameters, image, digits.labels[i], round);
      const double plain =
          rounded_loss(parameters, image, digits.labels[i], [](float x) { return double{x}; });
      apart = std::max(apart, std::abs(double{found.losses[i]} - rounded));
      unlike = std::max(unlike, std::abs(plain - rounded));
    }
    CHECK(apart < unlike / 5);
    // Adam changes a parameter by about 1e-3 per step. An unrounded parameter preserves more than 8
    // bits of the change.
    std::size_t fine = 0;
    for (const float value : found.parameters) fine += round(value) != double{value} ? 1U : 0U;
    CHECK(fine > shape::parameters / 2);
  };
  check(precision_choice::bf16, [](float x) { return double{penstock::bfloat16{x}}; });
  check(precision_choice::fp16, [](float x) { return double{penstock::half{x}}; });
}

TEST_CASE("a gradient overflow halves the scale and skips only its own step", "[mlp]") {
  constexpr std::size_t batch = 8;
  constexpr std::size_t steps = 5;
  const some_digits digits{batch * steps};
  const auto step = [&](mixed_trainer& trained, std::size_t k, float factor) {
    std::vector<float> images(&digits.floats[k * batch * shape::inputs],
                              &digits.floats[(k + 1) * batch * shape::inputs - 1] + 1);
    images[3] *= factor;
    trained.step(0, images.data(), &digits.labels[k * batch], batch);
  };
  const std::size_t bad = GENERATE(std::size_t{0}, std::size_t{2}, std::size_t{4});
  CAPTURE(bad);
  auto trained = trainer_of(batch, 1, batch * steps, {.precision = precision_choice::fp16});
  auto without = trainer_of(batch, 1, batch * steps, {.precision = precision_choice::fp16});
  CHECK(trained.scaler().scale == 65536.0F);
  for (std::size_t k = 0; k < steps; ++k) {
    const auto before = trained.trace().parameters;
    step(trained, k, k == bad ? 1e30F : 1.0F);
    const auto after = trained.trace().parameters;
    const auto scaler = trained.scaler();
    CAPTURE(k);
    CHECK((after == before) == (k == bad));
    CHECK(scaler.scale == (k < bad ? 65536.0F : 32768.0F));
    CHECK(scaler.skipped == (k < bad ? 0U : 1U));
    CHECK(scaler.good == (k < bad ? k + 1 : k - bad));
    CHECK(std::all_of(after.begin(), after.end(), [](float x) { return std::isfinite(x); }));
    if (k != bad) step(without, k, 1.0F);
  }
  // The skipped step changes only the scale. All other steps equal the steps of a run without the
  // skipped step.
  CHECK(farthest(trained.trace().parameters, without.trace().parameters) < 1e-4);
}

TEST_CASE("a step whose first batch overflows is skipped at its last batch", "[mlp]") {
  const some_digits digits{32};
  auto images = digits.floats;
  images[5] = 1e30F;
  auto trained = trainer_of(8, 1, 32, {.precision = precision_choice::fp16, .accumulate = 2});
  const auto start = trained.trace().parameters;
  for (std::size_t k = 0; k < 4; ++k) {
    trained.step(0, &images[k * 8 * shape::inputs], &digits.labels[k * 8], 8);
    CAPTURE(k);
    CHECK((trained.trace().parameters == start) == (k < 3));
    CHECK(trained.scaler().skipped == (k == 0 ? 0U : 1U));
  }
  CHECK(trained.scaler().scale == 32768.0F);
}

TEST_CASE("bf16 does not use a scale and does not skip steps", "[mlp]") {
  const some_digits digits{16};
  auto trained = trainer_of(8, 1, 16, {.precision = precision_choice::bf16});
  train_on(trained, digits.bytes, digits.labels, 8, 1);
  CHECK(trained.scaler().scale == 1.0F);
  CHECK(trained.scaler().skipped == 0);
}

TEST_CASE("the scale doubles after 2000 good steps, and an overflow restarts the count", "[mlp]") {
  mlp::kernel::step_state state{};
  mlp::kernel::scaler_state scaler{};
  scaler.scale = 1024.0F;
  const mlp::kernel::settle settle{&state, &scaler, 8.0F, true};
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      scaler.samples = 8;
      settle(0);
    }
  };
  steps(1999);
  CHECK(scaler.scale == 1024.0F);
  steps(1);
  CHECK(scaler.scale == 2048.0F);
  CHECK(scaler.factor == 1.0F / 1024.0F);  // factor of the previous scale, which the step used
  steps(1999);
  scaler.found = 1;
  steps(1);
  CHECK(scaler.scale == 1024.0F);
  CHECK(scaler.skips == 1);
  steps(1999);
  CHECK(scaler.skips == 0);
  CHECK(scaler.scale == 1024.0F);
  steps(1);
  CHECK(scaler.scale == 2048.0F);
  // The scale does not exceed the maximum float.
  scaler.scale = 0x1p127F;
  steps(2000);
  CHECK(scaler.scale == 0x1p127F);
}

TEST_CASE("the network learns as much with rounded operands as with floats", "[mlp]") {
  const some_digits digits{200};
  const some_digits others{200, 1000};
  const auto accuracy_of = [&](precision_choice precision) {
    auto trained = trainer_of(16, 4, 200, {.precision = precision});
    train_on(trained, digits.bytes, digits.labels, 16, 4);
    if (precision == precision_choice::fp16) {
      CHECK(trained.scaler().skipped < 8);  // steps are skipped until the scale fits
    }
    return trained.accuracy(others.bytes.data(), others.labels.data(), 200);
  };
  const double plain = accuracy_of(precision_choice::fp32);
  CHECK(plain > 0.5);
  CHECK(std::abs(accuracy_of(precision_choice::fp16) - plain) < 0.03);
  CHECK(std::abs(accuracy_of(precision_choice::bf16) - plain) < 0.03);
}
