// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// By what one notices that an object is another one now: what answers said about it so far.
struct object_version {
  std::optional<std::uint64_t> size = std::nullopt;
  std::uint64_t etag = 0;  ///< a hash of it; 0: none was said

  /// A hash of an ETag's text that is not 0; 0 for none.
  [[nodiscard]] static std::uint64_t etag_of(std::string_view text) noexcept {
    return text.empty() ? 0 : (std::uint64_t{std::hash<std::string_view>{}(text)} | 1U);
  }

  /// Takes what `other` says besides. False, and nothing taken, where it says something else.
  [[nodiscard]] bool agrees(const object_version& other) noexcept {
    if (size && other.size && *size != *other.size) return false;
    if (etag != 0 && other.etag != 0 && etag != other.etag) return false;
    if (!size) size = other.size;
    if (etag == 0) etag = other.etag;
    return true;
  }
};

/// The versions of the objects that were asked for last: bounded, so that millions of objects take
/// no more memory; objects that share a place displace each other. One thread uses it.
class version_table {
 public:
  /// The entry of `object`, an empty one if another object has its place.
  [[nodiscard]] object_version& of(std::string_view object) noexcept {
    const std::uint64_t hash = std::hash<std::string_view>{}(object);
    entry& found = (*entries_)[hash % places];
    if (!found.is_used || found.object != hash) found = {hash, true, {}};
    return found.version;
  }

 private:
  struct entry {
    std::uint64_t object = 0;
    bool is_used = false;
    object_version version;
  };

  static constexpr std::size_t places = 1U << 14U;
  std::unique_ptr<std::array<entry, places>> entries_ =
      std::make_unique<std::array<entry, places>>();
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
