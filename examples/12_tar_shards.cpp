// SPDX-License-Identifier: BSL-1.0
// Pictures out of tar shards, as WebDataset writes them: any sample is read on its own, so a shuffle
// goes over all shards. Arguments: the shards, or patterns such as train-{000..146}.tar; without one
// a shard is made. --digest reads in order, and prints the SHA-256 of each field of all samples.
#include <penstock/blob/tar/tar_shards.hpp>
#include <penstock/image/crop.hpp>
#include <penstock/image/jpeg.hpp>
#include <penstock/image/png.hpp>
#include <penstock/penstock.hpp>

#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "images/photo_shard.hpp"
#include "mlp/lab/sha256.hpp"

namespace ps = penstock;

template <class Dataset, class Sampler>
void read_all(const Dataset& pictures, const Sampler& order, bool digest) {
  ps::loader loader{pictures, order, {.batch_size = 64, .workers = 4}};
  mlp::sha256 images;
  mlp::sha256 labels;
  std::size_t samples = 0;
  for (auto& batch : loader.epoch(0)) {
    samples += batch.size();
    if (digest) images.add(std::as_bytes(ps::get<"image">(batch).flat()));
    if (digest) labels.add(std::as_bytes(ps::get<"label">(batch).flat()));
  }
  std::cout << samples << " samples\n";
  if (digest) std::cout << "image " << images.finish() << "\nlabel " << labels.finish() << '\n';
}

int main(int argc, char** argv) try {
  std::vector<std::string> arguments{argv + 1, argv + argc};
  const bool digest = std::erase(arguments, "--digest") > 0;
  std::vector<std::string> paths;
  for (const std::string& one : arguments) {
    for (const std::string& path : ps::shard_paths(one)) paths.push_back(path);
  }
  std::optional<images::photo_shard> made;
  if (paths.empty()) paths.push_back(made.emplace().path());

  const ps::tar_shards shards{paths};
  std::cout << shards.shards() << " shards, " << shards.listed_from_index() << " by their index\n";
  const ps::resized_center_crop middle{256, 224};
  const auto pictures = shards | ps::decode_images<ps::jpeg_decoder, ps::png_decoder>(middle);
  if (digest) {
    read_all(pictures, ps::sequential{}, digest);
  } else {
    read_all(pictures, ps::shuffled{.seed = 1}, digest);
  }
} catch (const std::exception& problem) {
  std::cerr << "12_tar_shards: " << problem.what() << '\n';
  return 1;
}
