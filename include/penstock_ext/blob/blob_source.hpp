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

/// Memory that one thread reads blobs into, one after another. Grows and is not cleared, so that
/// reading allocates nothing once the largest blob has been there. A source that has a blob in
/// memory hands out that instead, see `hold`. Movable; one that was moved from is empty.
class blob_buffer {
 public:
  /// `bytes` of memory with unspecified content; what an earlier call returned is gone, and so is
  /// what was held. Throws std::bad_alloc and leaves an empty buffer then.
  [[nodiscard]] std::span<std::byte> room_for(std::size_t bytes) {
    held_.reset();
    if (bytes > capacity()) {
      // Grows by half at least; the old content is of no use, so it is freed first.
      const std::size_t grown = capacity() + capacity() / 2;
      const std::size_t wanted = bytes > grown ? bytes : grown;
      memory_.reset();
      memory_ = std::make_unique_for_overwrite<std::byte[]>(wanted);
      capacity_ = wanted;
    }
    return {memory_.get(), bytes};
  }

  /// Shares in `owner`, of a blob that is handed out from memory of its own, until the next blob is
  /// read. What was held is let go.
  void hold(std::shared_ptr<const void> owner) noexcept { held_ = std::move(owner); }

  /// How many bytes it holds without growing.
  [[nodiscard]] std::size_t capacity() const noexcept { return memory_ == nullptr ? 0 : capacity_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;  // of `memory_`, where there is some
  std::shared_ptr<const void> held_;
};

/// Random access to byte strings of different lengths, each with a label and a key: what encoded
/// images, documents and shards' members are before they are decoded. The contract:
///
///     struct source {
///       std::uint64_t size() const;                  // how many blobs; constant while in use
///       std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const;
///       std::int64_t label(std::uint64_t index) const;
///       std::string key(std::uint64_t index) const;  // names the blob for people: a path
///     };
///
/// `bytes` returns blob `index` in [0, size()) where it lies, or reads it into `buffer` and returns
/// that; valid until the next use of `buffer`, and while the source is neither moved nor changed.
/// All members are called from several threads at once, with a buffer for each thread. What they
/// throw reaches the consumer at that batch's turn. A source may offer `prefetch(index) noexcept`
/// besides: a hint that the blob will be read soon; and `prefetch(std::span<const std::uint64_t>)
/// noexcept` for several at once. `decode_images` passes them the hints of a loader's `ahead`,
/// far ahead, up to `std::uint64_t prefetch_capacity() const` bytes where a source has that,
/// counted by `std::uint64_t storage_size(std::uint64_t index) const`, which is 0 where it is not
/// known. It passes on `access_plan(indices)` and `plan_capacity()` too, which mean what they mean
/// of a `dataset`.
template <class S>
concept blob_source = requires(const S& source, std::uint64_t index, blob_buffer& buffer) {
  { source.size() } -> std::convertible_to<std::uint64_t>;
  { source.bytes(index, buffer) } -> std::convertible_to<std::span<const std::byte>>;
  { source.label(index) } -> std::convertible_to<std::int64_t>;
  { source.key(index) } -> std::convertible_to<std::string>;
};

namespace detail {

/// Throws that a blob at byte `at` has more bytes than the option allows.
[[noreturn]] inline void refuse_large(const std::string& path, std::uint64_t at,
                                      std::uint64_t max_bytes, std::uint64_t size) {
  throw file_format_error(path, at, "at most " + std::to_string(max_bytes) + " bytes (max_bytes)",
                          std::to_string(size));
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
