// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace data {

/// Computes the SHA-256 hash of bytes that arrive in pieces, using OpenSSL's libcrypto.
class sha256 {
 public:
  /// Throws `std::runtime_error` if libcrypto does not support SHA-256.
  sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    require(context_ == nullptr ? 0 : EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
  }
  void add(std::span<const std::byte> bytes) {
    require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
  }
  /// Returns the hash as 64 hexadecimal digits. No member may be called afterwards.
  [[nodiscard]] std::string finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
    unsigned size = 0;
    require(EVP_DigestFinal_ex(context_.get(), sum.data(), &size));
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      text += "0123456789abcdef"[sum[i] >> 4U];
      text += "0123456789abcdef"[sum[i] & 15U];
    }
    return text;
  }

 private:
  static void require(int status) {
    if (status != 1) throw std::runtime_error("libcrypto can't compute a SHA-256");
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace data
