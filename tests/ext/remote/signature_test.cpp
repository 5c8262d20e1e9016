// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/http/detail/s3/signature.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <penstock_ext/files/crypto/digest.hpp>
#include <penstock_ext/files/support/checksums.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::digest;
using ps::detail::hex_digits;

namespace {

std::string sum_text(std::string_view text) {
  return hex_digits(digest::sha256().add(text).bytes());
}

std::string signature_in(const std::string& value) { return value.substr(value.rfind('=') + 1); }

}  // namespace

TEST_CASE("SHA-256 matches the published hashes", "[remote][promise:honest-11]") {
  CHECK(sum_text("") == ps::detail::sha256_of_nothing);
  CHECK(sum_text("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sum_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  digest million = digest::sha256();
  for (int i = 0; i < 1000; ++i) million.add(std::string(1000, 'a'));
  CHECK(hex_digits(million.bytes()) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // Hashes texts with lengths around the block size, each split at several places.
  for (std::size_t size = 50; size < 140; ++size) {
    const std::string text(size, 'x');
    for (std::size_t cut = 0; cut <= size; cut += 7) {
      CHECK(hex_digits(digest::sha256().add(text.substr(0, cut)).add(text.substr(cut)).bytes()) ==
            sum_text(text));
    }
  }
}

TEST_CASE("HMAC with SHA-256 matches the values of RFC 4231", "[remote][promise:honest-11]") {
  const auto hmac = [](const std::string& key, const std::string& text) {
    return hex_digits(ps::detail::hmac_sha256(key, text));
  };
  CHECK(hmac(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("signatures are those that Amazon publishes", "[remote][promise:honest-11]") {
  const std::string nothing{ps::detail::sha256_of_nothing};
  const ps::s3_credentials who{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
  const std::string time = "20130524T000000Z";
  std::vector<ps::detail::signed_line> lines{{"host", "examplebucket.s3.amazonaws.com"},
                                             {"range", "bytes=0-9"},
                                             {"x-amz-content-sha256", nothing},
                                             {"x-amz-date", time}};
  CHECK(ps::detail::authorization(who, "us-east-1", "s3", time,
                                  {"GET", "/test.txt", "", lines, nothing}) ==
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  lines.erase(lines.begin() + 1);
  CHECK(signature_in(ps::detail::authorization(who, "us-east-1", "s3", time,
                                               {"GET", "/", "lifecycle=", lines, nothing})) ==
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  CHECK(signature_in(ps::detail::authorization(
            who, "us-east-1", "s3", time, {"GET", "/", "max-keys=2&prefix=J", lines, nothing})) ==
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");

  // An example from the AWS test suite that is common to all services.
  const ps::s3_credentials suite{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
  const std::string day = "20150830T123600Z";
  const std::vector<ps::detail::signed_line> two{{"host", "example.amazonaws.com"},
                                                 {"x-amz-date", day}};
  CHECK(signature_in(ps::detail::authorization(suite, "us-east-1", "service", day,
                                               {"GET", "/", "", two, nothing})) ==
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  CHECK(signature_in(
            ps::detail::authorization(suite, "us-east-1", "service", day,
                                      {"GET", "/", "Param1=value1&Param2=value2", two, nothing})) ==
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

TEST_CASE("a moment is signed in UTC", "[remote][promise:honest-11]") {
  CHECK(ps::detail::signing_time(1369353600) == "20130524T000000Z");
  CHECK(ps::detail::signing_time(0) == "19700101T000000Z");
}
