// SPDX-License-Identifier: BSL-1.0
// What s3_moto.py compares: hidden, because it needs the server that the script starts.
#include <penstock/store/s3_store.hpp>

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <penstock/store/detail/s3/sha256.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("a bucket is read for a comparison with moto", "[.][moto]") {
  const char* const path = std::getenv("PENSTOCK_S3_LISTING");
  REQUIRE(path != nullptr);
  const ps::s3_store store{"photos"};
  std::ofstream listing{path};
  for (const ps::s3_object& object : store.list("train/")) {
    REQUIRE(store.size_of(object.key) == object.size);
    std::string content(object.size, '\0');
    const auto room = std::as_writable_bytes(std::span{content});
    // In pieces, the last one first.
    std::vector<ps::byte_range> ranges;
    for (std::size_t end = room.size(); end > 0;) {
      const std::size_t begin = end > 70'000 ? end - 70'000 : 0;
      ranges.push_back({object.key, begin, room.subspan(begin, end - begin)});
      end = begin;
    }
    store.read_many(ranges);
    listing << object.key << '\n'
            << ps::detail::hex_of(ps::detail::sha256{}.add(content).sum()) << '\n';
  }
  CHECK_THROWS_AS(store.size_of("train/missing"), ps::object_missing);
  CHECK_THROWS_AS(ps::s3_store{"no-such-bucket"}.list(), ps::object_missing);
  const ps::s3_store wrong{
      "photos", {.credentials = ps::s3_credentials{std::getenv("AWS_ACCESS_KEY_ID"), "wrong"}}};
  CHECK_THROWS_AS(wrong.size_of("train/a"), ps::access_denied);
  CHECK_THROWS_AS(wrong.list(), ps::access_denied);
}
