// SPDX-License-Identifier: BSL-1.0
// What mds_streaming.py compares: hidden, because it needs the shards that the script writes.
#include <penstock_ext/blob/mds/mds_shards.hpp>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <penstock_ext/blob/mds/mds_writer.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("MDS shards are listed and written anew for a comparison with Mosaic's",
          "[.][streaming]") {
  const char* const variable = std::getenv("PENSTOCK_MDS");
  REQUIRE(variable != nullptr);
  const std::string folder = variable;
  const ps::mds_shards shards{folder, {.blob = "text", .label = "int", .verify = true}};
  std::ofstream list{folder + ".list"};
  std::vector<ps::mds_column> reversed{shards.columns().rbegin(), shards.columns().rend()};
  ps::mds_writer out{
      folder + "-again", reversed, {.shard_bytes = 10'000, .hashes = {"sha1", "xxh64"}}};
  std::vector<ps::blob_buffer> buffers(reversed.size());
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    std::vector<std::span<const std::byte>> values;
    for (std::size_t c = 0; c < reversed.size(); ++c) {
      values.push_back(shards.column(i, reversed[c].name, buffers[c]));
    }
    out.add(values);
    ps::blob_buffer buffer;
    list << i << ' ' << shards.bytes(i, buffer).size() << ' ' << shards.label(i) << '\n';
  }
  out.finish();
}
