// SPDX-License-Identifier: BSL-1.0
// Reads images from tar shards in WebDataset's format. Every sample can be read individually, so a
// shuffle covers all shards. The arguments are the shards, or patterns such as
// train-{000..146}.tar. Without arguments the program creates a shard. --digest reads in order and
// prints the SHA-256 of each field over all samples.
#include <penstock/penstock.hpp>
#include <penstock_ext/blob/tar/tar_shards.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>
#include <penstock_ext/image/png/png.hpp>

#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "data/read_all.hpp"
#include "images/photo_shard.hpp"

namespace ps = penstock;

int main(int argc, char** argv) try {
  const auto [arguments, digest] = data::arguments_of(argc, argv);
  std::vector<std::string> paths;
  for (const std::string& one : arguments) {
    for (const std::string& path : ps::shard_paths(one)) paths.push_back(path);
  }
  std::optional<images::photo_shard> made;
  if (paths.empty()) paths.push_back(made.emplace().path());

  const ps::tar_shards shards{paths};
  std::cout << shards.shards() << " shards, " << shards.listed_from_index() << " by their index\n";
  const auto middle = ps::resize_shorter{256} | ps::center_crop{224};
  const auto decoded = shards | ps::decode_images<ps::jpeg_decoder, ps::png_decoder>(middle);
  data::read_all(decoded, ps::shuffled{.seed = 1}, digest);
} catch (const std::exception& problem) {
  std::cerr << "12_tar_shards: " << problem.what() << '\n';
  return 1;
}
