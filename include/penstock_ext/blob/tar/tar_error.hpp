// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The files that make a sample of a tar archive are not those asked for. Says which archive, at
/// which byte the sample's first file starts, and of which sample; the types derived from it say
/// what kind of problem it is.
class [[gnu::visibility("default")]] shard_sample_error : public file_format_error {
 public:
  /// `key` is the sample's: the path of its files up to the extension.
  shard_sample_error(std::string path, std::uint64_t offset, std::string key,
                     const std::string& expected, const std::string& found)
      : file_format_error(std::move(path), offset, expected + " for the sample '" + key + "'",
                          found),
        key_(std::move(key)) {}

  /// The path that the sample's files have in common, up to the first dot of the file's name.
  [[nodiscard]] const std::string& key() const noexcept { return key_; }

 private:
  std::string key_;
};

/// A sample has no file of an extension that was asked for.
class [[gnu::visibility("default")]] missing_component : public shard_sample_error {
 public:
  using shard_sample_error::shard_sample_error;
};

/// A sample has two files of one extension.
class [[gnu::visibility("default")]] duplicate_component : public shard_sample_error {
 public:
  using shard_sample_error::shard_sample_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
