// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

extern "C" {
struct evp_md_ctx_st;
}

namespace mlp {

/// SHA-256 of bytes that come in pieces, by OpenSSL's libcrypto.
class sha256 {
 public:
  /// Throws `std::runtime_error` if libcrypto has no SHA-256.
  sha256();
  void add(std::span<const std::byte> bytes);
  /// The sum in 64 hexadecimal digits. Ends the summation: `add` and `finish` are not to follow.
  [[nodiscard]] std::string finish();

 private:
  struct free_context {
    void operator()(evp_md_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_md_ctx_st, free_context> context_;
};

}  // namespace mlp
