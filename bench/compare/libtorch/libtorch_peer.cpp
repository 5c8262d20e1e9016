// SPDX-License-Identifier: BSL-1.0
// libtorch's torch::data, and training fed by it, measured as peer.hpp describes. Rows with
// threads:2 permit two threads per operation; all other rows use a single thread.

#include <torch/torch.h>
#include <torch/version.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../peer.hpp"

namespace {

namespace data = torch::data;
using example = data::Example<>;

constexpr std::size_t epochs_of_training = 5;

struct digits {
  torch::Tensor images;  // N x 784 bytes
  torch::Tensor labels;  // N int64 values
};

digits read_digits(const std::string& folder, const std::string& part) {
  auto files = compare::read_digits(folder, part);
  const auto count = static_cast<std::int64_t>(files.labels.size());
  const auto bytes = [](std::vector<std::uint8_t>& from, at::IntArrayRef shape) {
    return torch::from_blob(from.data(), shape, torch::kUInt8).clone();
  };
  return {bytes(files.images, {count, static_cast<std::int64_t>(compare::pixels)}),
          bytes(files.labels, {count}).to(torch::kInt64)};
}

torch::Tensor normalised(const torch::Tensor& bytes) {
  return bytes.to(torch::kFloat).mul_(compare::scale).add_(compare::shift);
}

// A dataset of single samples, which libtorch stacks into batches.
struct samples : data::Dataset<samples> {
  explicit samples(digits from) : from_(std::move(from)) {}
  example get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {normalised(from_.images[i]), from_.labels[i]};
  }
  [[nodiscard]] std::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(from_.labels.size(0));
  }
  digits from_;
};

// A dataset of whole batches, gathered with tensor operations.
struct batches : data::BatchDataset<batches, example> {
  explicit batches(digits from) : from_(std::move(from)) {}
  example get_batch(at::ArrayRef<std::size_t> indices) override {
    static_assert(sizeof(std::size_t) == sizeof(std::int64_t));
    // const_cast is safe, because index_select does not write to its index
    const auto index = torch::from_blob(const_cast<std::size_t*>(indices.data()),
                                        {static_cast<std::int64_t>(indices.size())}, torch::kInt64);
    return {normalised(from_.images.index_select(0, index)), from_.labels.index_select(0, index)};
  }
  [[nodiscard]] std::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(from_.labels.size(0));
  }
  digits from_;
};

// A dataset of whole batches, gathered with the same plain loop as the floor. Only the loader
// belongs to libtorch.
struct by_hand : data::BatchDataset<by_hand, example> {
  explicit by_hand(digits from) : from_(std::move(from)) {}
  example get_batch(at::ArrayRef<std::size_t> indices) override {
    const auto count = static_cast<std::int64_t>(indices.size());
    auto images = torch::empty({count, static_cast<std::int64_t>(compare::pixels)});
    auto labels = torch::empty({count}, torch::kInt64);
    compare::gather(std::span<const std::size_t>{indices.data(), indices.size()},
                    from_.images.const_data_ptr<std::uint8_t>(),
                    from_.labels.const_data_ptr<std::int64_t>(), images.mutable_data_ptr<float>(),
                    labels.mutable_data_ptr<std::int64_t>());
    return {std::move(images), std::move(labels)};
  }
  [[nodiscard]] std::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(from_.labels.size(0));
  }
  digits from_;
};

template <class Dataset>
auto make_loader(Dataset dataset, std::size_t workers) {
  const auto options = data::DataLoaderOptions().batch_size(compare::batch_size).workers(workers);
  if constexpr (std::is_same_v<Dataset, samples>) {
    return data::make_data_loader<data::samplers::RandomSampler>(
        std::move(dataset).map(data::transforms::Stack<>()), options);
  } else {
    return data::make_data_loader<data::samplers::RandomSampler>(std::move(dataset), options);
  }
}

// The data without a loader: the training loop gathers each batch itself.
class resident {
 public:
  explicit resident(digits from) : from_(std::move(from)) {}
  template <class Each>
  void epoch(Each each) const {
    const auto order = torch::randperm(from_.labels.size(0), torch::kInt64);
    for (const auto& index : order.split(static_cast<std::int64_t>(compare::batch_size))) {
      each(normalised(from_.images.index_select(0, index)), from_.labels.index_select(0, index));
    }
  }

 private:
  digits from_;
};

template <class Dataset>
std::string load(std::size_t workers, const std::string& folder) {
  const Dataset dataset{read_digits(folder, "train")};
  const auto make = [&] { return make_loader(dataset, workers); };
  return compare::load(make, [](auto& loader, std::uint64_t, auto each) {
    for (const example& batch : *loader) {
      each([&](compare::seen& sums) {
        const auto span_of = [](const auto* from, const torch::Tensor& tensor) {
          return std::span{from, static_cast<std::size_t>(tensor.numel())};
        };
        sums.add(span_of(batch.data.const_data_ptr<float>(), batch.data),
                 span_of(batch.target.const_data_ptr<std::int64_t>(), batch.target));
      });
    }
  });
}

// Trains with `Source`, a dataset for torch::data or `resident`.
template <class Source>
std::string train(std::size_t workers, const std::string& folder) {
  const digits from = read_digits(folder, "train");
  const auto new_network = [] {
    torch::manual_seed(1);
    return torch::nn::Sequential(torch::nn::Linear(784, 128), torch::nn::ReLU(),
                                 torch::nn::Linear(128, 64), torch::nn::ReLU(),
                                 torch::nn::Linear(64, 10));
  };
  const auto new_optimiser = [](torch::nn::Sequential& network) {
    return torch::optim::Adam(network->parameters(), torch::optim::AdamOptions(1e-3));
  };
  const auto step = [](torch::nn::Sequential& network, torch::optim::Adam& optimiser,
                       const torch::Tensor& images, const torch::Tensor& labels) {
    optimiser.zero_grad();
    torch::nn::functional::cross_entropy(network->forward(images), labels).backward();
    optimiser.step();
  };

  {  // warms up the libraries before the clock starts, as in all programs
    auto network = new_network();
    auto optimiser = new_optimiser(network);
    const auto labels = from.labels.slice(0, 0, compare::batch_size);
    const auto images = normalised(from.images.slice(0, 0, compare::batch_size));
    for (int i = 0; i < 20; ++i) step(network, optimiser, images, labels);
  }
  auto network = new_network();
  auto optimiser = new_optimiser(network);
  const auto accuracy = [&] {
    const torch::NoGradGuard no_gradients;
    const digits test = read_digits(folder, "t10k");
    const auto found = network->forward(normalised(test.images)).argmax(1);
    return found.eq(test.labels).to(torch::kFloat).mean().template item<double>();
  };
  const auto count = static_cast<std::size_t>(from.labels.size(0));
  if constexpr (std::is_same_v<Source, resident>) {
    const resident all{from};
    return compare::train(
        epochs_of_training, count,
        [&] {
          for (std::size_t e = 0; e < epochs_of_training; ++e) {
            all.epoch([&](const torch::Tensor& images, const torch::Tensor& labels) {
              step(network, optimiser, images, labels);
            });
          }
        },
        accuracy);
  } else {
    auto loader = make_loader(Source{from}, workers);
    return compare::train(
        epochs_of_training, count,
        [&] {
          for (std::size_t e = 0; e < epochs_of_training; ++e) {
            for (const example& batch : *loader) step(network, optimiser, batch.data, batch.target);
          }
        },
        accuracy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  std::vector<compare::row> rows;
  const auto add = [&](const std::string& name, std::size_t workers, auto measure) {
    rows.emplace_back(name + "/workers:" + std::to_string(workers),
                      [=](const std::string& folder) { return measure(workers, folder); });
  };
  for (const std::size_t workers : {0, 1, 2}) add("libtorch", workers, load<samples>);
  for (const std::size_t workers : {0, 1, 2}) add("libtorch_batched", workers, load<batches>);
  rows.emplace_back("libtorch_batched/workers:0/threads:2", [](const std::string& folder) {
    torch::set_num_threads(2);
    return load<batches>(0, folder);
  });
  for (const std::size_t workers : {0, 1, 2}) add("libtorch_by_hand", workers, load<by_hand>);
  add("train_libtorch", 0, train<samples>);
  add("train_libtorch_batched", 0, train<batches>);
  rows.emplace_back("train_libtorch_resident",
                    [](const std::string& folder) { return train<resident>(0, folder); });
  return compare::main_of(argc, argv, rows, "libtorch", TORCH_VERSION);
}
