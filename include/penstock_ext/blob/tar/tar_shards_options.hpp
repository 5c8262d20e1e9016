// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/tar/detail/shard_listing.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What `tar_shards` does about the index file of a shard.
enum class shard_index {
  ignore,  ///< no index is read: all headers are
  use,     ///< an index that is there and fits is read, none is written
  keep     ///< besides, one that is not there or does not fit is written, anew
};

/// What of the samples of tar shards is read, and how.
struct tar_shards_options {
  /// Extensions of the file that is a sample's blob, best first: all after the first dot of the
  /// file's name, compared in letters of any case. 1 to 255.
  std::vector<std::string> blob = {"jpg", "jpeg", "png", "webp"};
  /// Extension of the file that has the label as a decimal number; "" for labels that are all 0.
  std::string label = "cls";
  /// Whether samples without a blob or a label are left out and counted. If not,
  /// `missing_component` names the first.
  bool skip_incomplete = false;
  /// Index files in the form of DALI's wds2idx, as `name.idx` for `name.tar`.
  shard_index index = shard_index::use;
  /// The folder of the index files, for shards of different names; "" is that of each shard.
  std::string index_folder = {};
  /// The largest blob that is read, in bytes: `bytes` throws `file_format_error` for a larger one,
  /// before it takes memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  /// How many threads list the shards at the construction: headers on a disk are waited for side by
  /// side. None is left when it returns.
  std::size_t threads = 8;
  /// How many shards stay open. Those after them are opened for each read, and checked.
  std::size_t most_open = 512;
};

namespace detail {

/// What is wanted of a sample. Throws `option_error` for options that mean nothing.
[[nodiscard]] inline shard_wishes wishes_of(const tar_shards_options& options) {
  shard_wishes wishes{options.blob, options.label, options.skip_incomplete};
  if (wishes.blob.empty() || wishes.blob.size() > 255) {
    throw option_error("blob", "must name 1 to 255 extensions");
  }
  const auto lower = [](std::string& text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  for (std::string& extension : wishes.blob) {
    if (extension.starts_with('.')) {
      throw option_error("blob", "'" + extension + "': extensions are named without their dot");
    }
    lower(extension);
  }
  if (wishes.label.starts_with('.')) {
    throw option_error("label", "the extension is named without its dot");
  }
  lower(wishes.label);
  return wishes;
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
