// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/crypto/digest.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns `text` with the letters A to Z in lower case. HTTP tokens are case-insensitive.
[[nodiscard]] inline std::string in_lower_case(std::string_view text) {
  std::string low{text};
  for (char& c : low) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return low;
}

/// Checksums that servers report, fastest first.
enum class digest_kind : std::uint8_t { crc64nvme, crc32c, crc32, sha_256 };

/// A checksum as reported by the server.
struct expected_digest {
  digest_kind kind = digest_kind::sha_256;
  std::string text = {};  ///< base64

  /// Returns the body checksum in a header line: Content-Digest (RFC 9530) with SHA-256. `name`
  /// must be in lower case.
  [[nodiscard]] static std::optional<expected_digest> of_body(std::string_view name,
                                                              std::string_view value) {
    return name == "content-digest" ? in_dictionary(value) : std::nullopt;
  }

  /// Returns the checksum of the whole object in a header line: Repr-Digest (RFC 9530) with
  /// SHA-256, S3's x-amz-checksum-..., or Google's x-goog-hash. Returns nothing for MD5, and for a
  /// multipart upload checksum that is computed from part checksums.
  [[nodiscard]] static std::optional<expected_digest> of_object(std::string_view name,
                                                                std::string_view value) {
    constexpr std::string_view amazon = "x-amz-checksum-";
    if (name == "repr-digest") return in_dictionary(value);
    if (name == "x-goog-hash") {
      const std::size_t at = in_lower_case(value).find("crc32c=");
      if (at == std::string_view::npos) return std::nullopt;
      value.remove_prefix(at + 7);
      return expected_digest{digest_kind::crc32c, std::string{value.substr(0, value.find(','))}};
    }
    if (!name.starts_with(amazon) || value.find('-') != std::string_view::npos) return std::nullopt;
    name.remove_prefix(amazon.size());
    for (const auto& [word, kind] : words) {
      if (name == word) return expected_digest{kind, std::string{value}};
    }
    return std::nullopt;
  }

  /// Returns the S3 name of a checksum kind.
  [[nodiscard]] static std::string_view name_of(digest_kind kind) noexcept {
    for (const auto& [word, of] : words) {
      if (of == kind) return word;
    }
    return {};
  }

 private:
  static constexpr std::pair<std::string_view, digest_kind> words[] = {
      {"crc64nvme", digest_kind::crc64nvme},
      {"crc32c", digest_kind::crc32c},
      {"crc32", digest_kind::crc32},
      {"sha256", digest_kind::sha_256}};

  // Parses "sha-256=:base64:", possibly among other entries.
  [[nodiscard]] static std::optional<expected_digest> in_dictionary(std::string_view value) {
    constexpr std::string_view key = "sha-256=:";
    const std::size_t at = in_lower_case(value).find(key);
    if (at == std::string_view::npos) return std::nullopt;
    value.remove_prefix(at + key.size());
    return expected_digest{digest_kind::sha_256, std::string{value.substr(0, value.find(':'))}};
  }
};

/// Encodes `bytes` in base64 with padding, using libcrypto. Source: RFC 4648.
[[nodiscard]] inline std::string base64_of(std::span<const std::uint8_t> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // including a terminating NUL
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

/// The running checksum of a body, and the checksum that the server reported.
class body_checksum {
 public:
  explicit body_checksum(expected_digest expected) : expected_(std::move(expected)) {
    // The default is CRC-64/NVME.
    if (expected_.kind == digest_kind::crc32c) counted_ = crc32c_checksum{};
    if (expected_.kind == digest_kind::crc32) counted_ = crc32_checksum{};
    if (expected_.kind == digest_kind::sha_256) counted_ = digest::sha256();
  }

  /// Updates the checksum with a piece of the body.
  void add(std::span<const std::byte> bytes) {
    std::visit([&](auto& counted) { counted.add(bytes); }, counted_);
  }

  /// Returns a description of the mismatch, or nothing if the checksums are equal. May be called
  /// only once, after the last piece.
  [[nodiscard]] std::optional<std::string> difference() {
    const std::string found =
        std::visit([](auto& counted) { return base64_of(counted.bytes()); }, counted_);
    if (found == expected_.text) return std::nullopt;
    return "a body whose " + std::string{expected_digest::name_of(expected_.kind)} + " is " +
           found + ", which differs from the server's checksum";
  }

 private:
  expected_digest expected_;
  std::variant<crc64nvme_checksum, crc32c_checksum, crc32_checksum, digest> counted_;
};

/// The value of a Content-Range line (RFC 9110): "bytes 0-9/100", "bytes 0-9/*", "bytes */100".
struct content_range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  ///< end of the range (exclusive), or `begin` if the header has no range
  std::optional<std::uint64_t> total = std::nullopt;  ///< object size, if reported

  friend bool operator==(const content_range&, const content_range&) = default;

  /// Parses the header value. Returns nothing if it is invalid.
  [[nodiscard]] static std::optional<content_range> parse(std::string_view text) noexcept {
    if (in_lower_case(text.substr(0, 6)) != "bytes ") return std::nullopt;
    text.remove_prefix(6);
    const std::size_t slash = text.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const std::string_view place = text.substr(0, slash);
    const std::string_view size = text.substr(slash + 1);
    content_range range;
    range.total = whole_number(size);
    if (!range.total && size != "*") return std::nullopt;
    if (place == "*") return range.total ? std::optional{range} : std::nullopt;
    const std::size_t dash = place.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto first = whole_number(place.substr(0, dash));
    const auto last = whole_number(place.substr(dash + 1));
    if (!first || !last || *last < *first || *last == ~std::uint64_t{0}) return std::nullopt;
    if (range.total && *last >= *range.total) return std::nullopt;
    range.begin = *first;
    range.end = *last + 1;
    return range;
  }
};

/// The relevant headers of a response. After redirects, those of the last response.
struct http_answer {
  int status = 0;
  std::optional<std::uint64_t> length = std::nullopt;  ///< Content-Length
  /// True if the response has a Content-Range header.
  bool has_range = false;
  std::optional<content_range> range = std::nullopt;  ///< the parsed Content-Range, if valid
  std::string etag = {};
  std::string modified = {};       ///< Last-Modified
  std::string retry_after = {};    ///< Retry-After: seconds or a date
  std::string bucket_region = {};  ///< bucket region, as reported by S3
  std::string encoding = {};       ///< Content-Encoding in lower case, or "" for identity
  std::optional<std::string> stored_encoding =
      std::nullopt;                ///< encoding of the object as stored by Google
  bool has_warning = false;        ///< true if a proxy or server has transformed the body
  std::string contradiction = {};  ///< name of a header that appears twice with different values
  bool is_chunked = false;         ///< true for chunked transfer encoding
  std::optional<expected_digest> body = std::nullopt;    ///< checksum of the body
  std::optional<expected_digest> object = std::nullopt;  ///< checksum of the whole object

  /// Parses a header line, including its line ending.
  void add_line(std::string_view line) {
    while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {
      *this = http_answer{};
      const std::size_t blank = line.find(' ');
      if (blank == std::string_view::npos) return;
      const auto number = whole_number(line.substr(blank + 1, 3));
      if (number && *number >= 100) status = static_cast<int>(*number);
      return;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string name = in_lower_case(line.substr(0, colon));
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && is_blank(value.front())) value.remove_prefix(1);
    if (name == "content-length") {
      const auto number = whole_number(value);
      if (length && length != number) contradiction = "Content-Length";
      length = number;
    } else if (name == "content-range") {
      const auto parsed = content_range::parse(value);
      if (has_range && range != parsed) contradiction = "Content-Range";
      has_range = true;
      range = parsed;
    } else if (name == "content-encoding") {
      encoding = encoding_in(value);
    } else if (name == "x-goog-stored-content-encoding") {
      stored_encoding = encoding_in(value);
    } else if (name == "warning") {
      has_warning |= value.starts_with("214");
    } else if (name == "etag") {
      etag = value;
    } else if (name == "last-modified") {
      modified = value;
    } else if (name == "retry-after") {
      retry_after = value;
    } else if (name == "x-amz-bucket-region") {
      bucket_region = value;
    } else if (name == "transfer-encoding") {
      is_chunked = in_lower_case(value).ends_with("chunked");
    } else if (auto of_body = expected_digest::of_body(name, value)) {
      body = std::move(of_body);
    } else if (auto of_object = expected_digest::of_object(name, value)) {
      if (!object || of_object->kind < object->kind) object = std::move(of_object);
    }
  }

  /// Returns the expected checksum of the body, or nothing if the server reported none. An object
  /// checksum is used only if the body is the whole object.
  [[nodiscard]] std::optional<expected_digest> digest_of_body() const {
    if (body) return body;
    const bool is_whole =
        status == 200 || (range && range->begin == 0 && range->end == range->total);
    return is_whole && !is_transformed() ? object : std::nullopt;
  }

  /// Returns true if the body differs from the stored object, so that object checksums do not
  /// apply.
  [[nodiscard]] bool is_transformed() const {
    return has_warning || stored_encoding.value_or(encoding) != encoding;
  }

 private:
  [[nodiscard]] static std::string encoding_in(std::string_view value) {
    std::string name = in_lower_case(value);
    return name == "identity" ? std::string{} : name;
  }
  [[nodiscard]] static bool is_blank(char c) noexcept {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
  }
};

/// The known properties that identify an object version, merged from all responses.
struct object_version {
  std::optional<std::uint64_t> size = std::nullopt;
  std::string etag = {};      ///< ETag as processed by `kept`, or "" if unknown
  std::string modified = {};  ///< Last-Modified as processed by `kept`
  /// True if from a response with a body; a HEAD response may omit headers.
  bool is_of_get = false;

  /// Returns `text`, or its start and a hash if it is very long.
  [[nodiscard]] static std::string kept(std::string_view text) {
    if (text.size() <= 128) return std::string{text};
    return std::string{text.substr(0, 100)} + '#' +
           std::to_string(std::hash<std::string_view>{}(text));
  }

  /// Returns true if the ETag is strong, which means that it identifies each byte of the object.
  [[nodiscard]] bool has_strong_etag() const noexcept {
    return !etag.empty() && !etag.starts_with("W/");
  }

  /// Returns true if the ETags differ, ignoring the weak marker (RFC 9110, 8.8.3.2). Also returns
  /// true if only one of two comparable responses has an ETag.
  [[nodiscard]] bool has_other_etag(const object_version& other) const noexcept {
    return is_other(opaque(etag), opaque(other.etag), other);
  }

  /// Returns true if `other` is known to be a different version. Compares sizes and ETags. Unless
  /// both have strong ETags, also compares Last-Modified.
  [[nodiscard]] bool differs(const object_version& other) const noexcept {
    if ((size && other.size && *size != *other.size) || has_other_etag(other)) return true;
    if (has_strong_etag() && other.has_strong_etag()) return false;
    return is_other(modified, other.modified, other);
  }

  /// Merges the properties that only `other` has, and returns true. If `other` is a different
  /// version, changes nothing and returns false.
  [[nodiscard]] bool agrees(const object_version& other) {
    if (differs(other)) return false;
    if (!size) size = other.size;
    if (!has_strong_etag() && !other.etag.empty()) etag = other.etag;
    if (modified.empty()) modified = other.modified;
    is_of_get |= other.is_of_get;
    return true;
  }

  /// Formats all known properties for messages.
  [[nodiscard]] std::string words() const {
    std::string all = "an object";
    if (size) all += " of " + std::to_string(*size) + " bytes";
    if (!etag.empty()) all += ", ETag: " + etag;
    if (!modified.empty()) all += ", Last-Modified: " + modified;
    for (char& c : all) c = c < ' ' || c > '~' ? '?' : c;
    return all;
  }

  /// Returns the version as a string for caches, or "" if only the size is known.
  [[nodiscard]] std::string name() const {
    return has_strong_etag() || modified.empty() ? etag : etag + ' ' + modified;
  }

 private:
  // Returns true if `now`, a value in `other`, contradicts the earlier value `before`.
  [[nodiscard]] bool is_other(std::string_view before, std::string_view now,
                              const object_version& other) const noexcept {
    if (before.empty()) return is_of_get && !now.empty();
    return now.empty() ? other.is_of_get : before != now;
  }
  [[nodiscard]] static std::string_view opaque(std::string_view tag) noexcept {
    return tag.starts_with("W/") ? tag.substr(2) : tag;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
