// SPDX-License-Identifier: BSL-1.0
// MDS shards compressed by libzstd; the hidden test is for mds_streaming.py.
#include <penstock_ext/files/zstd/zstd.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <penstock_ext/blob/mds/mds_shards.hpp>
#include <penstock_ext/blob/mds/mds_writer.hpp>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("MDS shards that libzstd compressed are read as they were written",
          "[blob][promise:exact-14]") {
  for (const int level : {0, 3, 19}) {
    const test::folder dir;
    ps::mds_writer out{dir.path(),
                       {{"text", "str"}},
                       {.shard_bytes = 2000, .compression = ps::zstd{level}, .hashes = {"xxh64"}}};
    const auto text_at = [](std::size_t i) {
      return std::string(i * 31 % 400, static_cast<char>('a' + i % 26));
    };
    for (std::size_t i = 0; i < 50; ++i) {
      const std::string text = text_at(i);
      out.add({std::as_bytes(std::span{text})});
    }
    out.finish();
    CHECK(std::filesystem::file_size(dir.path("shard.00000.mds.zstd")) < 1000);
    const ps::mds_shards texts{
        dir.path(),
        {.compression = ps::zstd{}, .unpacked = dir.beside("unpacked"), .verify = true}};
    REQUIRE(texts.size() == 50);
    for (std::size_t i = 0; i < 50; ++i) CHECK(test::content_of(texts, i) == text_at(i));
  }
}

TEST_CASE("compressed MDS shards are written anew for a comparison with Mosaic's",
          "[.][streaming_zstd]") {
  const char* const variable = std::getenv("PENSTOCK_MDS");
  REQUIRE(variable != nullptr);
  const std::string folder = variable;
  const ps::mds_shards shards{folder,
                              {.blob = "text",
                               .compression = ps::zstd{},
                               .unpacked = folder + "-unpacked",
                               .verify = true}};
  const std::vector<ps::mds_column> columns{shards.columns().begin(), shards.columns().end()};
  ps::mds_writer out{
      folder + "-again",
      columns,
      {.shard_bytes = 10'000, .compression = ps::zstd{7}, .hashes = {"sha256", "sha1", "xxh64"}}};
  std::vector<ps::blob_buffer> buffers(columns.size());
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    std::vector<std::span<const std::byte>> values;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      values.push_back(shards.column(i, columns[c].name, buffers[c]));
    }
    out.add(values);
  }
  out.finish();
}
