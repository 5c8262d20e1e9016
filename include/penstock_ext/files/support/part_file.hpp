// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Creates the folder `path` and its parents if they are missing. Throws `folder_error`.
inline void create_folder(const std::string& path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  if (problem) throw folder_error(path, "a folder that can be created", problem.message());
}

/// A temporary file next to its target. After the last write, the file is renamed to the target or
/// removed. The file of a killed process is removed when the same target is written again. Not
/// thread-safe, but several threads or processes may create the same target with separate objects.
/// Throws `file_unwritable` with the target's path, for example if the disk is full.
class part_file {
 public:
  /// Creates the temporary file for `target`. `what` names the content in messages, for example
  /// "a shard".
  part_file(std::string target, const char* what) : target_(std::move(target)), what_(what) {
    remove_dead_parts(target_);
    file_ = open_part(target_, part_);
    if (file_.get() < 0) fail(errno);
  }
  part_file(const part_file&) = delete;
  part_file& operator=(const part_file&) = delete;
  ~part_file() {
    if (!part_.empty()) ::unlink(part_.c_str());
  }

  /// Appends all content that `read(out)` returns. The function fills `out`, and returns the number
  /// of bytes, which is smaller only at the end. Calls `check(total)` with the number of bytes so
  /// far before it writes them. Returns the number of bytes in the file.
  template <class Read, class Check>
  std::uint64_t add_all(const Read& read, const Check& check) {
    constexpr std::size_t max = std::size_t{1} << 20U;
    const std::unique_ptr<std::byte[]> memory{new std::byte[max]};
    while (true) {
      const std::size_t count = read(std::span{memory.get(), max});
      check(size_ + count);
      const std::string_view text{reinterpret_cast<const char*>(memory.get()), count};
      if (const int problem = write_all(file_.get(), text); problem != 0) fail(problem);
      size_ += count;
      if (count < max) return size_;
    }
  }

  /// Sets the modification time of the file to `seconds` after 1970.
  void set_modified(std::int64_t seconds) {
    const std::array<struct ::timespec, 2> times{{{0, UTIME_OMIT}, {seconds, 0}}};
    if (::futimens(file_.get(), times.data()) != 0) fail(errno);
  }

  /// Flushes the file to disk and renames it to its target. If another process has already created
  /// a target of the same length, that file stays, because it may be open.
  void finish() {
    flush();
    if (::link(part_.c_str(), target_.c_str()) == 0) return;
    struct ::stat status {};
    const bool is_there = errno == EEXIST && ::stat(target_.c_str(), &status) == 0;
    if (is_there && S_ISREG(status.st_mode) &&
        static_cast<std::uint64_t>(status.st_size) == size_) {
      return;
    }
    // The target exists with a different length, or the file system does not support hard links.
    rename();
  }

  /// Flushes the file to disk and replaces the target.
  void replace() {
    flush();
    rename();
  }

 private:
  void flush() {
    if (const int problem = sync_descriptor(file_.get()); problem != 0) fail(problem);
  }
  void rename() {
    if (std::rename(part_.c_str(), target_.c_str()) != 0) fail(errno);
    part_.clear();  // another process may have a file of that name now
  }
  [[noreturn]] void fail(int problem) const {
    throw file_unwritable(target_, size_, std::string{what_} + " that can be written",
                          std::system_category().message(problem));
  }

  std::string target_;
  const char* what_;
  std::string part_;
  descriptor file_{-1};
  std::uint64_t size_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
