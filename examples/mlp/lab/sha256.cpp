#include "sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <stdexcept>

namespace mlp {

namespace {

void require(int status) {
  if (status != 1) throw std::runtime_error("libcrypto can't compute a SHA-256");
}

}  // namespace

void sha256::free_context::operator()(evp_md_ctx_st* context) const noexcept {
  EVP_MD_CTX_free(context);
}

sha256::sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ == nullptr ? 0 : EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
}

void sha256::add(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()));
}

std::string sha256::finish() {
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

}  // namespace mlp
