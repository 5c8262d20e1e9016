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
#include <penstock_ext/files/support/sums.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The sums that servers name, the quickest one first.
enum class digest_kind : std::uint8_t { crc64nvme, crc32c, crc32, sha_256 };

/// A sum as a server has written it.
struct expected_digest {
  digest_kind kind = digest_kind::sha_256;
  std::string text = {};  ///< in base64

  /// What a line of an answer says of the body itself: Content-Digest (RFC 9530) with SHA-256.
  /// `name` is in lower case.
  [[nodiscard]] static std::optional<expected_digest> of_body(std::string_view name,
                                                              std::string_view value) {
    return name == "content-digest" ? in_dictionary(value) : std::nullopt;
  }

  /// What a line says of the whole object: Repr-Digest (RFC 9530) with SHA-256, S3's
  /// x-amz-checksum-..., Google's x-goog-hash. Nothing for a sum of the sums of an upload's parts,
  /// and for one of MD5.
  [[nodiscard]] static std::optional<expected_digest> of_object(std::string_view name,
                                                                std::string_view value) {
    constexpr std::string_view amazon = "x-amz-checksum-";
    if (name == "repr-digest") return in_dictionary(value);
    if (name == "x-goog-hash") {
      const std::size_t at = value.find("crc32c=");
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

  /// The name of a kind, as S3 spells it.
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

  // "sha-256=:base64:", maybe among others.
  [[nodiscard]] static std::optional<expected_digest> in_dictionary(std::string_view value) {
    constexpr std::string_view key = "sha-256=:";
    const std::size_t at = value.find(key);
    if (at == std::string_view::npos) return std::nullopt;
    value.remove_prefix(at + key.size());
    return expected_digest{digest_kind::sha_256, std::string{value.substr(0, value.find(':'))}};
  }
};

/// Bytes as base64, with padding, by libcrypto. Source: RFC 4648.
[[nodiscard]] inline std::string base64_of(std::span<const std::uint8_t> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // a zero at the end too
  const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes.data(),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

/// The sum of a body as it arrives, beside the one that its server has said.
class body_sum {
 public:
  explicit body_sum(expected_digest said) : said_(std::move(said)) {
    // Else it is that of crc64nvme.
    if (said_.kind == digest_kind::crc32c) counted_ = crc32c_sum{};
    if (said_.kind == digest_kind::crc32) counted_ = crc32_sum{};
    if (said_.kind == digest_kind::sha_256) counted_ = digest::sha256();
  }

  /// Adds a piece of the body at the end.
  void add(std::span<const std::byte> bytes) {
    std::visit([&](auto& counted) { counted.add(bytes); }, counted_);
  }

  /// What differs, for messages; nothing where the sums are equal. To be called once, at the end.
  [[nodiscard]] std::optional<std::string> difference() {
    const std::string found =
        std::visit([](auto& counted) { return base64_of(counted.sum()); }, counted_);
    if (found == said_.text) return std::nullopt;
    return "a body whose " + std::string{expected_digest::name_of(said_.kind)} + " is " + found +
           ", and not the one that the server has said";
  }

 private:
  expected_digest said_;
  std::variant<crc64nvme_sum, crc32c_sum, crc32_sum, digest> counted_;
};

/// What a Content-Range line says (RFC 9110): "bytes 0-9/100", "bytes 0-9/*", "bytes */100".
struct content_range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  ///< one past the last byte; `begin` where there is no range
  std::optional<std::uint64_t> total = std::nullopt;  ///< the object's size, where it is said

  /// Nothing for a line that can't be.
  [[nodiscard]] static std::optional<content_range> parse(std::string_view text) noexcept {
    if (!text.starts_with("bytes ")) return std::nullopt;
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

/// The lines of an answer that matter here, of the last one where redirects were followed.
struct http_answer {
  int status = 0;
  std::optional<std::uint64_t> length = std::nullopt;  ///< Content-Length
  bool has_range = false;                              ///< there was a Content-Range line ...
  std::optional<content_range> range = std::nullopt;   ///< ... and this is what it says
  std::string etag = {};
  std::string modified = {};                             ///< Last-Modified
  std::string retry_after = {};                          ///< seconds or a date
  std::string bucket_region = {};                        ///< where S3 says that the bucket lies
  bool is_chunked = false;                               ///< the body says itself where it ends
  std::optional<expected_digest> body = std::nullopt;    ///< what sum the body has
  std::optional<expected_digest> object = std::nullopt;  ///< what sum all of the object has

  /// Takes one line, its end included.
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
      length = whole_number(value);
    } else if (name == "content-range") {
      has_range = true;
      range = content_range::parse(value);
    } else if (name == "etag") {
      etag = value;
    } else if (name == "last-modified") {
      modified = value;
    } else if (name == "retry-after") {
      retry_after = value;
    } else if (name == "x-amz-bucket-region") {
      bucket_region = value;
    } else if (name == "transfer-encoding") {
      is_chunked = in_lower_case(value) == "chunked";
    } else if (auto of_body = expected_digest::of_body(name, value)) {
      body = std::move(of_body);
    } else if (auto of_object = expected_digest::of_object(name, value)) {
      if (!object || of_object->kind < object->kind) object = std::move(of_object);
    }
  }

  /// The sum that the body has to have; nothing where the server has not said it. A sum of the
  /// object counts where the body is all of it.
  [[nodiscard]] std::optional<expected_digest> digest_of_body() const {
    if (body) return body;
    const bool is_whole =
        status == 200 || (range && range->begin == 0 && range->end == range->total);
    return is_whole ? object : std::nullopt;
  }

 private:
  [[nodiscard]] static bool is_blank(char c) noexcept {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
  }
  [[nodiscard]] static std::string in_lower_case(std::string_view text) {
    std::string low{text};
    for (char& c : low) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return low;
  }
};

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
