// SPDX-License-Identifier: BSL-1.0
// Tensors of libtorch over batches, without a copy: torch::from_blob looks at the batch's own
// memory. Such a tensor is right as long as the batch is held: until all work on it has run,
// backward too, which here is the end of the loop's body. Needs libtorch: cmake
// -DCMAKE_PREFIX_PATH=.../libtorch
#include <torch/torch.h>

#include <penstock/penstock.hpp>

#include <cstdint>
#include <iostream>
#include <vector>

namespace ps = penstock;

// y = 3 a - 2 b + 1
struct points {
  using record_type = ps::record<ps::field<"x", float, 2>, ps::field<"y", float>>;
  std::uint64_t size() const { return 4'000; }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    const float a = static_cast<float>(i % 20) / 10.0F - 1.0F;
    const float b = static_cast<float>(i / 20 % 20) / 10.0F - 1.0F;
    ps::get<"x">(out)[0] = a;
    ps::get<"x">(out)[1] = b;
    ps::get<"y">(out) = 3.0F * a - 2.0F * b + 1.0F;
  }
};

// A tensor of the same floats and the same shape, which owns nothing.
template <std::size_t... Extents>
torch::Tensor tensor_over(const ps::tensor_view<float, Extents...>& view) {
  std::vector<std::int64_t> shape;
  for (std::size_t d = 0; d < sizeof...(Extents); ++d)
    shape.push_back(static_cast<std::int64_t>(view.extent(d)));
  return torch::from_blob(view.data(), shape, torch::kFloat32);
}

int main() {
  torch::manual_seed(1);
  torch::nn::Linear model{2, 1};
  torch::optim::SGD optimizer{model->parameters(), 0.1};

  // libtorch computes in the loop's body, so the feed is given no stream
  ps::loader loader{points{}, ps::shuffled{.seed = 1}, {.batch_size = 100, .workers = 2}};
  ps::transfer feed{loader};
  for (auto& batch : feed.epochs(0, 5)) {
    const auto x = tensor_over(ps::get<"x">(batch));
    const auto y = tensor_over(ps::get<"y">(batch));
    optimizer.zero_grad();
    torch::mse_loss(model(x).squeeze(1), y).backward();
    optimizer.step();
  }

  const auto w = model->weight.detach();
  const float a = w[0][0].item<float>(), b = w[0][1].item<float>(), c = model->bias.item<float>();
  std::cout << "y = " << a << " a + " << b << " b + " << c << '\n';
  return std::abs(a - 3) + std::abs(b + 2) + std::abs(c - 1) < 0.01F ? 0 : 1;
}
