// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/support/fork_guard.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The CRC-64/NVME of data that is added in pieces, in any order. Thread-safe.
class pieces_checksum {
 public:
  /// Adds `bytes` at `offset` in the data.
  void add(std::uint64_t offset, std::span<const std::byte> bytes) {
    crc64nvme_checksum one;
    one.add(bytes);
    const piece added{offset, bytes.size(), one.value()};
    const std::lock_guard lock{mutex_};
    pieces_.push_back(added);
  }
  /// Returns the checksum of all pieces, which must be contiguous.
  [[nodiscard]] std::uint64_t value() {
    const std::lock_guard lock{mutex_};
    std::ranges::sort(pieces_, {}, &piece::offset);
    std::uint64_t all = crc64nvme_checksum{}.value();
    for (const piece& one : pieces_) all = product(power_of_x(8 * one.bytes), all) ^ one.checksum;
    return all;
  }

 private:
  struct piece {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint64_t checksum;
  };

  // Polynomials over GF(2), modulo the CRC polynomial. The highest bit is the coefficient of the
  // lowest power.
  static constexpr std::uint64_t one_ = std::uint64_t{1} << 63U;
  static std::uint64_t product(std::uint64_t a, std::uint64_t b) noexcept {
    constexpr std::uint64_t polynomial = 0x9a6c9329ac4bc9b5U;
    std::uint64_t result = 0;
    for (std::uint64_t bit = one_; bit != 0; bit >>= 1U) {
      if ((a & bit) != 0) result ^= b;
      b = b >> 1U ^ ((b & 1U) != 0 ? polynomial : 0);
    }
    return result;
  }
  static std::uint64_t power_of_x(std::uint64_t exponent) noexcept {
    std::uint64_t result = one_;
    for (std::uint64_t square = one_ >> 1U; exponent != 0; exponent >>= 1U) {
      if ((exponent & 1U) != 0) result = product(square, result);
      square = product(square, square);
    }
    return result;
  }

  std::mutex mutex_;
  std::vector<piece> pieces_;  // guarded by mutex_
};

/// A temporary file that can be written at any offset. `finish` renames it to its final name.
/// Otherwise the destructor removes it, except in a child created by fork(). If the path is a link
/// to a file, the linked file is replaced. `write` is thread-safe.
class new_file {
 public:
  /// Creates the temporary file. `path` is the final name, relative to the current folder. If
  /// `has_checksum` is true, computes the CRC of the written bytes. Throws `file_unwritable` if the
  /// file cannot be created, or if `path` exists and is not a regular file.
  new_file(std::string path, bool has_checksum)
      : path_(std::move(path)), target_(linked_file(path_)), has_checksum_(has_checksum) {
    // A missing folder or an empty path is reported when the file is opened.
    std::error_code problem;
    const auto whole = std::filesystem::absolute(target_, problem);
    if (!problem) target_ = whole.string();
    struct ::stat before {};
    if (::stat(target_.c_str(), &before) == 0) {
      if (!S_ISREG(before.st_mode)) {
        throw file_unwritable(path_, 0, "a regular file", "a file of another type");
      }
      mode_ = before.st_mode & 07777U;
    }
    // The new file must not be readable by more users than the file that it replaces.
    const ::mode_t mode = mode_ ? (*mode_ & 0666U) | 0200U : 0666U;
    remove_dead_parts(target_);
    file_ = open_part(target_, part_, mode);
    if (file_.get() >= 0) return;
    part_.clear();
    fail(0, "a folder in which a file can be created");
  }
  new_file(new_file&&) = delete;
  ~new_file() {
    if (!part_.empty() && !process_.is_in_child()) ::unlink(part_.c_str());
  }

  /// Writes `bytes` at `offset`. Throws `file_unwritable`, for example if the disk is full.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (has_checksum_) checksum_.add(offset, bytes);
    overwrite(offset, bytes);
  }
  /// Writes like `write`, but does not update the checksum, which still covers the earlier bytes.
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes) const {
    write_at(file_.get(), offset, bytes, [&](std::uint64_t at, std::size_t left) {
      fail(at, "room for " + std::to_string(left) + " bytes");
    });
  }

  /// Returns the checksum of all bytes written so far, which must be contiguous.
  [[nodiscard]] std::uint64_t checksum() { return checksum_.value(); }

  /// Waits until the whole file is on the disk, and then renames the file and sets the mode of the
  /// file that it replaces. Throws `file_unwritable`, in which case the old file is unchanged.
  void finish() {
    if (mode_) static_cast<void>(::fchmod(file_.get(), *mode_));
    if (const int problem = sync_descriptor(file_.get()); problem != 0) {
      errno = problem;
      fail(0, "a disk that accepts the written data");
    }
    if (std::rename(part_.c_str(), target_.c_str()) != 0)
      fail(0, "a file that can be renamed to its final name");
    part_.clear();
    sync_name(target_);
  }

 private:
  [[noreturn]] void fail(std::uint64_t offset, std::string expected) const {
    const std::string reason = system_reason();
    throw file_unwritable(path_, offset, std::move(expected), reason);
  }

  std::string path_;
  std::string target_;
  std::string part_;  // "" after the renaming
  bool has_checksum_;
  pieces_checksum checksum_;
  std::optional<::mode_t> mode_;
  fork_guard process_{true};
  descriptor file_{-1};
};

}  // namespace detail

/// The options of a `bulk_file_source`, which specify a part of the file and its checksum.
struct bulk_file_options {
  /// The offset of the first byte in the file.
  std::uint64_t offset = 0;
  /// The number of bytes. If empty, the part extends to the end of the file.
  std::optional<std::uint64_t> size = {};
  /// The expected CRC-64/NVME, which is verified at the end of an upload. The computation takes
  /// about as long as reading the same bytes from memory.
  std::optional<std::uint64_t> checksum = {};
};

/// A `bulk_source` that reads a file with `pread`. Movable.
class bulk_file_source {
 public:
  /// Opens the regular file `path`. Throws `file_unreadable`, and `file_truncated` if the file is
  /// shorter than the options specify.
  explicit bulk_file_source(std::string path, const bulk_file_options& options = {})
      // Uses O_NONBLOCK, so that opening a pipe without a writer does not block.
      : bulk_file_source(std::string{path},
                         detail::open_at(AT_FDCWD, path.c_str(), O_NONBLOCK | O_NOCTTY), options) {}
  /// Reads the `bytes` bytes starting at `offset` of the open regular file `file`. Duplicates the
  /// descriptor, so the program may close its own. Does not change the file position. Error
  /// messages contain the descriptor. Throws `file_unreadable`, and `file_truncated` if the file is
  /// shorter.
  bulk_file_source(int file, std::uint64_t offset, std::uint64_t bytes)
      : bulk_file_source(detail::name_of_descriptor(file), detail::duplicate_of(file),
                         {.offset = offset, .size = bytes}) {}
  /// Reads another part of the file opened by `open`, even if that file has since been renamed or
  /// removed. `before` contains the checksum of the bytes before `offset`. Throws `file_truncated`
  /// if the file is shorter than the options specify.
  bulk_file_source(const bulk_file_source& open, const bulk_file_options& options,
                   std::unique_ptr<detail::pieces_checksum> before = nullptr)
      : path_(open.path_), checksum_(std::move(before)), file_(open.file_), stamp_(open.stamp_) {
    take(options);
  }

  /// Returns the number of bytes in the part.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Fills `out` with the bytes starting at `offset` of the part. Thread-safe. Throws
  /// `file_truncated` and `file_unreadable`.
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    offset += offset_;
    const std::size_t filled =
        detail::read_from(file_->get(), offset, out, [this](std::uint64_t at) { fail(at); });
    if (filled < out.size()) {
      throw file_truncated(path_, offset + filled,
                           std::to_string(out.size() - filled) + " bytes more",
                           "the end of the file");
    }
    if (checksum_ != nullptr) checksum_->add(offset, out);
  }
  /// Throws `file_changed` if the file was written to since it was opened, and `file_corrupt` if
  /// the checksum is not the expected checksum.
  void finish() {
    struct ::stat status {};
    if (::fstat(file_->get(), &status) != 0) fail(0);
    if (detail::file_stamp_of(status) != stamp_) {
      throw file_changed(path_, offset_, "a file that does not change while it is read",
                         "a different size or modification time");
    }
    if (!expected_) return;
    const std::uint64_t found = checksum_->value();
    if (found == *expected_) return;
    throw file_corrupt(path_, offset_, "the CRC-64/NVME " + text_of(*expected_), text_of(found));
  }

  /// Formats a checksum as 16 hexadecimal digits.
  [[nodiscard]] static std::string text_of(std::uint64_t checksum) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
    return text;
  }

 private:
  bulk_file_source(std::string path, detail::descriptor file, const bulk_file_options& options)
      : path_(std::move(path)), file_(std::make_shared<const detail::descriptor>(std::move(file))) {
    struct ::stat status {};
    if (file_->get() < 0 || ::fstat(file_->get(), &status) != 0) fail(0);
    if (!S_ISREG(status.st_mode)) {
      throw file_unreadable(path_, 0, "a readable file", "a file that is not a regular file");
    }
    stamp_ = detail::file_stamp_of(status);
    take(options);
  }

  void take(const bulk_file_options& options) {
    offset_ = options.offset;
    expected_ = options.checksum;
    const std::uint64_t rest = stamp_.size - (std::min)(offset_, stamp_.size);
    size_ = options.size.value_or(rest);
    if (offset_ > stamp_.size || size_ > rest) {
      throw file_truncated(
          path_, stamp_.size,
          std::to_string(size_) + " bytes starting at byte " + std::to_string(offset_),
          "the end of the file");
    }
    if (expected_ && checksum_ == nullptr) checksum_ = std::make_unique<detail::pieces_checksum>();
  }
  [[noreturn]] void fail(std::uint64_t offset) const {
    const std::string reason = detail::system_reason();
    throw file_unreadable(path_, offset, "a readable file", reason);
  }

  std::string path_;
  std::uint64_t offset_ = 0;
  std::uint64_t size_ = 0;
  std::optional<std::uint64_t> expected_;
  std::unique_ptr<detail::pieces_checksum> checksum_;  // null if no checksum is needed
  std::shared_ptr<const detail::descriptor> file_;
  detail::file_stamp stamp_;
};

/// A `bulk_sink` that writes the bytes unchanged to a file. The file appears either complete or not
/// at all. A temporary file in the same folder, named NAME.part-PROCESS-NUMBER, is renamed when it
/// is completely on the disk. A failed download leaves the old file unchanged and removes the
/// temporary file. If the process is killed, the temporary file remains until the next sink for the
/// same path removes it.
class bulk_file_sink {
 public:
  /// A function that a download thread calls after the file was renamed. The argument is the
  /// CRC-64/NVME of the file.
  using finished_function = std::function<void(std::uint64_t)>;

  /// Creates the file `path`. Computes no checksum if `finished` is empty. Throws `file_unwritable`
  /// if the file cannot be created.
  explicit bulk_file_sink(std::string path, finished_function finished = {})
      : file_(std::make_unique<detail::new_file>(std::move(path), finished != nullptr)),
        finished_(std::move(finished)) {}

  /// Writes `bytes` at `offset`. Thread-safe. Throws `file_unwritable` if writing fails.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) {
    file_->write(offset, bytes);
  }
  /// Renames the file to its final name. Throws `file_unwritable` if the file cannot be flushed or
  /// renamed. Also throws errors from `finished`, after the file has its final name.
  void finish() {
    file_->finish();
    if (finished_) finished_(file_->checksum());
  }

 private:
  std::unique_ptr<detail::new_file> file_;
  finished_function finished_;
};

static_assert(bulk_source<bulk_file_source> && bulk_sink<bulk_file_sink>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
