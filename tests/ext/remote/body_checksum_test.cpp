// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/detail/answer.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::body_checksum;
using ps::detail::digest_kind;
using ps::detail::expected_digest;

namespace {

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span{text});
}

// Returns the body checksum that a response with these header lines announces.
std::optional<expected_digest> said_by(std::initializer_list<const char*> lines) {
  ps::detail::http_answer answer;
  for (const char* const line : lines) answer.add_line(line);
  return answer.digest_of_body();
}

}  // namespace

TEST_CASE("checksums equal their standards for any split of the body", "[remote][fault:stores-8]") {
  // The published check values of each algorithm.
  const auto [kind, text] = GENERATE(table<digest_kind, std::string>(
      {{digest_kind::crc32, "y/Q5Jg=="},
       {digest_kind::crc32c, "4waSgw=="},
       {digest_kind::crc64nvme, "rosUhgp5mIg="},
       {digest_kind::sha_256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="}}));
  const std::string_view body = "123456789";
  for (std::size_t first = 0; first <= body.size(); ++first) {
    for (std::size_t second = first; second <= body.size(); ++second) {
      body_checksum sum{{kind, text}};
      sum.add(bytes_of_text(body.substr(0, first)));
      sum.add(bytes_of_text(body.substr(first, second - first)));
      sum.add(bytes_of_text(body.substr(second)));
      CHECK(sum.difference() == std::nullopt);
    }
  }
  body_checksum other{{kind, text}};
  other.add(bytes_of_text("123456788"));
  const auto difference = other.difference();
  REQUIRE(difference);
  CHECK(difference->find(std::string{expected_digest::name_of(kind)}) != std::string::npos);
}

TEST_CASE("bytes are written in base64 with padding", "[remote]") {
  const std::uint8_t bytes[] = {'f', 'o', 'o', 'b', 'a', 'r'};
  const std::string expected[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (std::size_t size = 0; size <= 6; ++size) {
    CHECK(ps::detail::base64_of(std::span{bytes, size}) == expected[size]);
  }
}

TEST_CASE("the checksum of a body is the checksum in its answer", "[remote][fault:stores-8]") {
  const auto of_body = said_by({"HTTP/1.1 206 Partial", "Content-Range: bytes 5-9/100",
                                "Content-Digest: sha-512=:YWJj:, sha-256=:ZGVm:"});
  REQUIRE(of_body);
  CHECK(of_body->text == "ZGVm");
  CHECK(of_body->kind == digest_kind::sha_256);
  // The checksum of an object applies to a body that contains the complete object.
  CHECK(said_by({"HTTP/1.1 200 OK", "Repr-Digest: sha-256=:ZGVm:"})->text == "ZGVm");
  CHECK(
      said_by({"HTTP/1.1 206 P", "Content-Range: bytes 0-99/100", "x-amz-checksum-crc32: y/Q5Jg=="})
          ->text == "y/Q5Jg==");
  for (const char* const part : {"bytes 0-98/100", "bytes 1-99/100", "bytes 0-99/*"}) {
    CAPTURE(part);
    const std::string range = std::string{"Content-Range: "} + part;
    CHECK_FALSE(said_by({"HTTP/1.1 206 P", range.c_str(), "x-amz-checksum-crc32: y/Q5Jg=="}));
  }
  // The fastest checksum is used if there are several, regardless of their order.
  for (const bool is_first : {true, false}) {
    const char* const quick = "X-Amz-Checksum-CRC32C: 4waSgw==";
    const char* const slow = "x-amz-checksum-sha256: ZGVm";
    const auto said =
        said_by({"HTTP/1.1 200 OK", is_first ? quick : slow, is_first ? slow : quick});
    REQUIRE(said);
    CHECK(said->kind == digest_kind::crc32c);
  }
  CHECK(said_by({"HTTP/1.1 200 OK", "x-goog-hash: crc32c=4waSgw==,md5=abc"})->text == "4waSgw==");
  CHECK(
      said_by({"HTTP/1.1 200 OK", "x-goog-hash: md5=abc", "x-goog-hash: crc32c=4waSgw=="})->text ==
      "4waSgw==");
}

TEST_CASE("other headers are not taken for a checksum of the body", "[remote][fault:stores-8]") {
  for (const char* const line :
       // a checksum composed of the checksums of three upload parts.
       {"x-amz-checksum-sha256: ZGVm-3", "x-amz-checksum-type: COMPOSITE",
        "x-amz-checksum-sha1: ZGVm", "Content-MD5: ZGVm",
        "Content-Digest: sha-512=:ZGVm:", "Repr-Digest:", "x-goog-hash: md5=ZGVm"}) {
    CAPTURE(line);
    CHECK_FALSE(said_by({"HTTP/1.1 200 OK", line}));
  }
}
