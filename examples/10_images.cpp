// SPDX-License-Identifier: BSL-1.0
// Reads images from a folder of classes, as training or validation does. Workers decode, crop and
// resize them, and the program counts them. The program measures the throughput of the machine. The
// program can also write all pixels to a file, to compare them with the pixels of another loader.
// --help lists the options. Without a folder, the program creates a folder of photographs from the
// system's packages or of synthetic images.
#include <penstock/penstock.hpp>
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>
#include <penstock_ext/image/png/png.hpp>
#include <penstock_ext/report/diagnose.hpp>
#include <penstock_ext/report/stats_text.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "images/npy_file.hpp"
#include "images/progress_bar.hpp"
#include "images/synthetic_photos.hpp"

namespace ps = penstock;

namespace {

struct tool_options {
  std::string folder;
  bool validation = false;
  std::size_t size = 224;
  std::size_t batch = 256;
  std::size_t workers = 0;
  std::uint64_t epochs = 1;
  std::uint64_t seed = 1;
  bool skip_bad = false;
  std::string dump;
  std::string json;
};

// Reads `epochs` epochs and prints the throughput.
template <class Dataset, class Sampler>
void read_all(const Dataset& dataset, const Sampler& order, const tool_options& chosen) {
  ps::loader_options options{
      .batch_size = chosen.batch, .workers = chosen.workers, .prefetch = 2, .seed = chosen.seed};
  if (chosen.skip_bad) {
    options.faults.on_error = {.action = ps::error_action::skip, .max_failure_rate = 1};
  }
  ps::loader loader{dataset, order, options};
  const std::uint64_t expected = dataset.size() * chosen.epochs;
  std::optional<images::npy_file> dump;
  if (!chosen.dump.empty()) dump.emplace(chosen.dump, chosen.size);

  images::progress_bar bar{expected, "images"};
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (auto& batch : loader.epochs(0, chosen.epochs)) {
    const auto pixels = ps::get<"image">(batch).flat();
    samples += batch.size();
    bytes += pixels.size();
    if (dump) dump->append(pixels);
    bar.show(samples);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  bar.clear();
  if (dump) dump->close();

  const auto rate = static_cast<double>(samples) / took.count();
  const auto stats = loader.stats();
  std::cout << samples << " images, " << bytes << " bytes of pixels, in " << took.count()
            << " s: " << rate << " images/s, " << rate / static_cast<double>(stats.workers)
            << " a worker\n"
            << stats << '\n';
  const auto failures = loader.failures();
  if (failures.failed_reads != 0) failures.write_quarantine(std::cout);
  if (!chosen.json.empty()) {
    std::ofstream file{chosen.json};
    file << "{\"images\": " << samples << ", \"bytes\": " << bytes
         << ", \"seconds\": " << took.count() << ", \"images_per_second\": " << rate
         << ", \"workers\": " << stats.workers << ", \"batch\": " << chosen.batch
         << ", \"size\": " << chosen.size << ", \"stats\": " << ps::to_json(stats) << "}\n";
    if (!file.flush()) throw std::runtime_error(chosen.json + ": can't be written");
  }
}

void run(const tool_options& chosen) {
  std::optional<images::synthetic_photos> made;
  std::string origin;
  if (chosen.folder.empty()) {
    using images::synthetic_photos;
    const auto found =
        images::found_photographs({synthetic_photos::width, synthetic_photos::height});
    made.emplace(chosen.seed, found);
    origin = found.empty() ? ", synthetic: painted"
                           : ", synthetic: cut out of " + std::to_string(found.size()) +
                                 " photographs, the first of them " + found[0].path;
  }
  const ps::image_folder photos{made ? made->path() : chosen.folder};
  std::cout << photos.size() << " files in " << photos.classes().size() << " classes" << origin
            << ", " << (chosen.validation ? "validation" : "training") << ", " << chosen.size
            << " x " << chosen.size << '\n';
  if (chosen.validation) {
    // Resizes the shorter side to 256 for a crop of 224.
    const auto middle = ps::resize_shorter{chosen.size * 8 / 7} | ps::center_crop{chosen.size};
    read_all(photos | ps::decode_images<ps::jpeg_decoder, ps::png_decoder>(middle),
             ps::sequential{}, chosen);
  } else {
    const auto crop = ps::random_resized_crop{chosen.size} | ps::random_flip{};
    read_all(photos | ps::decode_images<ps::jpeg_decoder, ps::png_decoder>(crop),
             ps::shuffled{.seed = chosen.seed}, chosen);
  }
}

}  // namespace

int main(int argc, char** argv) {
  tool_options chosen;
  bool training = false;
  chosen.workers = ps::loader_options{}.workers.value();
  CLI::App app{"Reads a folder of images as a training or a validation does."};
  app.add_option("folder", chosen.folder, "FOLDER/class/file; none: synthetic images");
  auto* const as_training = app.add_flag("--train", training, "random crops, shuffled (default)");
  app.add_flag("--val", chosen.validation, "the middle of each, in the order of the paths")
      ->excludes(as_training);
  app.add_option("--size", chosen.size, "pixels of a side")->capture_default_str();
  app.add_option("--batch", chosen.batch, "samples of a batch")->capture_default_str();
  app.add_option("--workers", chosen.workers, "threads that decode")->capture_default_str();
  app.add_option("--epochs", chosen.epochs, "how often all is read")->capture_default_str();
  app.add_option("--seed", chosen.seed, "of the order and the crops")->capture_default_str();
  app.add_flag("--skip-bad", chosen.skip_bad, "leave out what can't be decoded, and list it");
  app.add_option("--dump", chosen.dump, "write all pixels here: npy, u8, N x H x W x 3");
  app.add_option("--json", chosen.json, "write the figures here");
  CLI11_PARSE(app, argc, argv);
  try {
    run(chosen);
  } catch (const std::exception& problem) {
    std::cerr << "10_images: " << problem.what() << '\n';
    return 1;
  }
  return 0;
}
