// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/files/support/descriptor.hpp>
#include <penstock_ext/files/support/whole_file.hpp>
#include <penstock_ext/report/report_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A file that is written piece by piece beside the one that it becomes, and removed unless it
/// does. One thread uses it; several, also of several processes, may make one file.
class part_file {
 public:
  /// Becomes `target`; `what` is "the shard" or the like, for messages. Throws `report_error`.
  part_file(std::string target, const char* what) : target_(std::move(target)), what_(what) {
    // Relaxed: it only counts, so that no two threads take one name.
    static std::atomic<unsigned> files{0};
    for (int tries = 0; tries < 1000;
         ++tries) {  // a dead process of this number may have left some
      part_ = target_ + ".part-" + std::to_string(::getpid()) + '-' +
              std::to_string(files.fetch_add(1, std::memory_order_relaxed));
      file_ = descriptor{::open(part_.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666)};
      if (file_.get() >= 0) return;
      if (errno != EEXIST) break;
    }
    fail(errno);
  }
  part_file(const part_file&) = delete;
  part_file& operator=(const part_file&) = delete;
  ~part_file() { ::unlink(part_.c_str()); }

  /// Appends `bytes`. Throws `report_error`, also where the disk is full.
  void add(std::span<const std::byte> bytes) {
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (const int problem = write_all(file_.get(), text); problem != 0) fail(problem);
    size_ += bytes.size();
  }

  /// Gives the file its name when the disk has its bytes. A file of that name and length that
  /// another process has made meanwhile stays: it may be open. Throws `report_error`.
  void finish() {
    if (const int problem = sync_descriptor(file_.get()); problem != 0) fail(problem);
    if (::link(part_.c_str(), target_.c_str()) == 0) return;
    struct ::stat status {};
    const bool is_there = errno == EEXIST && ::stat(target_.c_str(), &status) == 0;
    if (is_there && S_ISREG(status.st_mode) &&
        static_cast<std::uint64_t>(status.st_size) == size_) {
      return;
    }
    // A file of another length, or a file system without links.
    if (std::rename(part_.c_str(), target_.c_str()) != 0) fail(errno);
  }

 private:
  [[noreturn]] void fail(int problem) const { throw report_error(target_, what_, problem); }

  std::string target_;
  const char* what_;
  std::string part_;
  descriptor file_{-1};
  std::uint64_t size_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
