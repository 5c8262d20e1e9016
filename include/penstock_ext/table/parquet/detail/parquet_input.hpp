// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/blob/support/shard_file.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A `file_error`, on its way through Arrow's functions.
class parquet_failure final : public ::arrow::StatusDetail {
 public:
  /// Keeps the exception that is handled now.
  parquet_failure() : problem_(std::current_exception()) {}

  /// A name of this type.
  const char* type_id() const override { return name; }
  /// Some words.
  std::string ToString() const override { return name; }

  /// Throws what `status` carries, if it does.
  static void rethrow(const ::arrow::Status& status) {
    const auto& detail = status.detail();
    if (detail == nullptr || detail->type_id() != std::string_view{name}) return;
    std::rethrow_exception(static_cast<const parquet_failure&>(*detail).problem_);
  }

 private:
  static constexpr const char* name = "penstock::parquet_failure";

  std::exception_ptr problem_;
};

/// A file as Arrow reads it: one that can't be read, was written to or cut is told from one whose
/// content is damaged. What is read is bounded by the file, whatever a footer says. `ReadAt` is
/// thread-safe; the members that move a position are not.
class parquet_input final : public ::arrow::io::RandomAccessFile {
 public:
  /// Opens the regular file `path`. Throws `file_unreadable`.
  explicit parquet_input(const std::string& path) : file_(path) {
    set_mode(::arrow::io::FileMode::READ);
  }

  /// Has the system read ahead, if it can.
  void prefetch(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    file_.prefetch(offset, bytes);
  }
  /// How long it was when it was opened.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return file_.size(); }

  using RandomAccessFile::ReadAt;

  /// How long it was when it was opened.
  ::arrow::Result<std::int64_t> GetSize() override { return size(); }
  /// Fills `out` with bytes from `position` on, less only at the end.
  ::arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t bytes,
                                       void* out) override {
    if (position < 0 || bytes < 0) return ::arrow::Status::Invalid("a place below 0");
    const std::int64_t count = room(position, bytes);
    try {
      file_.read_unchanged(static_cast<std::uint64_t>(position),
                           {static_cast<std::byte*>(out), static_cast<std::size_t>(count)});
      return count;
    } catch (const file_error& problem) {
      return ::arrow::Status::IOError(problem.what())
          .WithDetail(std::make_shared<parquet_failure>());
    }
  }
  /// Bytes from `position` on, in a buffer of their own.
  ::arrow::Result<std::shared_ptr<::arrow::Buffer>> ReadAt(std::int64_t position,
                                                           std::int64_t bytes) override {
    if (position < 0 || bytes < 0) return ::arrow::Status::Invalid("a place below 0");
    auto made = ::arrow::AllocateBuffer(room(position, bytes));
    if (!made.ok()) return made.status();
    std::shared_ptr<::arrow::Buffer> buffer = std::move(*made);
    const auto read = ReadAt(position, buffer->size(), buffer->mutable_data());
    if (!read.ok()) return read.status();
    return buffer;
  }

  /// Reads on from the position.
  ::arrow::Result<std::int64_t> Read(std::int64_t bytes, void* out) override {
    const auto read = ReadAt(position_, bytes, out);
    if (read.ok()) position_ += *read;
    return read;
  }
  /// The next `bytes` bytes, in a buffer of their own.
  ::arrow::Result<std::shared_ptr<::arrow::Buffer>> Read(std::int64_t bytes) override {
    auto read = ReadAt(position_, bytes);
    if (read.ok()) position_ += (*read)->size();
    return read;
  }
  /// Moves the position.
  ::arrow::Status Seek(std::int64_t position) override {
    if (position < 0) return ::arrow::Status::Invalid("a place below 0");
    position_ = position;
    return ::arrow::Status::OK();
  }
  /// The position.
  ::arrow::Result<std::int64_t> Tell() const override { return position_; }
  /// Does nothing: the destructor closes it.
  ::arrow::Status Close() override { return ::arrow::Status::OK(); }
  /// Never.
  bool closed() const override { return false; }

 private:
  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(file_.size());
  }
  // How many bytes there are from `position` on, `bytes` at most.
  [[nodiscard]] std::int64_t room(std::int64_t position, std::int64_t bytes) const noexcept {
    return (std::min)(bytes, (std::max)(size() - position, std::int64_t{0}));
  }

  shard_file file_;
  std::int64_t position_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
