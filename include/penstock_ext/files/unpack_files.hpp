// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/index_file.hpp>
#include <penstock_ext/files/mapped_file.hpp>
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
  /// Number of threads, including the calling thread. At least 1. Each file takes a single thread.
  std::size_t workers = 8;
  /// Called once for each MiB of a file and at its end, by one thread at a time. An exception ends
  /// the call of `unpack_files`.
  std::function<void(const unpack_progress&)> progress = {};
};

namespace detail {

/// Unpacks files with several threads. After an error in a thread, the others stop at their next progress.
template <class Codec>
class file_unpacker {
 public:
  file_unpacker(const Codec& codec, const unpack_options& options)
      : codec_(codec), options_(options) {}

  /// Returns the path of the unpacked file of `path`, or "" if another thread has thrown.
  /// Thread-safe.
  [[nodiscard]] std::string unpack(const std::string& path) {
    try {
      return unpack_one(path);
    } catch (const stopped&) {
      return {};
    } catch (...) {
      has_problem_.store(true, std::memory_order_relaxed);
      throw;
    }
  }

 private:
  struct stopped {};  // ends a thread after another thread has thrown

  [[nodiscard]] std::string unpack_one(const std::string& path) {
    const file_stamp stamp = stamp_of_file(path);
    const std::string version = str_cat({stamp.size, " ", stamp.seconds, " ", stamp.nanoseconds,
                                         " ", sampled_checksum(mapped_file{path}.bytes())});
    const std::string extension = std::filesystem::path{path}.extension().string();
    const std::string target = options_.folder + '/' + derived_name(path, extension, version);
    // Some file systems store times with a resolution of two seconds.
    const std::int64_t time = stamp.seconds - stamp.seconds % 2;
    struct ::stat status {};
    const auto is_complete = [&] {
      return ::stat(target.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
             status.st_mtim.tv_sec == time && status.st_mtim.tv_nsec == 0;
    };
    if (is_complete()) {
      count(path, static_cast<std::uint64_t>(status.st_size));
      return target;
    }
    auto source = codec_(path);
    part_file out{target, "an unpacked file"};
    out.set_modified(time);  // reports an error before the file is unpacked
    std::uint64_t before = 0;
    out.add_all([&](std::span<std::byte> to) { return source.read(to); },
                [&](std::uint64_t done) {
                  if (has_problem_.load(std::memory_order_relaxed)) throw stopped{};
                  count(path, done - std::exchange(before, done));
                  if (!options_.progress) return;
                  const std::lock_guard lock{progress_guard_};
                  options_.progress({path, done});
                });
    if (stamp_of_file(path) != stamp) {
      throw file_changed(path, 0, "the same file until it is unpacked",
                         "another size or modification time");
    }
    out.set_modified(time);
    // If another process has unpacked the file in the meantime, keeps that file, because it may be
    // open, and two files would take twice the memory.
    if (!is_complete()) out.replace();
    return target;
  }

  void count(const std::string& path, std::uint64_t bytes) {
    if (bytes <= options_.max_bytes &&
        sum_.fetch_add(bytes, std::memory_order_relaxed) <= options_.max_bytes - bytes) {
      return;
    }
    throw_option_error("max_bytes", {"is ", options_.max_bytes, ", which is exceeded at ", path});
  }

  const Codec& codec_;
  const unpack_options& options_;
  std::mutex progress_guard_;  // held while the progress function is called
  // Relaxed ordering suffices, because these values order no other data.
  std::atomic<bool> has_problem_{false};
  std::atomic<std::uint64_t> sum_{0};  // number of unpacked bytes
};

}  // namespace detail

/// Unpacks the compressed files at `paths` into a folder, and returns the paths of the unpacked
/// files, in the same order. Later calls find the unpacked files and return at once.
///
///     const auto paths = ps::unpack_files(ps::glob("train-*.jsonl.zst"), ps::zstd{},
///                                         {.folder = "/scratch/train"});
///     const ps::json_lines<document> documents{paths};
///
/// `codec(path)` opens a file as a `byte_source`, as `gzip` and `zstd{}` do. Several threads call
/// it concurrently. A thread takes 1 MiB of memory in addition to that of the codec.
///
/// The name of an unpacked file contains a checksum of the path, size, modification time and some
/// bytes of the compressed file, so a replaced file is unpacked again. The unpacked file of the old
/// version stays in the folder. The name does not depend on the codec, so use another folder for
/// another codec.
///
/// An unpacked file is written under another name and then renamed, so it is complete or absent.
/// The function sets its modification time to that of the compressed file, in whole seconds. If the
/// times differ, for example because the unpacked file was written to, it is unpacked again. On a
/// file system that cannot store the time, each call unpacks the file again.
///
/// Concurrent calls in several threads or processes may have the same folder. Processes begin with
/// different files, but two processes may unpack the same file. To avoid that, let one process call
/// the function before the others.
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
  detail::file_unpacker unpacker{codec, options};
  std::vector<std::string> unpacked(paths.size());
  const auto first = static_cast<std::size_t>(::getpid()) * 7919;
  detail::parallel_for(paths.size(), options.workers, [&](std::size_t i) {
    const std::size_t which = (first + i) % paths.size();
    unpacked[which] = unpacker.unpack(paths[which]);
  });
  return unpacked;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
