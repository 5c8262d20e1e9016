// SPDX-License-Identifier: BSL-1.0
// Trains a small convolutional libtorch network on MNIST, with augmentation, and validates it after
// each epoch. $MNIST_DIR is the folder of the uncompressed files; without it, the program uses
// noise. Ctrl-C writes a checkpoint. The next run continues with the next batch, and ends with
// weights that are bit-identical to those of an uninterrupted run.
//
//   09_libtorch [CHECKPOINT [WORKERS [STOP_AFTER]]]   STOP_AFTER: raises SIGINT after this many steps
#include <torch/torch.h>
#include <unistd.h>

#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/files/idx_dataset.hpp>
#include <penstock_ext/interop/torch/torch.hpp>
#include <penstock_ext/signals/stop_on_signal.hpp>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <utility>

namespace ps = penstock;
namespace nn = torch::nn;
using record = ps::digit_record;

// Random images: a pattern per class with added noise.
struct noisy_patterns {
  using record_type = record;
  static std::uint64_t size() { return 7000; }
  void read(std::uint64_t index, ps::sample<record> out) const {
    ps::sample_generator pattern{ps::random_key{.seed = 1}, index % 10};
    ps::sample_generator noise{ps::random_key{.seed = 2}, index};
    for (std::uint8_t& pixel : ps::get<"image">(out).flat()) {
      pixel = static_cast<std::uint8_t>((pattern() >> 25U) + (noise() >> 25U));
    }
    ps::get<"label">(out) = static_cast<std::uint8_t>(index % 10);
  }
};

ps::any_dataset<record> digits_of(const std::string& part) {
  const char* folder = std::getenv("MNIST_DIR");
  const std::string path = std::string{folder != nullptr ? folder : ""} + '/' + part;
  if (!std::filesystem::exists(path + "-images-idx3-ubyte")) return noisy_patterns{};
  return ps::idx_dataset<>{path + "-images-idx3-ubyte", path + "-labels-idx1-ubyte"};
}

// Shifts a digit by up to two pixels in each direction.
void shift(ps::const_sample<record> in, ps::sample<record> out, ps::sample_generator& random) {
  const std::uint8_t* from = ps::get<"image">(in).data();
  std::uint8_t* to = ps::get<"image">(out).data();
  const int dx = static_cast<int>(random() % 5) - 2;
  const int dy = static_cast<int>(random() % 5) - 2;
  for (int y = 0; y < 28; ++y) {
    for (int x = 0; x < 28; ++x) {
      const bool is_inside = x + dx >= 0 && x + dx < 28 && y + dy >= 0 && y + dy < 28;
      *to++ = is_inside ? from[(y + dy) * 28 + x + dx] : std::uint8_t{0};
    }
  }
  ps::get<"label">(out) = ps::get<"label">(in);
}

struct training {
  nn::Sequential net{nn::Conv2d{nn::Conv2dOptions{1, 8, 5}.stride(2)},
                     nn::ReLU{},
                     nn::Conv2d{nn::Conv2dOptions{8, 16, 5}.stride(2)},
                     nn::ReLU{},
                     nn::Flatten{},
                     nn::Linear{256, 10}};
  torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions{0.05}.momentum(0.9)};

  torch::Tensor operator()(const torch::Tensor& image) {
    return net->forward(image.unsqueeze(1).to(torch::kFloat).div(255));
  }
  // Tensors saved by autograd hold the batch's slot until the backward pass has run.
  void step(const torch::Tensor& image, const torch::Tensor& label) {
    optimizer.zero_grad();
    nn::functional::cross_entropy((*this)(image), label.to(torch::kLong)).backward();
    optimizer.step();
  }

  // Writes the network, the optimizer and the data position to one file. The file is either
  // complete or absent.
  void save(const std::string& file, const ps::loader_state& at) {
    torch::serialize::OutputArchive all, weights, moments;
    net->save(weights);
    optimizer.save(moments);
    all.write("net", weights);
    all.write("optimizer", moments);
    all.write("at", torch::IValue{ps::to_text(at)});
    all.save_to(file + ".part");
    std::filesystem::rename(file + ".part", file);
  }
  ps::loader_state load(const std::string& file) {
    torch::serialize::InputArchive all, weights, moments;
    torch::IValue value;
    all.load_from(file);
    all.read("net", weights);
    all.read("optimizer", moments);
    net->load(weights);
    optimizer.load(moments);
    all.read("at", value);
    return ps::read_state(value.toStringRef());
  }
};

int main(int argc, char** argv) {
  const std::string file = argc > 1 ? argv[1] : "";
  const std::size_t workers = argc > 2 ? std::stoull(argv[2]) : 2;
  const std::size_t stop_after = argc > 3 ? std::stoull(argv[3]) : 0;
  const auto train_digits = digits_of("train");
  const auto test_digits = digits_of("t10k");
  torch::manual_seed(1);
  torch::set_num_threads(1);  // fixes the order of summation
  training run;

  ps::stop_on_signal ctrl_c{SIGINT, SIGTERM};
  ps::loader loader{train_digits | ps::subset(0, 6000) | ps::map<record>(shift),
                    ps::shuffled{.seed = 1},
                    {.batch_size = 64, .workers = workers, .seed = 1, .stop = ctrl_c.token()}};
  ps::transfer feed{loader};
  ps::loader test_loader{test_digits | ps::subset(0, 1000), ps::sequential{}, {.batch_size = 250}};

  auto at = std::filesystem::exists(file) ? run.load(file) : loader.state_at({0, 0});
  try {
    for (std::uint64_t e = at.epoch, steps = 0; e < 2; ++e) {
      for (auto& batch : feed.resume(at, e + 1)) {
        auto [image, label] = ps::torch_tensors<"image", "label">(std::move(batch));
        run.step(image, label);
        if (++steps != stop_after) continue;
        ::kill(::getpid(), SIGINT);
        while (!ctrl_c.token().stop_requested()) std::this_thread::yield();
      }
      at = feed.state();
      std::int64_t right = 0;
      for (auto& batch : test_loader.epoch(0)) {
        auto [image, label] = ps::torch_tensors<"image", "label">(std::move(batch));
        const torch::NoGradGuard no_grad;
        right += run(image).argmax(1).eq(label).sum().item<std::int64_t>();
      }
      std::cout << "epoch " << e << ": " << right << " of 1000 right\n";
      if (!file.empty()) run.save(file, at);
    }
  } catch (const ps::cancelled&) {
    if (!file.empty()) run.save(file, feed.state());
    std::cout << "stopped at " << ps::to_text(feed.state()) << '\n';
    return 3;
  }
  std::string bits;
  for (const auto& weight : run.net->parameters()) {
    bits.append(static_cast<const char*>(weight.data_ptr()), weight.nbytes());
  }
  std::cout << "weights " << std::hash<std::string>{}(bits) << '\n';
}
