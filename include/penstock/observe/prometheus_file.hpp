// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/observe/loader_stats.hpp>
#include <penstock/observe/stats_prometheus.hpp>
#include <penstock/observe/transfer_stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Statistics could not be written to a file. What was there before is there still.
class [[gnu::visibility("default")]] stats_not_written : public error {
 public:
  stats_not_written(const std::string& path, std::string_view step, int error_number)
      : error(path + ": the statistics can't be written: " + std::string{step} + ": " +
              std::strerror(error_number)),
        path_(path),
        error_number_(error_number) {}
  /// The file that was to be written.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What errno said.
  [[nodiscard]] int error_number() const noexcept { return error_number_; }

 private:
  std::string path_;
  int error_number_;
};

namespace detail {

/// A new file beside `path` that is to take its place, whole; gone again if it does not.
class replacement_file {
 public:
  explicit replacement_file(const std::string& path) : path_(path) {
    constexpr int most_tries = 1000;  // of this process's threads, and of one that died
    for (int number = 0; number < most_tries; ++number) {
      // No ".prom" at its end: what collects such files does not take it for one.
      name_ = path + '.' + std::to_string(::getpid()) + '-' + std::to_string(number) + ".tmp";
      // Not mkstemp, whose file is for this user alone.
      file_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (file_ >= 0) return;
      if (errno != EEXIST) break;
    }
    throw stats_not_written(path_, "open", errno);
  }
  replacement_file(replacement_file&&) = delete;
  ~replacement_file() {
    if (file_ >= 0) ::close(file_);
    if (!is_in_place_) ::unlink(name_.c_str());
  }

  void write(std::string_view text) {
    while (!text.empty()) {
      const ::ssize_t written = ::write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw stats_not_written(path_, "write", errno);
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  /// Takes the place of the file at the path, in one step.
  void put_in_place() {
    // Some file systems say only here that there was no room. EINTR: it is closed all the same.
    const int closed = ::close(std::exchange(file_, -1));
    if (closed != 0 && errno != EINTR) throw stats_not_written(path_, "close", errno);
    if (std::rename(name_.c_str(), path_.c_str()) != 0)
      throw stats_not_written(path_, "rename", errno);
    is_in_place_ = true;
  }

 private:
  std::string path_;
  std::string name_;
  int file_ = -1;
  bool is_in_place_ = false;
};

inline void write_whole(const std::string& path, const std::string& text) {
  replacement_file file{path};
  file.write(text);
  file.put_in_place();
}

}  // namespace detail

/// Writes `to_prometheus(stats)` to a file, for a collector that reads files such as that of
/// node_exporter, whose files end in ".prom":
///
///     ps::write_prometheus(feed.stats(), "/var/lib/node_exporter/train.prom");
///
/// One file for each loader or transfer. A reader sees the file of before or the new one, never a
/// part: it is written beside `path`, and renamed. It is not on the disk yet when this returns.
/// Costs some system calls: for now and then, not for each batch. From any thread, also for one
/// path; throws `stats_not_written`.
inline void write_prometheus(const loader_stats& stats, const std::string& path) {
  detail::write_whole(path, to_prometheus(stats));
}
/// Of a transfer, and of its loader if it has one.
inline void write_prometheus(const transfer_stats& stats, const std::string& path) {
  detail::write_whole(path, to_prometheus(stats));
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
