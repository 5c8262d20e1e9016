// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <penstock/data/memory_dataset.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/files/gzip/gzip.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

namespace example {

/// Pictures of 28 x 28 pixels, and which digit each shows.
struct digit_set {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;

  /// For a loader; refers to them.
  [[nodiscard]] penstock::memory_dataset<penstock::digit_record> samples() const {
    return penstock::memory_dataset<penstock::digit_record>{images, labels};
  }
};
struct digit_data {
  std::string name;
  digit_set train;
  digit_set test;
};

/// The first `most` samples of two of MNIST's files, plain or with .gz after their names. Throws
/// `penstock::file_error`s.
[[nodiscard]] inline digit_set read_digits(const std::filesystem::path& folder,
                                           const std::string& part, std::size_t most) {
  const std::string images = (folder / (part + "-images-idx3-ubyte")).string();
  const std::string labels = (folder / (part + "-labels-idx1-ubyte")).string();
  const auto digits = std::filesystem::exists(images + ".gz")
                          ? penstock::idx_dataset{penstock::gzip, images + ".gz", labels + ".gz"}
                          : penstock::idx_dataset{images, labels};
  const std::size_t count = std::min<std::size_t>(most, digits.size());
  digit_set copy;
  if (count == 0) return copy;
  const auto first = digits.view(0);  // all samples lie one after the other
  const std::uint8_t* pixels = penstock::get<"image">(first).data();
  const std::uint8_t* numbers = &penstock::get<"label">(first);
  copy.images.assign(pixels, pixels + count * 784);
  copy.labels.assign(numbers, numbers + count);
  return copy;
}

/// Where there is no MNIST: ten patterns of soft spots, shifted and under noise. `first` counts on
/// from another set, so that no two samples are equal.
[[nodiscard]] inline digit_set random_digits(std::size_t count, std::uint64_t first) {
  constexpr int side = 28;
  constexpr int spots = 6;
  float x[10][spots];
  float y[10][spots];
  penstock::sample_generator places{{.seed = 10}, 0};
  for (int digit = 0; digit < 10; ++digit) {
    for (int spot = 0; spot < spots; ++spot) {
      x[digit][spot] = penstock::uniform(places, 5.0F, 23.0F);
      y[digit][spot] = penstock::uniform(places, 5.0F, 23.0F);
    }
  }
  digit_set drawn;
  drawn.images.resize(count * side * side);
  drawn.labels.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    penstock::sample_generator random{{.seed = 11}, first + i};
    const auto digit = penstock::uniform(random, std::uint8_t{0}, std::uint8_t{9});
    drawn.labels[i] = digit;
    float sums[side][side] = {};
    for (int spot = 0; spot < spots; ++spot) {
      // A spot wanders a little, apart from the others.
      const float cx = x[digit][spot] + penstock::uniform(random, -2.0F, 2.0F);
      const float cy = y[digit][spot] + penstock::uniform(random, -2.0F, 2.0F);
      float across[side];
      float down[side];
      for (int p = 0; p < side; ++p) {
        const auto place = static_cast<float>(p);
        across[p] = 255.0F / (1.0F + (place - cx) * (place - cx));
        down[p] = 1.0F / (1.0F + (place - cy) * (place - cy));
      }
      for (int r = 0; r < side; ++r) {
        for (int c = 0; c < side; ++c) sums[r][c] += down[r] * across[c];
      }
    }
    const std::uint32_t noise = random() | 1U;
    for (int p = 0; p < side * side; ++p) {
      const auto grain = static_cast<float>((static_cast<std::uint32_t>(p) * noise) >> 26);
      drawn.images[i * side * side + static_cast<std::size_t>(p)] =
          static_cast<std::uint8_t>(std::min(sums[p / side][p % side] + grain, 255.0F));
    }
  }
  return drawn;
}

/// MNIST out of `folder`, else out of $MNIST_DIR, else random digits; of the samples to train on and
/// of those to test on the first `most`.
[[nodiscard]] inline digit_data find_digits(std::string folder, std::size_t most) {
  if (const char* set = std::getenv("MNIST_DIR"); folder.empty() && set != nullptr) folder = set;
  if (!folder.empty()) {
    return {folder, read_digits(folder, "train", most), read_digits(folder, "t10k", most)};
  }
  constexpr std::size_t train_size = 60'000;
  constexpr std::size_t test_size = 10'000;
  return {"random digits (--data and $MNIST_DIR name no MNIST)",
          random_digits(std::min(most, train_size), 0),
          random_digits(std::min(most, test_size), train_size)};
}

}  // namespace example
