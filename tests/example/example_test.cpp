// SPDX-License-Identifier: BSL-1.0
// Tests the main example on the CPU device. Compares its arithmetic with plain loops and its
// training loops with each other, and runs the program.
#define main example_main
#include "main.cpp"
#undef main

#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

using example::layer1;
using example::layer2;
using example::layer3;

/// The network in double precision, with plain loops, one sample at a time.
class plain_network {
 public:
  explicit plain_network(std::uint64_t seed) {
    for (const float value : example::initial_parameters(seed)) parameters.push_back(value);
    m_.resize(parameters.size());
    v_.resize(parameters.size());
  }

  /// Performs a step and returns the mean loss before it.
  double step(const std::vector<std::uint8_t>& images, const std::vector<std::uint8_t>& labels) {
    std::vector<double> g(parameters.size());
    double loss = 0;
    for (std::size_t s = 0; s < labels.size(); ++s) {
      std::vector<double> x(layer1::inputs);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = (images[s * x.size() + i] / 255.0 - 0.1307) / 0.3081;
      }
      const auto h1 = apply<layer1>(x, true);
      const auto h2 = apply<layer2>(h1, true);
      auto slopes = apply<layer3>(h2, false);
      double sum = 0;
      for (const double logit : slopes) sum += std::exp(logit);
      loss += (std::log(sum) - slopes[labels[s]]) / static_cast<double>(labels.size());
      for (double& logit : slopes) logit = std::exp(logit) / sum;
      slopes[labels[s]] -= 1;
      for (double& slope : slopes) slope /= static_cast<double>(labels.size());
      differentiate<layer1>(x, differentiate<layer2>(h1, differentiate<layer3>(h2, slopes, g), g),
                            g);
    }
    ++steps_;
    for (std::size_t i = 0; i < g.size(); ++i) {
      m_[i] = 0.9 * m_[i] + 0.1 * g[i];
      v_[i] = 0.999 * v_[i] + 0.001 * g[i] * g[i];
      const double m = m_[i] / (1 - std::pow(0.9, steps_));
      const double v = v_[i] / (1 - std::pow(0.999, steps_));
      parameters[i] -= 1e-3 * m / (std::sqrt(v) + 1e-8);
    }
    return loss;
  }

  std::vector<double> parameters;

 private:
  template <class Layer>
  [[nodiscard]] std::vector<double> apply(const std::vector<double>& in, bool relu) const {
    std::vector<double> out(Layer::outputs);
    for (std::size_t o = 0; o < out.size(); ++o) {
      out[o] = parameters[Layer::bias + o];
      for (std::size_t i = 0; i < in.size(); ++i) {
        out[o] += in[i] * parameters[Layer::weights + i * Layer::outputs + o];
      }
      if (relu && out[o] < 0) out[o] = 0;
    }
    return out;
  }
  /// Adds to the gradients `g`. Returns the gradient with respect to the inputs, through their
  /// ReLU.
  template <class Layer>
  std::vector<double> differentiate(const std::vector<double>& in,
                                    const std::vector<double>& slopes,
                                    std::vector<double>& g) const {
    std::vector<double> below(in.size());
    for (std::size_t o = 0; o < slopes.size(); ++o) {
      g[Layer::bias + o] += slopes[o];
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::size_t weight = Layer::weights + i * Layer::outputs + o;
        g[weight] += in[i] * slopes[o];
        if (in[i] > 0) below[i] += parameters[weight] * slopes[o];
      }
    }
    return below;
  }

  std::vector<double> m_;
  std::vector<double> v_;
  int steps_ = 0;
};

/// Returns a (rows x 3) * b (3 x columns) + bias, computed with tiles of size Height x Width.
template <std::size_t Height, std::size_t Width>
std::vector<float> product_of(std::size_t rows, const std::vector<float>& a,
                              const std::vector<float>& b, const std::vector<float>& bias) {
  constexpr std::size_t columns = 32;
  using left = example::kernel::matrix<3>;
  using right = example::kernel::matrix<columns>;
  std::vector<float> out(rows * columns, -1.0F);
  const example::kernel::product<Height, Width, columns, left, right> tiled{
      {a.data()}, {b.data()}, bias.data(), out.data(), rows, 3};
  for (std::size_t i = 0; i < tiled.tiles(); ++i) tiled(i);
  return out;
}

struct outcome {
  int status;
  std::string text;  // stdout and stderr
};
outcome run_program(const std::string& arguments) {  // without MNIST
  std::FILE* pipe = ::popen(
      (std::string{"env -u MNIST_DIR \"" EXAMPLE_PROGRAM "\" "} + arguments + " 2>&1").c_str(),
      "r");
  REQUIRE(pipe != nullptr);
  outcome found{};
  std::array<char, 4096> part{};
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) {
    found.text.append(part.data(), count);
  }
  const int status = ::pclose(pipe);
  found.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return found;
}
bool has(const outcome& found, const std::string& text) {
  return found.text.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a product has the same bits for every tile size", "[example]") {
  const std::size_t rows = GENERATE(std::size_t{1}, std::size_t{8}, std::size_t{13});
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> bias;
  penstock::sample_generator random{{}, 0};
  for (std::size_t i = 0; i < rows * 3; ++i) a.push_back(penstock::uniform(random, -1.0F, 1.0F));
  for (std::size_t i = 0; i < 96; ++i) b.push_back(penstock::uniform(random, -1.0F, 1.0F));
  for (std::size_t i = 0; i < 32; ++i) bias.push_back(penstock::uniform(random, -1.0F, 1.0F));
  const auto found = product_of<8, 16>(rows, a, b, bias);
  CHECK(product_of<1, 1>(rows, a, b, bias) == found);
  CHECK(product_of<4, 32>(rows, a, b, bias) == found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t r = i / 32;
    const std::size_t c = i % 32;
    const float plain =
        bias[c] + a[r * 3] * b[c] + a[r * 3 + 1] * b[32 + c] + a[r * 3 + 2] * b[64 + c];
    CHECK(std::abs(found[i] - plain) < 1e-6F);
  }
}

TEST_CASE("training steps equal those of the plain network, even for incomplete batches",
          "[example]") {
  const example::cpu_backend cpu;
  example::network<example::cpu_backend> net{cpu, 21, 5};
  plain_network plain{5};
  std::uint64_t seen = 0;
  std::vector<float> losses(4);
  std::size_t step = 0;
  for (const std::size_t count : {21U, 21U, 3U, 8U}) {
    const auto digits = example::random_digits(count, seen);
    seen += count;
    net.step(digits.images.data(), digits.labels.data(), count, losses.data());
    const double expected = plain.step(digits.images, digits.labels);
    CHECK(std::abs(static_cast<double>(losses[step++]) - expected) < 1e-4);
  }
  // If a gradient is near 0, Adam may move the parameter by its learning rate in either direction.
  double distance = 0;
  const auto found = net.parameters();
  for (std::size_t i = 0; i < found.size(); ++i) {
    distance += std::abs(static_cast<double>(found[i]) - plain.parameters[i]);
  }
  CHECK(distance / static_cast<double>(found.size()) < 1e-6);
}

TEST_CASE("the three loops train the same bits, with any number of workers", "[example]") {
  const auto digits = example::random_digits(200, 0);
  const auto data = digits.samples() | penstock::map<penstock::digit_record>(example::augment{});
  for (const std::size_t workers : {0U, 1U, 3U}) {
    CAPTURE(workers);
    const example::loop_options how{.epochs = 2, .batch = 48, .workers = workers, .seed = 2};
    example::training<example::cpu_backend> trained{example::cpu_backend{}, how, data.size()};
    std::vector<example::run> runs;
    const auto add = [&](const char* name, double seconds) {
      CHECK(seconds > 0);
      runs.push_back({name, seconds, trained.losses(), trained.net().parameters(), 0});
      CHECK_NOTHROW(example::require_same(runs.front(), runs.back()));
    };
    example::stage_clock stages;
    std::string diagnosis;
    add("serial", example::train_serially(data, trained, how, stages));
    add("overlapped", example::train_overlapped(data, trained, how, nullptr, diagnosis));
    add("resident", example::train_resident(data, trained, how));
    CHECK(runs[0].losses.size() == 10);  // five batches per epoch, the last with eight samples
    CHECK(stages.events().size() == 30);
    CHECK_FALSE(diagnosis.empty());
    // The images differ between epochs, because the warp is drawn again in each epoch.
    CHECK(runs[0].losses[0] != runs[0].losses[5]);
  }
}

TEST_CASE("runs that differ in a loss or a parameter are rejected by name", "[example]") {
  const example::run first{"serial", 1, {1, 2, 3}, {4, 5}, 0};
  auto other = first;
  other.name = "overlapped";
  CHECK_NOTHROW(example::require_same(first, other));
  other.losses[1] = std::nextafter(2.0F, 3.0F);
  CHECK_THROWS_WITH(example::require_same(first, other),
                    "overlapped and serial differ: the loss of step 1 of 3");
  other.losses = first.losses;
  other.parameters[1] = 6;
  CHECK_THROWS_WITH(example::require_same(first, other),
                    "overlapped and serial differ: the parameters");
}

TEST_CASE("augmentation rotates and shifts an image and stays inside at its edges", "[example]") {
  std::vector<std::uint8_t> in(784);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint8_t>(i * 37 % 256);
  std::vector<std::uint8_t> out(784);
  example::augment::turn(in.data(), out.data(), 0, 0, 0);
  CHECK(out == in);
  example::augment::turn(in.data(), out.data(), 0, 2, -1);
  CHECK(out[5 * 28 + 9] == in[6 * 28 + 7]);
  CHECK(out[5 * 28 + 1] == 0);   // from outside the left edge
  CHECK(out[27 * 28 + 9] == 0);  // from outside the lower edge
  // A rotation by 90 degrees around the center between four pixels turns columns into rows.
  example::augment::turn(in.data(), out.data(), std::acos(0.0F), 0, 0);
  CHECK(std::abs(out[3 * 28 + 20] - in[(27 - 20) * 28 + 3]) <= 1);
}

TEST_CASE("invalid options are reported by name with the expected value", "[example]") {
  const auto error_of = [](const std::string& arguments) {
    const outcome found = run_program(arguments);
    CHECK(found.status == 2);
    return found.text;
  };
  const std::string start = "penstock_mlp: ";
  CHECK(error_of("--epochs") == start + "--epochs needs a value\n");
  CHECK(error_of("--epochs 0") == start + "--epochs 0: expected a number, at least 1\n");
  CHECK(error_of("--batch 6x") == start + "--batch 6x: expected a number, at least 1\n");
  CHECK(error_of("--workers -1") == start + "--workers -1: expected a number, at least 0\n");
  CHECK(error_of("--device tpu") == start + "--device tpu: expected cpu or cuda\n");
  CHECK(error_of("--fused") == start + "--fused: no such option; --help lists them\n");
  const outcome help = run_program("--help");
  CHECK(help.status == 0);
  CHECK(has(help, "--augment"));
}

TEST_CASE("the program names the missing MNIST file", "[example]") {
  const test::temp_dir empty;
  const outcome found = run_program("--data " + empty.path(""));
  CHECK(found.status == 1);
  CHECK(has(found, empty.path("train-images-idx3-ubyte")));
}

TEST_CASE("the program prints its table without data, and writes both loops' trace", "[example]") {
  const test::temp_dir folder;
  const std::string trace = folder.path("trace.json");
  const outcome found = run_program(
      "--samples 640 --epochs 2 --batch 64 --workers 1 --augment "
      "--device cpu --trace " +
      trace);
  CAPTURE(found.text);
  CHECK(found.status == 0);
  for (const char* text :
       {"640 + 640 digits with augmentation", "\nserial ", "\noverlapped ", "\nresident ",
        "to the last bit", "A loop takes about", "The overlapped loop is "}) {
    CAPTURE(text);
    CHECK(has(found, text));
  }
  std::ifstream file{trace};
  const std::string written{std::istreambuf_iterator<char>{file}, {}};
  for (const char* text : {"\"serial loop\"", "\"penstock worker 0\"", "\"penstock transfer\""}) {
    CAPTURE(text);
    CHECK(written.find(text) != std::string::npos);
  }
}

TEST_CASE("three epochs of MNIST reach an accuracy of 97 % if the files exist", "[example]") {
  if (std::getenv("MNIST_DIR") == nullptr) return;
  const auto digits = example::find_digits("", 60'000);
  const example::cpu_backend cpu;
  const example::loop_options how{.epochs = 3};
  example::training<example::cpu_backend> trained{cpu, how, digits.train.labels.size()};
  std::string diagnosis;
  (void)example::train_overlapped(digits.train.samples(), trained, how, nullptr, diagnosis);
  const example::test_digits<example::cpu_backend> tested{cpu, digits.test, how.batch};
  CHECK(tested.accuracy(trained.net()) > 0.97);
}
