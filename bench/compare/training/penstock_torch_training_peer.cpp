// SPDX-License-Identifier: BSL-1.0
// A training loop of training.py with penstock and libtorch. The consumer thread trains the network
// of dataloader_training_peer.py.
//
//   penstock_torch_training_peer FOLDER WORKERS EPOCHS

#include <torch/torch.h>

#include <penstock_ext/interop/torch/torch.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "training_loop.hpp"

namespace {

namespace nn = torch::nn;

class network {
 public:
  template <class Batch>
  void operator()(Batch batch) {
    const auto [image, label] = penstock::torch_tensors<"image", "label">(std::move(batch));
    optimizer_.zero_grad();
    const torch::Tensor loss = nn::functional::cross_entropy(layers_->forward(image), label);
    loss.backward();
    optimizer_.step();
    if (!loss.isfinite().item<bool>()) throw std::runtime_error("the loss is not finite");
  }

 private:
  nn::Sequential layers_{nn::Conv2d{nn::Conv2dOptions{3, 16, 7}.stride(4)},
                         nn::ReLU{},
                         nn::MaxPool2d{2},
                         nn::Conv2d{nn::Conv2dOptions{16, 32, 3}.stride(2)},
                         nn::ReLU{},
                         nn::AdaptiveAvgPool2d{1},
                         nn::Flatten{},
                         nn::Linear{32, 4}};
  torch::optim::SGD optimizer_{layers_->parameters(), torch::optim::SGDOptions{0.01}.momentum(0.9)};
};

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 3) {
    std::fprintf(stderr, "usage: %s FOLDER WORKERS EPOCHS\n", argv[0]);
    return 2;
  }
  torch::manual_seed(1);
  torch::set_num_threads(1);
  network step;
  const compare::training requested{words[0], std::stoul(words[1]), std::stoul(words[2])};
  compare::train_and_print(requested, [&](auto batch) { step(std::move(batch)); });
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  return 1;
}
