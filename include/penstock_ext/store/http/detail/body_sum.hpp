// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/crypto/digest.hpp>
#include <penstock_ext/files/support/sums.hpp>

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
    switch (said_.kind) {
      case digest_kind::crc64nvme:
        counted_.emplace<crc64nvme_sum>();
        break;
      case digest_kind::crc32c:
        counted_.emplace<crc32c_sum>();
        break;
      case digest_kind::crc32:
        counted_.emplace<crc32_sum>();
        break;
      case digest_kind::sha_256:
        counted_ = digest::sha256();
        break;
    }
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

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
