// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/index_file.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>
#include <penstock_ext/files/support/part_file.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Progress of unpacking a file.
struct unpack_progress {
  std::string_view path;         ///< compressed file
  std::uint64_t done_bytes = 0;  ///< bytes unpacked so far
};

/// Options of `unpack_files`.
struct unpack_options {
  /// Folder of the unpacked files, created if it is missing.
  std::string folder = {};
  /// Maximum total size of the files at the returned paths in bytes.
  std::uint64_t max_bytes = std::uint64_t{1} << 40;
  /// Number of threads, including the calling thread. At least 1. One thread unpacks a file.
  std::size_t workers = 8;
  /// Called after each MiB, by one thread at a time. An exception ends the call of `unpack_files`.
  std::function<void(const unpack_progress&)> progress = {};
};

/// Unpacks the compressed files at `paths` into a folder, and returns the paths of the unpacked
/// files, in the same order. Later calls find the unpacked files and return at once.
///
///     const auto paths = ps::unpack_files(ps::glob("train-*.jsonl.zst"), ps::zstd{},
///                                         {.folder = "/scratch/train"});
///     const ps::json_lines<document> documents{paths};
///
/// `codec(path)` opens a file as a `byte_source`, as `gzip` and `zstd{}` do. A thread takes 1 MiB
/// of memory in addition to that of the codec.
///
/// The name of an unpacked file contains a checksum of the path, size and modification time of the
/// compressed file, so a replaced file is unpacked again. The unpacked file of the old version
/// stays in the folder. An unpacked file is written under another name and then renamed, so it is
/// complete or absent. The function sets its modification time to that of the compressed file, in
/// whole seconds. If the time differs, the file was written to, and is unpacked again. Concurrent
/// calls in several threads or processes may have the same folder.
///
/// Throws
/// - `file_unreadable` for a missing file, and the errors of the codec for a damaged file
/// - `file_changed` if a file changes while it is unpacked
/// - `folder_error` and `file_unwritable`, for example if the disk is full
/// - `option_error` if `max_bytes` is exceeded, if `folder` is empty, or if `workers` is 0
template <class Codec>
  requires requires(const Codec& codec, const std::string& path) {
    { codec(path) } -> byte_source;
  }
[[nodiscard]] std::vector<std::string> unpack_files(const std::vector<std::string>& paths,
                                                    const Codec& codec,
                                                    const unpack_options& options) {
  if (options.folder.empty()) {
    throw option_error("folder", "must name a folder for the unpacked files, but is empty");
  }
  if (options.workers == 0) detail::throw_option_error("workers", {"must be at least 1, but is 0"});
  detail::create_folder(options.folder);
  std::mutex guard;
  // The number of unpacked bytes. Relaxed ordering suffices, because it orders no other data.
  std::atomic<std::uint64_t> sum{0};
  const auto count = [&](const std::string& path, std::uint64_t bytes) {
    if (bytes <= options.max_bytes &&
        sum.fetch_add(bytes, std::memory_order_relaxed) <= options.max_bytes - bytes) {
      return;
    }
    detail::throw_option_error(
        "max_bytes", {"is ", options.max_bytes, ", but the unpacked files are larger, at ", path});
  };
  return detail::open_in_parallel(paths.size(), options.workers, [&](std::size_t i) {
    const std::string& path = paths[i];
    const detail::file_stamp stamp = detail::stamp_of_file(path);
    const std::size_t dot = path.find_last_of("./");
    const bool has_suffix = dot != std::string::npos && path[dot] == '.';
    std::string target =
        options.folder + '/' +
        detail::derived_name(
            path, has_suffix ? path.substr(dot) : std::string{},
            detail::str_cat({stamp.size, " ", stamp.seconds, " ", stamp.nanoseconds}));
    struct ::stat status {};
    const auto is_complete = [&] {
      return ::stat(target.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
             status.st_mtim.tv_sec == stamp.seconds && status.st_mtim.tv_nsec == 0;
    };
    if (is_complete()) {
      count(path, static_cast<std::uint64_t>(status.st_size));
      return target;
    }
    auto source = codec(path);
    detail::part_file out{target, "an unpacked file"};
    std::uint64_t before = 0;
    out.add_all([&](std::span<std::byte> to) { return source.read(to); },
                [&](std::uint64_t done) {
                  count(path, done - before);
                  before = done;
                  if (!options.progress) return;
                  const std::lock_guard lock{guard};
                  options.progress({path, done});
                });
    if (detail::stamp_of_file(path) != stamp) {
      throw file_changed(path, 0, "the same file until it is unpacked",
                         "another size or modification time");
    }
    out.set_modified(stamp.seconds);  // some file systems store no fractions
    // Another process may have opened its file in the meantime.
    if (!is_complete()) out.replace();
    return target;
  });
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
