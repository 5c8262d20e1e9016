// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/files/gzip/gzip.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

namespace example {

/// Images of 28 x 28 pixels and the digit that each shows.
struct digit_set {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;

  /// Returns a dataset for a loader. The dataset refers to the vectors of this object.
  [[nodiscard]] penstock::memory_dataset<penstock::digit_record> samples() const {
    return penstock::memory_dataset<penstock::digit_record>{images, labels};
  }
};
struct digit_data {
  std::string name;
  digit_set train;
  digit_set test;
};

/// Reads the first `max` samples of two MNIST files, plain or with the extension .gz. Throws errors
/// derived from `penstock::file_error`.
[[nodiscard]] inline digit_set read_digits(const std::filesystem::path& folder,
                                           const std::string& part, std::size_t max) {
  const std::string images = (folder / (part + "-images-idx3-ubyte")).string();
  const std::string labels = (folder / (part + "-labels-idx1-ubyte")).string();
  const auto digits = std::filesystem::exists(images + ".gz")
                          ? penstock::idx_dataset{penstock::gzip, images + ".gz", labels + ".gz"}
                          : penstock::idx_dataset{images, labels};
  const std::size_t count = std::min<std::size_t>(max, digits.size());
  digit_set copy;
  if (count == 0) return copy;
  const auto first = digits.view(0);  // all samples are contiguous
  const std::uint8_t* pixels = penstock::get<"image">(first).data();
  const std::uint8_t* numbers = &penstock::get<"label">(first);
  copy.images.assign(pixels, pixels + count * 784);
  copy.labels.assign(numbers, numbers + count);
  return copy;
}

/// Creates digits for a machine without MNIST: ten patterns of soft spots, shifted and with added
/// noise. `first` is the number of the first sample. Use disjoint ranges for two sets that must not
/// share a sample.
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
      // Every spot moves a little, independently of the others.
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

/// Loads MNIST from `folder` or $MNIST_DIR, or creates random digits. Returns the first `max`
/// samples of the training set and of the test set.
[[nodiscard]] inline digit_data find_digits(std::string folder, std::size_t max) {
  if (const char* set = std::getenv("MNIST_DIR"); folder.empty() && set != nullptr) folder = set;
  if (!folder.empty()) {
    return {folder, read_digits(folder, "train", max), read_digits(folder, "t10k", max)};
  }
  constexpr std::size_t train_size = 60'000;
  constexpr std::size_t test_size = 10'000;
  return {"random digits (--data and $MNIST_DIR name no MNIST)",
          random_digits(std::min(max, train_size), 0),
          random_digits(std::min(max, test_size), train_size)};
}

/// Rotates a 28 x 28 image by up to 15 degrees and shifts it by up to two pixels in each direction,
/// differently for each sample in each epoch. A function for `penstock::map`. The random bits come
/// from the loader and depend only on seed, epoch and sample, so a serial loop gets the same
/// images.
struct augment {
  using record = penstock::digit_record;
  static constexpr int side = 28;

  void operator()(penstock::const_sample<record> in, penstock::sample<record> out,
                  penstock::sample_generator& random) const {
    penstock::get<"label">(out) = penstock::get<"label">(in);
    const float angle = penstock::uniform(random, -0.26F, 0.26F);
    const float dx = penstock::uniform(random, -2.0F, 2.0F);
    const float dy = penstock::uniform(random, -2.0F, 2.0F);
    turn(penstock::get<"image">(in).data(), penstock::get<"image">(out).data(), angle, dx, dy);
  }

  /// Interpolates each pixel bilinearly at its source position.
  static void turn(const std::uint8_t* in, std::uint8_t* out, float angle, float dx, float dy) {
    // A border of background, wide enough for all positions after clamping.
    constexpr int margin = 2;
    constexpr int stride = side + 2 * margin;
    std::array<std::uint8_t, stride * stride> framed{};
    for (int y = 0; y < side; ++y) {
      std::memcpy(&framed[static_cast<std::size_t>((y + margin) * stride + margin)], in + y * side,
                  side);
    }
    const float sine = std::sin(angle);
    const float cosine = std::cos(angle);
    constexpr float centre = (side - 1) / 2.0F;
    const auto clamped = [](float place) {
      constexpr float last = side + margin - 1.001F;
      return (place < -margin ? -margin : place > last ? last : place) + margin;
    };
    for (int y = 0; y < side; ++y) {
      const float v = static_cast<float>(y) - centre - dy;
      for (int x = 0; x < side; ++x) {
        const float u = static_cast<float>(x) - centre - dx;
        const float from_x = clamped(centre + cosine * u + sine * v);
        const float from_y = clamped(centre - sine * u + cosine * v);
        const auto left = static_cast<int>(from_x);
        const auto top = static_cast<int>(from_y);
        const float right_share = from_x - static_cast<float>(left);
        const float below_share = from_y - static_cast<float>(top);
        const auto at = [&](int place) {
          return static_cast<float>(framed[static_cast<std::size_t>(place)]);
        };
        const int corner = top * stride + left;
        const float above = at(corner) + right_share * (at(corner + 1) - at(corner));
        const float below =
            at(corner + stride) + right_share * (at(corner + stride + 1) - at(corner + stride));
        out[y * side + x] = static_cast<std::uint8_t>(above + below_share * (below - above) + 0.5F);
      }
    }
  }
};

}  // namespace example
