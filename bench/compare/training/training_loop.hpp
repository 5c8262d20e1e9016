// SPDX-License-Identifier: BSL-1.0
// penstock's training loop of training.py for any step, equivalent to dataloader_training_peer.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/image/augment/to_chw.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include "../penstock_peer.hpp"

namespace compare {

inline constexpr std::size_t image_side = 224;

using float_planes = ps::record<ps::field<"image", float, 3, image_side, image_side>,
                                ps::field<"label", std::int64_t>>;

struct training {
  std::string folder;
  std::size_t workers = 0;
  std::size_t epochs = 0;
};

/// Returns a dataset of random resized crops of 224 x 224 with random flips, as planes of floats
/// that the workers normalize with ImageNet's constants.
inline auto normalised_photos(const std::string& folder) {
  const ps::channel_scale imagenet{.mean = {0.485F, 0.456F, 0.406F},
                                   .stddev = {0.229F, 0.224F, 0.225F}};
  return ps::image_folder{folder + "/train"} |
         ps::decode_images<ps::jpeg_decoder>(ps::random_resized_crop{image_side} |
                                             ps::random_flip{}) |
         ps::map<float_planes>([planes = ps::to_chw{imagenet}](auto in, auto out) {
           planes(ps::as_pixels(ps::get<"image">(in)), ps::get<"image">(out));
           ps::get<"label">(out) = ps::get<"label">(in);
         });
}

/// Trains on batches of 64 and prints the results for training.py. The first epoch is
/// a warm-up whose values are checked; then `requested.epochs` epochs are measured. `step(batch)`
/// receives the lease. The warm-up and the measured epochs are separate ranges, so no measured
/// batch is prefetched during the warm-up.
template <class Step>
void train_and_print(const training& requested, Step step) {
  ps::loader loader{normalised_photos(requested.folder),
                    ps::shuffled{.seed = 1},
                    {.batch_size = batch_size, .workers = requested.workers}};
  seen checked;
  std::size_t values = 0;
  for (auto& batch : loader.epoch(0)) {
    const auto flat = ps::get<"image">(batch).flat();
    for (std::size_t i = 0; i < flat.size(); i += looked_at, ++values) {
      checked.values += static_cast<double>(flat[i]);
    }
    for (const std::int64_t label : ps::get<"label">(batch).flat()) checked.labels += label;
    checked.samples += batch.size();
    step(std::move(batch));
  }

  std::size_t samples = 0;
  double busy = 0;
  const double cpu_before = cpu_seconds();
  const double start = now();
  for (auto& batch : loader.epochs(1, 1 + requested.epochs)) {
    samples += batch.size();
    const double begun = now();
    step(std::move(batch));
    busy += now() - begun;
  }
  const double seconds = now() - start;
  const double cpu = cpu_seconds() - cpu_before;
  std::printf(R"({"images": %zu, "seconds": %.6f, "cpu_seconds": %.6f, "busy": %.6f, )"
              R"("labels": %lld, "mean": %.6f, "version": "penstock %d.%d.%d"})"
              "\n",
              samples, seconds, cpu, busy, static_cast<long long>(checked.labels),
              checked.values / static_cast<double>(std::max<std::size_t>(1, values)),
              PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR, PENSTOCK_VERSION_PATCH);
}

}  // namespace compare
