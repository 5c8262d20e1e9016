// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/detail/archive_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A piece of an archive in memory, which follows what is asked for. Headers that lie close to each
/// other come with one read; where they lie far apart, little is read in vain.
template <archive_bytes Source>
class archive_window {
 public:
  /// Reads from `source`, which must outlive it.
  explicit archive_window(const Source& source)
      : source_(&source), memory_(std::make_unique_for_overwrite<std::byte[]>(longest)) {}

  /// `count` bytes at `offset`, at most `longest`, fewer only at the archive's end. Valid until the
  /// next call.
  [[nodiscard]] std::span<const std::byte> at(std::uint64_t offset, std::size_t count) {
    if (offset < begin_ || offset > begin_ + filled_ || begin_ + filled_ - offset < count) {
      const bool is_close = offset >= begin_ && offset <= begin_ + filled_;
      length_ = is_close ? (std::min)(2 * length_, longest) : shortest;
      begin_ = offset;
      filled_ = 0;  // should reading throw
      filled_ = source_->read_at(offset, {memory_.get(), (std::max)(length_, count)});
    }
    const auto skipped = static_cast<std::size_t>(offset - begin_);
    return {memory_.get() + skipped, (std::min)(count, filled_ - skipped)};
  }

  /// The most bytes that one call gives.
  static constexpr std::size_t longest = std::size_t{1} << 18;

 private:
  // A label, the header after it, and some more.
  static constexpr std::size_t shortest = 4096;

  const Source* source_;
  std::unique_ptr<std::byte[]> memory_;
  std::uint64_t begin_ = 0;
  std::size_t filled_ = 0;
  std::size_t length_ = shortest;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
