// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <penstock/data/idx_dataset.hpp>

namespace mlp {

/// The digits to learn from and to be tested on, with the name they may be shown under.
struct digit_data {
  /// "MNIST" only if the SHA-256 of all four uncompressed files say so, "synthetic digits" for
  /// drawn ones, else "IDX files (not MNIST: checksums differ)".
  std::string name;
  std::filesystem::path directory;
  penstock::idx_dataset<> train;
  penstock::idx_dataset<> test;
};

/// Where the files are looked for: `asked` if there is one, else $MNIST_DIR, else data/mnist if
/// that has them, else nothing: the digits have to be drawn.
[[nodiscard]] std::optional<std::filesystem::path> find_data(
    const std::optional<std::filesystem::path>& asked);

/// Reads MNIST's four files, plain or with .gz after their names, into memory. Throws
/// `penstock::file_error`s, `file_unreadable` among them where one is missing.
[[nodiscard]] digit_data read_data(const std::filesystem::path& directory);

/// Reads the synthetic digits out of the user's cache folder ($XDG_CACHE_HOME or ~/.cache, else the
/// system's folder for temporary files); draws them first if they are not there or not as they
/// should be. Throws as `read_data` and `write_digits`.
[[nodiscard]] digit_data synthetic_data();

}  // namespace mlp
