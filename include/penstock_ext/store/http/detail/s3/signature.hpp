// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/files/crypto/digest.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A signed header: its lower-case name and trimmed value.
using signed_line = std::pair<std::string, std::string>;

/// The signed parts of a request, as sent. `path` and `query` are percent-encoded, the query
/// parameters are sorted, and the headers are sorted by name.
struct signed_request {
  std::string_view method;
  std::string_view path;
  std::string_view query;
  std::span<const signed_line> lines;
  std::string_view body_checksum;  ///< SHA-256 of the body in hexadecimal
};

/// SHA-256 of an empty body, which every request has.
inline constexpr std::string_view sha256_of_nothing =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Returns the HMAC-SHA-256 of `text`, computed by libcrypto. Throws `error` if libcrypto is
/// configured without it.
[[nodiscard]] inline std::vector<std::uint8_t> hmac_sha256(std::string_view key,
                                                           std::string_view text) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  std::vector<std::uint8_t> hmac(EVP_MAX_MD_SIZE);
  unsigned int size = 0;
  if (key.size() > static_cast<std::size_t>((std::numeric_limits<int>::max)()) ||
      ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, text.size(),
             hmac.data(), &size) == nullptr) {
    throw error(
        "libcrypto failed to compute HMAC with SHA-256, which is needed to sign requests to S3: "
        "check that its configuration, openssl.cnf, has a provider for it");
  }
  hmac.resize(size);
  return hmac;
}

/// Formats a time as in signatures: "20130524T000000Z".
[[nodiscard]] inline std::string signing_time(std::time_t moment) {
  std::tm parts{};
  ::gmtime_r(&moment, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

/// Returns the value of the Authorization header for AWS Signature Version 4. Source: "Signature
/// Calculations for the Authorization Header", Amazon S3 API Reference.
[[nodiscard]] inline std::string authorization(const s3_credentials& credentials,
                                               std::string_view region, std::string_view service,
                                               std::string_view time,
                                               const signed_request& request) {
  std::string names;
  std::string canonical = std::string{request.method} + '\n' + std::string{request.path} + '\n' +
                          std::string{request.query} + '\n';
  for (const auto& [name, value] : request.lines) {
    canonical.append(name).append(":").append(value).append("\n");
    if (!names.empty()) names += ';';
    names += name;
  }
  canonical += '\n' + names + '\n' + std::string{request.body_checksum};

  const std::string_view day = time.substr(0, 8);
  const std::string scope =
      std::string{day} + '/' + std::string{region} + '/' + std::string{service} + "/aws4_request";
  const std::string text = "AWS4-HMAC-SHA256\n" + std::string{time} + '\n' + scope + '\n' +
                           hex_digits(digest::sha256().add(canonical).bytes());
  std::string key = "AWS4" + credentials.secret;
  for (const std::string_view part : {day, region, service, std::string_view{"aws4_request"}}) {
    const std::vector<std::uint8_t> hmac = hmac_sha256(key, part);
    key.assign(hmac.begin(), hmac.end());
  }
  return "AWS4-HMAC-SHA256 Credential=" + credentials.key_id + '/' + scope +
         ", SignedHeaders=" + names + ", Signature=" + hex_digits(hmac_sha256(key, text));
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
