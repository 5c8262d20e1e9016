// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Computes a message digest incrementally, using libcrypto. Not thread-safe.
class digest {
 public:
  /// Creates a SHA-1 digest, the checksum in some existing file formats. Detects corruption, not
  /// tampering. Throws `error` if libcrypto is configured without SHA-1.
  [[nodiscard]] static digest sha1() { return digest{::EVP_sha1(), "SHA-1"}; }

  /// Creates a SHA-256 digest, as used in signatures, server responses and indexes. Throws `error`
  /// if libcrypto is configured without SHA-256.
  [[nodiscard]] static digest sha256() { return digest{::EVP_sha256(), "SHA-256"}; }

  /// Updates the digest with `bytes`.
  digest& add(std::span<const std::byte> bytes) {
    require(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
    return *this;
  }

  /// Updates the digest with the bytes of `text`.
  digest& add(std::string_view text) { return add(std::as_bytes(std::span{text})); }

  /// Finishes and returns the digest. Do not call `add` afterwards.
  [[nodiscard]] std::vector<std::uint8_t> bytes() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned int size = 0;
    require(::EVP_DigestFinal_ex(context_.get(), bytes.data(), &size));
    return {bytes.begin(), bytes.begin() + size};
  }

 private:
  struct free_context {
    void operator()(EVP_MD_CTX* context) const noexcept { ::EVP_MD_CTX_free(context); }
  };

  digest(const EVP_MD* algorithm, const char* name) : name_(name), context_(::EVP_MD_CTX_new()) {
    if (!context_) throw std::bad_alloc();
    require(::EVP_DigestInit_ex(context_.get(), algorithm, nullptr));
  }

  void require(int result) const {
    if (result == 1) return;
    throw error(std::string{"libcrypto failed to compute "} + name_ +
                ": check that its configuration, openssl.cnf, has a provider for it");
  }

  const char* name_;
  std::unique_ptr<EVP_MD_CTX, free_context> context_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
