// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A `bulk_sink` that writes a part of an open file, such as one tensor in a custom checkpoint
/// format:
///
///     ps::open_file_sink part{file, offset, weights.size_bytes()};
///     auto saving = copier.download(stream, std::move(part), weights);
///
/// The program owns the file, and must create it, sync it after the last part, and rename it. A
/// failed download leaves some of its bytes in the file. Error messages contain the descriptor and
/// the offset in the file. Movable.
class open_file_sink {
 public:
  /// Writes the `bytes` bytes starting at `offset` of the open regular file `file`. Duplicates the
  /// descriptor, so the program may close its own. Does not change the file position. Throws
  /// `file_unwritable` if `file` is not open for writing, is open for appending, or is not a
  /// regular file, or if the end of the part is not a valid file offset.
  open_file_sink(int file, std::uint64_t offset, std::uint64_t bytes)
      : name_(detail::name_of_descriptor(file)),
        offset_(offset),
        size_(bytes),
        file_(detail::duplicate_of(file)) {
    constexpr auto max = static_cast<std::uint64_t>((std::numeric_limits<::off_t>::max)());
    if (offset > max || bytes > max - offset) {
      throw file_unwritable(name_, offset, "a part that ends below byte 2^63",
                            std::to_string(bytes) + " bytes");
    }
    struct ::stat status {};
    const int flags = ::fcntl(file_.get(), F_GETFL);
    if (flags < 0 || ::fstat(file_.get(), &status) != 0) fail(offset, "an open file");
    const auto reject_if = [&](bool is_so, const char* expected, const char* found) {
      if (is_so) throw file_unwritable(name_, offset_, expected, found);
    };
    reject_if(!S_ISREG(status.st_mode), "a regular file", "a folder, pipe, socket or device");
    reject_if((flags & O_ACCMODE) == O_RDONLY, "a file that is open for writing", "O_RDONLY");
    // With O_APPEND, Linux ignores the offset of a write.
    reject_if((flags & O_APPEND) != 0, "a file that is not open for appending", "O_APPEND");
  }

  /// Returns the number of bytes in the part.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Writes `bytes` at `offset` of the part. Thread-safe. Throws `file_unwritable` if writing
  /// fails.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) const {
    detail::write_at(file_.get(), offset_ + offset, bytes, [&](std::uint64_t at, std::size_t left) {
      fail(at, "room for " + std::to_string(left) + " bytes");
    });
  }
  /// Does nothing, because the program syncs the file.
  void finish() const noexcept {}

 private:
  [[noreturn]] void fail(std::uint64_t at, std::string expected) const {
    const std::string reason = detail::system_reason();
    throw file_unwritable(name_, at, std::move(expected), reason);
  }

  std::string name_;
  std::uint64_t offset_;
  std::uint64_t size_;
  detail::descriptor file_;
};

static_assert(bulk_sink<open_file_sink>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
