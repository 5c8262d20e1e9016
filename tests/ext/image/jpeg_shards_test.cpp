// SPDX-License-Identifier: BSL-1.0
// Tests that JPEG files in tar shards give the same samples as the same files in memory.
#include <penstock_ext/blob/tar/tar_shards.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "data/read_batch.hpp"
#include "ext/blob/archives.hpp"
#include "ext/image/blobs.hpp"
#include "ext/image/jpeg_images.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

TEST_CASE("JPEG files in tar shards are decoded as those in memory", "[image]") {
  const test::temp_dir dir;
  test::blobs blobs;
  for (std::size_t shard = 0; shard < 2; ++shard) {
    test::archive made;
    for (std::size_t i = 0; i < 4; ++i) {
      blobs.all.push_back(test::some_jpeg(60 + 9 * i, 50, {}, 4 * shard + i));
      const auto& bytes = blobs.all.back();
      const std::string key = "n/" + std::to_string(4 * shard + i);
      made.add(key + ".jpg", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      made.add(key + ".cls", std::to_string(1000 + 4 * shard + i));
    }
    std::ofstream file{dir.path(std::to_string(shard) + ".tar"), std::ios::binary};
    file << made.ended();
    REQUIRE(file.flush());
  }
  const ps::tar_shards shards{dir.path("{0..1}.tar")};
  const std::vector<std::uint64_t> indices{3, 0, 7, 4, 1, 2, 6, 5};
  const ps::random_key key{.seed = 3};
  const auto bytes_of = [&](const auto& source) {
    auto batch = test::read_batch(source | ps::decode_images<ps::jpeg_decoder>(test::some_crop{}),
                                  indices, key);
    const auto pixels = batch.template get<"image">().flat();
    const auto labels = batch.template get<"label">().flat();
    std::vector<std::int64_t> all{labels.begin(), labels.end()};
    all.insert(all.end(), pixels.begin(), pixels.end());
    return all;
  };
  CHECK(bytes_of(shards) == bytes_of(blobs));
}
