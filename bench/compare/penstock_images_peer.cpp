// SPDX-License-Identifier: BSL-1.0
// penstock's side of images.py. images.py and peer.hpp describe the measurement.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include "penstock_peer.hpp"

namespace {

namespace ps = penstock;

struct task {
  std::size_t side = 0;
  std::size_t batch = 0;

  explicit task(const std::string& folder) {
    std::ifstream file{folder + "/task"};
    if (!(file >> side >> batch)) throw std::runtime_error(folder + "/task can't be read");
  }
};

std::string load(std::size_t workers, const std::string& folder) {
  const task wanted{folder};
  const auto make = [&] {
    return ps::loader{ps::image_folder{folder + "/train"} |
                          ps::decode_images<ps::jpeg_decoder>(ps::random_resized_crop{wanted.side}),
                      ps::shuffled{.seed = 1},
                      {.batch_size = wanted.batch, .workers = workers}};
  };
  return compare::load_batches(
      make, [](compare::seen& sums, auto& batch) { compare::add_bytes<"image">(sums, batch); });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<compare::row> rows;
  for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
    rows.emplace_back("penstock/workers:" + std::to_string(workers),
                      [=](const std::string& folder) { return load(workers, folder); });
  }
  return compare::main_of(argc, argv, rows);
}
