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

/// Digits in memory: images of 28 x 28 bytes, one after the other, and their labels.
struct digit_set {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;

  /// The first `most` samples where they lie, 0: all. Throws `std::runtime_error` for none.
  [[nodiscard]] penstock::memory_dataset<penstock::digit_record> first(std::uint64_t most) const;
};

/// The digits to learn from and to be tested on, with the name they may be shown under.
struct digit_data {
  std::string name;       ///< "MNIST" if the pixels add up to its sum, "IDX files", "random digits"
  std::string directory;  ///< empty for random ones
  digit_set train;
  digit_set test;
};

/// Where the files are looked for: `asked` if there is one, else $MNIST_DIR, else data/mnist if
/// that has them, else nothing.
[[nodiscard]] std::optional<std::filesystem::path> find_data(
    const std::optional<std::filesystem::path>& asked);

/// Reads MNIST's four files, plain or with .gz after their names. Throws `penstock::file_error`s,
/// `file_unreadable` among them where one is missing.
[[nodiscard]] digit_data read_data(const std::filesystem::path& directory);

/// Pixels of class `digit` (0 to 9), the same bytes on every machine: a random pattern of the class
/// under noise of the key. A network learns to tell them apart.
void random_digit(unsigned digit, std::uint64_t key, std::span<std::uint8_t, 28 * 28> out);

/// So many of them, with the labels 0, 1, ..., 9, 0, ... and the keys from `first_key` on.
[[nodiscard]] digit_set random_digits(std::uint64_t count, std::uint64_t first_key = 0);

/// A set of MNIST's size of them.
[[nodiscard]] digit_data random_data(std::uint64_t train = 60'000, std::uint64_t test = 10'000);

}  // namespace mlp
