// SPDX-License-Identifier: BSL-1.0
#include "sha256.hpp"

#include <span>
#include <string_view>

#include "support/catch.hpp"

namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

}  // namespace

TEST_CASE("SHA-256 gives the sums of FIPS 180-4", "[mlp]") {
  CHECK(mlp::sha256{}.finish() ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  mlp::sha256 whole;
  whole.add(bytes("abc"));
  CHECK(whole.finish() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("SHA-256 of pieces is that of the whole", "[mlp]") {
  mlp::sha256 pieces;
  pieces.add(bytes("abcdbcdecdefdefgefghfghi"));
  pieces.add({});
  pieces.add(bytes("ghijhijkijkljklmklmnlmnomnopnopq"));
  CHECK(pieces.finish() == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}
