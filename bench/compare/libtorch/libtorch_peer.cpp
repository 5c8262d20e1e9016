// SPDX-License-Identifier: BSL-1.0
// libtorch's torch::data, measured as peer.hpp describes. The row with threads:2 permits two
// threads per operation; all other rows use a single thread.

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

struct digits {
  torch::Tensor images;  // N x 784 bytes
  torch::Tensor labels;  // N int64 values
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(labels.size(0)); }
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
  [[nodiscard]] std::optional<std::size_t> size() const override { return from_.size(); }
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
  [[nodiscard]] std::optional<std::size_t> size() const override { return from_.size(); }
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
  [[nodiscard]] std::optional<std::size_t> size() const override { return from_.size(); }
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
  return compare::main_of(argc, argv, rows, "libtorch", TORCH_VERSION);
}
