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

/// A message digest by libcrypto, over bytes that come piece by piece. One thread uses it.
class digest {
 public:
  /// SHA-1, for sums of files that others wrote: it tells damage, and no intent. Throws `error`
  /// where libcrypto is configured without it.
  [[nodiscard]] static digest sha1() { return digest{::EVP_sha1(), "SHA-1"}; }

  /// SHA-256, for signatures and for what servers and indices say of bytes. Throws `error` where
  /// libcrypto is configured without it.
  [[nodiscard]] static digest sha256() { return digest{::EVP_sha256(), "SHA-256"}; }

  /// Adds `bytes` at the end.
  digest& add(std::span<const std::byte> bytes) {
    require(::EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
    return *this;
  }

  /// Adds the bytes of `text` at the end.
  digest& add(std::string_view text) { return add(std::as_bytes(std::span{text})); }

  /// The digest of all that was added; nothing is to be added after it.
  [[nodiscard]] std::vector<std::uint8_t> sum() {
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
    throw error(std::string{"libcrypto refuses to compute "} + name_ +
                ": look at its configuration, openssl.cnf, for a provider that has it");
  }

  const char* name_;
  std::unique_ptr<EVP_MD_CTX, free_context> context_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
