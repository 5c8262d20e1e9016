// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_error.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/detail/open_side_by_side.hpp>
#include <penstock_ext/blob/mds/detail/mds_index.hpp>
#include <penstock_ext/blob/mds/detail/mds_shard.hpp>
#include <penstock_ext/blob/mds/detail/mds_sum.hpp>
#include <penstock_ext/blob/mds/detail/part_file.hpp>
#include <penstock_ext/blob/mds/mds_shards_options.hpp>
#include <penstock_ext/blob/support/shard_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/checksum.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where the shards of an index are read: in its folder, or unpacked in that of the options.
///
/// An unpacked shard has a name with a sum of all that tells its compressed file from others: what
/// index.json says of it, and the time of its last change. So data sets may share a folder, and a
/// shard that was replaced is unpacked anew. Processes that unpack at one time begin at different
/// shards, and leave out those that are there when their turn comes.
class unpacked_shards {
 public:
  /// For the index in `folder`. All of them must outlive this.
  unpacked_shards(const std::string& folder, std::span<const mds_shard_entry> entries,
                  const mds_shards_options& options)
      : folder_(folder), entries_(entries), options_(options) {}

  /// Unpacks what is missing, and returns where each shard lies. Throws what `mds_shards` says.
  [[nodiscard]] std::vector<std::string> paths() const {
    std::vector<std::string> all;
    std::vector<std::size_t> zipped;
    std::uint64_t bytes = 0;
    for (const mds_shard_entry& entry : entries_) {
      all.push_back(joined_path(folder_, entry.name));
      if (entry.zipped.empty() || file_size(all.back()) != none) continue;
      require_codec(entry, all.back());
      zipped.push_back(all.size() - 1);
      if (entry.bytes > options_.most_unpacked - bytes) refuse_bytes();
      bytes += entry.bytes;
    }
    if (zipped.empty()) return all;
    make_folder();
    const auto first = static_cast<std::size_t>(::getpid()) * 7919 % zipped.size();
    const auto unpacked = open_side_by_side(zipped.size(), options_.threads, [&](std::size_t i) {
      const std::size_t which = zipped[(i + first) % zipped.size()];
      return std::pair{which, unpack(entries_[which])};
    });
    for (const auto& [which, path] : unpacked) all[which] = path;
    return all;
  }

 private:
  static constexpr std::uint64_t none = (std::numeric_limits<std::uint64_t>::max)();

  // Of a regular file; `none` where there is no file.
  [[nodiscard]] static std::uint64_t file_size(const std::string& path) noexcept {
    struct ::stat status {};
    return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : none;
  }

  // The command that unpacks `from` to `to`, for messages.
  [[nodiscard]] static std::string command(std::string_view family, const std::string& from,
                                           const std::string& to) {
    if (family == "zstd") return "zstd -d " + from + " -o " + to;
    if (family == "br") return "brotli -d " + from + " -o " + to;
    if (family == "gz") return "gzip -dc " + from + " > " + to;
    if (family == "bz2") return "bzip2 -dc " + from + " > " + to;
    if (family == "snappy") return "python3 -m snappy -d " + from + ' ' + to;
    return "by the tool that packed it";
  }

  void require_codec(const mds_shard_entry& entry, const std::string& path) const {
    const std::string family = entry.compression.substr(0, entry.compression.find(':'));
    if (options_.compression && options_.compression.family() == family) return;
    const std::string zipped = joined_path(folder_, entry.zipped);
    const std::string known =
        options_.compression ? options_.compression.family() : std::string{"no compression"};
    const std::string by_option =
        family == "zstd" ? "give compression = zstd{} (penstock_ext/files/zstd/zstd.hpp, target "
                           "penstock::zstd) and a folder unpacked, or "
                         : "";
    throw file_format_error(zipped, 0, "a shard by " + known + ", as the option compression says",
                            entry.compression + ": " + by_option + "unpack it to " + path + " (" +
                                command(family, zipped, path) + "), and leave index.json as it is");
  }

  [[noreturn]] void refuse_bytes() const {
    std::uint64_t bytes = 0;
    for (const mds_shard_entry& entry : entries_) bytes += entry.zipped.empty() ? 0 : entry.bytes;
    throw option_error("most_unpacked", "the compressed shards of " + folder_ + " have " +
                                            std::to_string(bytes) + " bytes unpacked, more than " +
                                            std::to_string(options_.most_unpacked));
  }

  void make_folder() const {
    if (options_.unpacked.empty()) {
      throw option_error("unpacked", "name a folder for the unpacked shards of " + folder_ +
                                         ": nothing is written unasked");
    }
    std::error_code problem;
    std::filesystem::create_directories(options_.unpacked, problem);
    if (problem) {
      throw folder_error(options_.unpacked, "a folder that can be made", problem.message());
    }
  }

  // Where the shard of `entry` lies unpacked, whose compressed file is `zipped`.
  [[nodiscard]] std::string target_of(const mds_shard_entry& entry,
                                      const shard_file& zipped) const {
    std::string all = entry.name + '\0' + entry.zipped + '\0' + entry.compression;
    for (const auto* sums : {&entry.sums, &entry.zipped_sums}) {
      for (const mds_sum& one : *sums) all += '\0' + one.name + '\0' + one.digits;
    }
    const auto add = [&](auto number) { all += '\0' + std::to_string(number); };
    add(entry.bytes);
    add(entry.zipped_bytes);
    add(entry.samples);
    add(zipped.stamp().seconds);
    add(zipped.stamp().nanoseconds);
    const std::uint64_t sum = checksum(std::as_bytes(std::span{all}));
    std::string digits;
    for (unsigned shift = 64; shift > 0; shift -= 4) {
      digits += "0123456789abcdef"[sum >> (shift - 4) & 15U];
    }
    const std::string name = entry.name.substr(entry.name.rfind('/') + 1);
    return joined_path(options_.unpacked, name + '.' + digits);
  }

  [[nodiscard]] std::string unpack(const mds_shard_entry& entry) const {
    const shard_file zipped{joined_path(folder_, entry.zipped)};
    if (zipped.size() != entry.zipped_bytes) {
      throw length_mismatch(zipped.path(), (std::min)(zipped.size(), entry.zipped_bytes),
                            std::to_string(entry.zipped_bytes) + " bytes, as in index.json",
                            std::to_string(zipped.size()));
    }
    std::string target = target_of(entry, zipped);
    if (file_size(target) == entry.bytes) return target;
    if (options_.verify) require_sum(zipped, entry.zipped_sums, ": copy it anew");
    const mds_compression::reader content = options_.compression.open(zipped.path());
    part_file out{target, "the unpacked shard"};
    constexpr std::size_t most = std::size_t{1} << 20U;
    const std::unique_ptr<std::byte[]> memory{new std::byte[most]};
    std::uint64_t done = 0;
    while (true) {
      const std::size_t count = content({memory.get(), most});
      done += count;
      if (done > entry.bytes || (count < most && done != entry.bytes)) {
        throw length_mismatch(zipped.path(), zipped.size(),
                              std::to_string(entry.bytes) + " bytes unpacked, as in index.json",
                              done > entry.bytes ? "more" : std::to_string(done));
      }
      out.add({memory.get(), count});
      if (count < most) break;
    }
    zipped.require_unchanged();
    out.finish();
    return target;
  }

  const std::string& folder_;
  std::span<const mds_shard_entry> entries_;
  const mds_shards_options& options_;
};

/// Opens the shards of the index in `folder`. Throws what `mds_shards` says.
[[nodiscard]] inline std::vector<mds_shard> open_mds_shards(
    const std::string& folder, std::span<const mds_shard_entry> entries,
    const mds_shards_options& options) {
  const std::vector<std::string> paths = unpacked_shards{folder, entries, options}.paths();
  return open_side_by_side(entries.size(), options.threads, [&](std::size_t number) {
    mds_shard shard = open_mds_shard(folder, entries[number], paths[number], options.verify);
    if (number >= options.most_open) shard.file.close();
    return shard;
  });
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
