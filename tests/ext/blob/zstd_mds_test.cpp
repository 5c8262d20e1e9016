// SPDX-License-Identifier: BSL-1.0
// Tests MDS shards that libzstd has compressed. mds_streaming.py uses the hidden test.
#include <penstock_ext/files/zstd/zstd.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <penstock_ext/blob/mds/mds_shards.hpp>

#include "ext/blob/folders.hpp"
#include "ext/blob/mds_files.hpp"
#include "ext/files/zstd_packed.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("MDS shards that libzstd compressed are read as they were written",
          "[blob][promise:exact-14]") {
  std::vector<std::string> texts;
  std::vector<std::string> samples;
  for (std::size_t i = 0; i < 50; ++i) {
    texts.emplace_back(i * 31 % 400, static_cast<char>('a' + i % 26));
    samples.push_back(test::mds_sample(texts.back(), 0));
  }
  for (const int level : {0, 3, 19}) {
    const test::folder dir;
    test::write_mds(
        dir, samples,
        {.per_shard = 10,
         .hashes = {"xxh64"},
         .compression = "zstd:" + std::to_string(level),
         .packed = [&](const std::string& bytes) { return test::zstd_packed(bytes, level); }});
    CHECK(std::filesystem::file_size(dir.path("shard.00000.mds.zstd")) < 1000);
    const ps::mds_shards shards{
        dir.path(),
        {.compression = ps::zstd{}, .unpacked = dir.beside("unpacked"), .verify = true}};
    REQUIRE(shards.size() == 50);
    for (std::size_t i = 0; i < 50; ++i) CHECK(test::content_of(shards, i) == texts[i]);
  }
}

TEST_CASE("compressed MDS shards are listed for a comparison with Mosaic's",
          "[.][streaming_zstd]") {
  test::list_mds(ps::zstd{});
}
