// SPDX-License-Identifier: BSL-1.0
// Sums of files beside those that Python's hashlib and xxhash give.
#include <penstock_ext/files/crypto/digest.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <penstock_ext/files/support/sums.hpp>

#include "support/catch.hpp"

namespace {

using penstock::detail::digest;
using penstock::detail::xxh64;

std::string sha1_bytes(digest& sum) {
  const auto bytes = sum.sum();
  return {bytes.begin(), bytes.end()};
}

std::string sha1_text(std::string_view text) {
  return penstock::detail::hex_digits(digest::sha1().add(text).sum());
}

std::string xxh64_bytes(std::uint64_t sum) {
  std::string bytes;
  for (unsigned shift = 64; shift > 0; shift -= 8) {
    bytes += static_cast<char>(static_cast<unsigned char>(sum >> (shift - 8) & 0xffU));
  }
  return bytes;
}

// i * 7 modulo 256.
std::string sum_input(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    text += static_cast<char>(static_cast<unsigned char>(i * 7 % 256));
  }
  return text;
}

}  // namespace

TEST_CASE("SHA-1 and XXH64 give the sums that others give", "[files]") {
  const std::string million(1'000'000, 'a');
  CHECK(sha1_text("") == "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  CHECK(sha1_text("abc") == "a9993e364706816aba3e25717850c26c9cd0d89d");
  CHECK(sha1_text(million) == "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  CHECK(xxh64{}.sum() == 0xef46db3751d8e999U);
  CHECK(xxh64{}.add("abc").sum() == 0x44bc2cf5ad770999U);
  CHECK(xxh64{}.add(million).sum() == 0xdc483aaa9b4fdc40U);
  // A sum of the sums of 0 to 140 bytes: each length around a block.
  std::string of_sha1;
  std::string of_xxh64;
  for (std::size_t size = 0; size <= 140; ++size) {
    digest sum = digest::sha1();
    of_sha1 += sha1_bytes(sum.add(sum_input(size)));
    of_xxh64 += xxh64_bytes(xxh64{}.add(sum_input(size)).sum());
  }
  CHECK(sha1_text(of_sha1) == "99747c3638ef8a2ae554761627b992d3c64a2535");
  CHECK(xxh64{}.add(of_xxh64).sum() == 0x9967643a5e0d5a6bU);
}

TEST_CASE("a sum does not depend on how the bytes are cut", "[files]") {
  const std::string text = sum_input(200);
  for (std::size_t piece = 1; piece < 80; ++piece) {
    digest one = digest::sha1();
    xxh64 other;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      const auto part = std::string_view{text}.substr(at, piece);
      one.add(part);
      other.add(part);
    }
    digest whole = digest::sha1();
    CHECK(sha1_bytes(one) == sha1_bytes(whole.add(text)));
    CHECK(other.sum() == xxh64{}.add(text).sum());
  }
}
