// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

namespace mlp {

/// Digits in memory: contiguous images of 28 x 28 bytes, and their labels.
struct digit_set {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;

  /// Returns the first `max` samples, or all samples if `max` is 0, without copying them. Throws
  /// `std::runtime_error` if there are no samples.
  [[nodiscard]] penstock::memory_dataset<penstock::digit_record> first(std::uint64_t max) const;
};

/// The training and test digits, and the name to print.
struct digit_data {
  /// "MNIST" if the pixels have MNIST's checksum, otherwise "IDX files" or "random digits".
  std::string name;
  std::string directory;  ///< empty for random digits
  digit_set train;
  digit_set test;
};

/// Returns the folder of the files: `asked` if set, otherwise $MNIST_DIR if set, otherwise
/// data/mnist if it contains the files, otherwise an empty optional.
[[nodiscard]] std::optional<std::filesystem::path> find_data(
    const std::optional<std::filesystem::path>& requested);

/// Reads MNIST's four files, plain or with the extension .gz. Throws errors derived from
/// `penstock::file_error`, such as `file_unreadable` if a file is missing.
[[nodiscard]] digit_data read_data(const std::filesystem::path& directory);

/// Generates the pixels of class `digit` (0 to 9): a random pattern of the class with added noise
/// from the key. The bytes are the same on every machine. A network can learn to distinguish the
/// classes.
void random_digit(unsigned digit, std::uint64_t key, std::span<std::uint8_t, 28 * 28> out);

/// Generates `count` random digits with the labels 0, 1, ..., 9, 0, ... and keys that start at
/// `first_key`.
[[nodiscard]] digit_set random_digits(std::uint64_t count, std::uint64_t first_key = 0);

/// Generates random digits in MNIST's sizes.
[[nodiscard]] digit_data random_data(std::uint64_t train = 60'000, std::uint64_t test = 10'000);

}  // namespace mlp
