// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
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
  std::string etag = {};      ///< as the server writes it, see `kept`; "": none was said
  std::string modified = {};  ///< Last-Modified, likewise

  /// `text`, or for a very long one its start and a hash of it.
  [[nodiscard]] static std::string kept(std::string_view text) {
    if (text.size() <= 128) return std::string{text};
    return std::string{text.substr(0, 100)} + '#' +
           std::to_string(std::hash<std::string_view>{}(text));
  }

  /// Whether there is an ETag that stands for each byte of the object.
  [[nodiscard]] bool has_strong_etag() const noexcept {
    return !etag.empty() && !etag.starts_with("W/");
  }

  /// Whether `other` says another ETag, a weak one without its mark (RFC 9110, 8.8.3.2).
  [[nodiscard]] bool has_other_etag(const object_version& other) const noexcept {
    return !etag.empty() && !other.etag.empty() && opaque(etag) != opaque(other.etag);
  }

  /// Whether `other` is known to be another version: by the size, by the ETag and, where they are
  /// not one strong ETag, by Last-Modified.
  [[nodiscard]] bool differs(const object_version& other) const noexcept {
    if ((size && other.size && *size != *other.size) || has_other_etag(other)) return true;
    if (has_strong_etag() && other.has_strong_etag()) return false;
    return !modified.empty() && !other.modified.empty() && modified != other.modified;
  }

  /// Takes what `other` says besides. False, and nothing taken, where it is another version.
  [[nodiscard]] bool agrees(const object_version& other) {
    if (differs(other)) return false;
    if (!size) size = other.size;
    if (!has_strong_etag() && !other.etag.empty()) etag = other.etag;
    if (modified.empty()) modified = other.modified;
    return true;
  }

  /// All that is known of it, for messages.
  [[nodiscard]] std::string words() const {
    std::string all = "an object";
    if (size) all += " of " + std::to_string(*size) + " bytes";
    if (!etag.empty()) all += ", ETag: " + etag;
    if (!modified.empty()) all += ", Last-Modified: " + modified;
    for (char& c : all) c = c < ' ' || c > '~' ? '?' : c;
    return all;
  }

  /// The version in a text for caches; "" where nothing but the size is known.
  [[nodiscard]] std::string name() const {
    return has_strong_etag() || modified.empty() ? etag : etag + ' ' + modified;
  }

 private:
  [[nodiscard]] static std::string_view opaque(std::string_view tag) noexcept {
    return tag.starts_with("W/") ? tag.substr(2) : tag;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
