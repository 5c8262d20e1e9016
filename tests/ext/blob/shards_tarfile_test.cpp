// SPDX-License-Identifier: BSL-1.0
// Writes the data that shards_tarfile.py compares. The test is hidden, because it needs the
// archives that the script writes.
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("a shard is listed for a comparison with Python's tarfile", "[.][tarfile]") {
  const char* const variable = std::getenv("PENSTOCK_SHARD");
  REQUIRE(variable != nullptr);
  const std::string path = variable;
  const ps::tar_shards shards{
      path, {.blob = {"jpg"}, .skip_incomplete = true, .index = ps::shard_index::keep}};
  REQUIRE(shards.index_problems().empty());
  std::ofstream list{path.substr(0, path.rfind('.')) + ".list"};
  list << (shards.listed_from_index() == 1 ? "index" : "headers") << '\n';
  ps::blob_buffer buffer;
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    const auto bytes = shards.bytes(i, buffer);
    std::uint64_t sum = 0;
    for (const std::byte byte : bytes) sum += std::to_integer<std::uint64_t>(byte);
    list << shards.key(i).substr(path.size() + 1) << ' ' << bytes.size() << ' ' << sum << ' '
         << shards.label(i) << '\n';
  }
}
