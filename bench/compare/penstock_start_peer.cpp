// SPDX-License-Identifier: BSL-1.0
// Measures the time from the start of the process to the first batch of a folder of images; see
// start.py.

#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <utility>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

namespace {

namespace ps = penstock;

void start(const std::string& folder) {
  using clock = std::chrono::steady_clock;
  const clock::time_point begin = clock::now();
  const auto since = [&] {
    return std::chrono::duration<double, std::milli>{clock::now() - begin}.count();
  };
  ps::image_folder photos{folder};
  const double listed = since();
  const auto files = static_cast<unsigned long long>(photos.size());
  ps::loader loader{
      std::move(photos) | ps::decode_images<ps::jpeg_decoder>(ps::random_resized_crop{224}),
      ps::shuffled{.seed = 1},
      {.batch_size = 64, .workers = 2}};
  for (auto& batch : loader.epoch(0)) {
    std::printf(
        "{\"files\": %llu, \"samples\": %zu, \"listed_ms\": %.3f, \"first_batch_ms\": %.3f}\n",
        files, batch.size(), listed, since());
    break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "penstock_start_peer FOLDER\n";
    return 2;
  }
  try {
    start(argv[1]);
  } catch (const std::exception& problem) {
    std::cerr << problem.what() << '\n';
    return 1;
  }
  return 0;
}
