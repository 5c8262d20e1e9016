// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>

#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

#include "../../examples/mlp/digits.hpp"

namespace mlp {

/// Digits in memory: contiguous images of 28 x 28 bytes, and their labels.
struct digit_set : example::digit_set {
  /// Returns the first `max` samples, or all samples if `max` is 0, without copying them. Throws
  /// `std::runtime_error` if there are no samples.
  [[nodiscard]] penstock::memory_dataset<penstock::digit_record> first(std::uint64_t max) const {
    const std::size_t count = max == 0 ? labels.size() : std::min<std::size_t>(max, labels.size());
    if (count == 0) throw std::runtime_error("there are no samples to train or to test on");
    return penstock::memory_dataset<penstock::digit_record>{
        std::span{images.data(), count * 28 * 28}, std::span{labels.data(), count}};
  }
};

/// The training and test digits, and the name to print.
struct digit_data {
  /// "MNIST" if the pixels have MNIST's checksum, otherwise "IDX files" or "random digits".
  std::string name;
  std::string directory;  ///< empty for random digits
  digit_set train;
  digit_set test;
};

/// Returns the folder of the files: `requested` if set, otherwise $MNIST_DIR if set, otherwise
/// data/mnist if it contains the files, otherwise an empty optional.
[[nodiscard]] inline std::optional<std::filesystem::path> find_data(
    const std::optional<std::filesystem::path>& requested) {
  if (requested) return requested;
  if (const char* directory = std::getenv("MNIST_DIR"); directory != nullptr && *directory != 0) {
    return directory;
  }
  std::error_code ignored;
  for (const char* suffix : {"", ".gz"}) {
    const std::string first = "data/mnist/train-images-idx3-ubyte";
    if (std::filesystem::exists(first + suffix, ignored)) return "data/mnist";
  }
  return std::nullopt;
}

/// Reads MNIST's four files, plain or with the extension .gz. Throws errors derived from
/// `penstock::file_error`, such as `file_unreadable` if a file is missing.
[[nodiscard]] inline digit_data read_data(const std::filesystem::path& directory) {
  constexpr std::size_t all = (std::numeric_limits<std::size_t>::max)();
  digit_data data{"IDX files",
                  directory.string(),
                  {example::read_digits(directory, "train", all)},
                  {example::read_digits(directory, "t10k", all)}};
  // Fashion-MNIST has the same number of samples but different pixels.
  const auto& pixels = data.train.images;
  const auto sum = std::accumulate(pixels.begin(), pixels.end(), std::uint64_t{0});
  if (sum == 1'567'298'545) data.name = "MNIST";
  return data;
}

/// Generates `count` random digits with numbers that start at `first`. A network can learn to
/// distinguish the classes.
[[nodiscard]] inline digit_set random_digits(std::uint64_t count, std::uint64_t first = 0) {
  return {example::random_digits(count, first)};
}

/// Generates random digits in MNIST's sizes.
[[nodiscard]] inline digit_data random_data(std::uint64_t train = 60'000,
                                            std::uint64_t test = 10'000) {
  return {"random digits", "", random_digits(train), random_digits(test, train)};
}

}  // namespace mlp
