// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A reusable buffer for the blobs that a thread reads. The buffer grows as needed and never
/// shrinks. A source that already has a blob in memory returns that memory instead and passes its
/// owner to `hold`. Movable. A moved-from buffer is empty.
class blob_buffer {
 public:
  /// Returns `bytes` bytes of memory with unspecified content. Invalidates the results of earlier
  /// calls, and releases the owner passed to `hold`. If allocation fails, throws std::bad_alloc and
  /// leaves the buffer empty.
  [[nodiscard]] std::span<std::byte> room_for(std::size_t bytes) {
    held_.reset();
    if (bytes > capacity()) {
      // Grows by at least half. The old content is not needed, so its memory is freed first.
      const std::size_t grown = capacity() + capacity() / 2;
      const std::size_t wanted = bytes > grown ? bytes : grown;
      memory_.reset();
      memory_ = std::make_unique_for_overwrite<std::byte[]>(wanted);
      capacity_ = wanted;
    }
    return {memory_.get(), bytes};
  }

  /// Keeps `owner` alive until the next blob is read. `owner` owns a blob outside this buffer.
  /// Releases the previous owner.
  void hold(std::shared_ptr<const void> owner) noexcept { held_ = std::move(owner); }

  /// Returns the number of bytes that the buffer can hold without reallocating.
  [[nodiscard]] std::size_t capacity() const noexcept { return memory_ == nullptr ? 0 : capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;  // size of `memory_`, if allocated
  std::shared_ptr<const void> held_;
};

/// Random access to variable-length byte strings, each with a label and a key. Examples are encoded
/// images, documents, and members of shards. A source has these members:
///
///     struct source {
///       std::uint64_t size() const;                  // number of blobs; constant while in use
///       std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const;
///       std::int64_t label(std::uint64_t index) const;
///       std::string key(std::uint64_t index) const;  // name for messages, such as a path
///     };
///
/// `bytes` returns blob `index`, in [0, size()), from the source's own memory, or reads it into
/// `buffer`. The result is valid until the next use of `buffer`, and while the source is not moved
/// or changed. Several threads may call all members concurrently, each with its own buffer. The
/// consumer receives an exception when it reaches the affected batch.
///
/// Optional members:
///
/// - `prefetch(index) noexcept` is a hint that the blob will be read soon.
/// - `prefetch(std::span<const std::uint64_t>) noexcept` is the same hint for several blobs.
/// - `std::uint64_t prefetch_capacity() const` returns the maximum total size in bytes of blobs
///   with outstanding hints.
/// - `std::uint64_t storage_size(std::uint64_t index) const` returns the size of a blob in bytes,
///   or 0 if unknown.
/// - `access_plan(indices)` and `plan_capacity()` have the same meaning as in a `dataset`.
///
/// `decode_images` forwards the hints of a loader's `lookahead_bytes` to these members.
template <class S>
concept blob_source = requires(const S& source, std::uint64_t index, blob_buffer& buffer) {
  { source.size() } -> std::convertible_to<std::uint64_t>;
  { source.bytes(index, buffer) } -> std::convertible_to<std::span<const std::byte>>;
  { source.label(index) } -> std::convertible_to<std::int64_t>;
  { source.key(index) } -> std::convertible_to<std::string>;
};

/// Specifies how a source handles a sample or file that appears twice in its shards.
enum class duplicate_action {
  reject,     ///< Throws `duplicate_entry`, which names both locations.
  take_last,  ///< Uses the last occurrence, as tar does when it extracts an archive.
  keep        ///< Keeps all occurrences as separate samples.
};

namespace detail {

/// Throws `file_format_error` because the blob at byte `at` exceeds `max_bytes`.
[[noreturn]] inline void throw_blob_too_large(const std::string& path, std::uint64_t at,
                                              std::uint64_t max_bytes, std::uint64_t size) {
  throw file_format_error(path, at, "at most " + std::to_string(max_bytes) + " bytes (max_bytes)",
                          std::to_string(size));
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
