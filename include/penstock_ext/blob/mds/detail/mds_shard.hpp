// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock_ext/blob/detail/archive_bytes.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/mds/detail/mds_index.hpp>
#include <penstock_ext/blob/mds/detail/mds_sample.hpp>
#include <penstock_ext/blob/mds/detail/mds_sum.hpp>
#include <penstock_ext/blob/support/shard_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/little_endian.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The offsets of a shard's samples, out of its start:
///
///     u32 n; u32 offsets[n + 1]; then a text that says the columns; the samples
///
/// Little-endian. Offsets count from the file's start, and the last one is its end. Throws
/// `file_truncated`, `length_mismatch` where the shard has another number of samples than
/// `samples`, and `file_corrupt` for offsets that can't be.
template <archive_bytes Source>
[[nodiscard]] std::vector<std::uint32_t> mds_offsets(const Source& file, std::uint64_t samples) {
  const auto truncated = [&](const std::string& what) {
    throw file_truncated(file.path(), file.size(), what, "the end of the file");
  };
  std::array<std::byte, 4> start{};
  if (file.read_at(0, start) < start.size()) truncated("the number of samples, 4 bytes");
  if (const std::uint64_t found = little_endian<4>(start.data()); found != samples) {
    throw length_mismatch(file.path(), 0, std::to_string(samples) + " samples, as in index.json",
                          std::to_string(found));
  }
  // Before memory is taken: a file may announce anything.
  const std::uint64_t table = 4 * (samples + 2);
  if (file.size() < table) truncated("a table of " + std::to_string(samples + 1) + " offsets");
  std::vector<std::uint32_t> offsets(static_cast<std::size_t>(samples) + 1);
  std::vector<std::byte> bytes(4 * offsets.size());
  if (file.read_at(4, bytes) < bytes.size()) truncated("a table of offsets");
  std::uint64_t before = table;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::uint64_t offset = little_endian<4>(bytes.data() + 4 * i);
    const std::uint64_t most = file.size();
    if (offset < before || offset > most) {
      throw file_corrupt(file.path(), 4 + 4 * std::uint64_t{i},
                         "an offset from " + std::to_string(before) + " to " + std::to_string(most),
                         std::to_string(offset));
    }
    before = offset;
    offsets[i] = static_cast<std::uint32_t>(offset);
  }
  if (before != file.size()) {
    throw file_corrupt(file.path(), table - 4,
                       "the end of the file, " + std::to_string(file.size()),
                       std::to_string(before));
  }
  return offsets;
}

/// A shard that is open.
struct mds_shard {
  std::string path;  ///< in the folder of its index, wherever it is read
  shard_file file;
  std::vector<std::uint32_t> offsets;  ///< of the samples, and of the end

  /// Where sample `index` lies.
  [[nodiscard]] mds_place sample(std::size_t index) const noexcept {
    return {offsets[index], offsets[index + 1] - std::uint64_t{offsets[index]}};
  }
};

/// Opens the shard that `entry` of the index in `folder` says, which lies at `path`; `verify`
/// compares its sum. Throws `file_unreadable`, `length_mismatch` for one of another length, what
/// `mds_offsets` throws and what `require_sum` throws.
[[nodiscard]] inline mds_shard open_mds_shard(const std::string& folder,
                                              const mds_shard_entry& entry, const std::string& path,
                                              bool verify) {
  shard_file file{path};
  if (file.size() != entry.bytes) {
    throw length_mismatch(path, (std::min)(file.size(), entry.bytes),
                          std::to_string(entry.bytes) + " bytes, as in index.json",
                          std::to_string(file.size()));
  }
  if (verify) require_sum(file, entry.sums, ": remove it, and copy or unpack it anew");
  std::vector<std::uint32_t> offsets = mds_offsets(file, entry.samples);
  return {joined_path(folder, entry.name), std::move(file), std::move(offsets)};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
