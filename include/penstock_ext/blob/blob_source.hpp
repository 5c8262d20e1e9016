// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
