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
#include <penstock_ext/image/resize.hpp>

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

// Resizes images of about 320 x 290 to 224 x 224. The sizes vary as in image_peers.py.
std::string resize(const std::string&) {
  std::vector<std::uint8_t> in(322 * 290 * 3);
  ps::sample_generator random{{.seed = 1}, 0};
  for (std::uint8_t& value : in) value = static_cast<std::uint8_t>(random());
  std::vector<std::uint8_t> out(224 * 224 * 3);
  return compare::load([] { return ps::resizer{}; },
                       [&](ps::resizer& shrink, std::uint64_t, auto each) {
                         for (std::size_t i = 0; i < 1005; ++i) {
                           const ps::image_size size{320 + i % 3, 290 - i % 5};
                           shrink({in.data(), size, 3, size.width * 3},
                                  ps::pixels{out.data(), {224, 224}, 3, 224 * 3});
                           each([](compare::seen& sums) { ++sums.samples; });
                         }
                       });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<compare::row> rows;
  for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
    rows.emplace_back("penstock/workers:" + std::to_string(workers),
                      [=](const std::string& folder) { return load(workers, folder); });
  }
  rows.emplace_back("resize_penstock", resize);
  return compare::main_of(argc, argv, rows);
}
