// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as the index.json of MDS shards. The listed files must lie below the
// folder, and the columns must have valid names and sizes. Otherwise the index must be rejected
// with an error that points into it.
#include <penstock_ext/blob/mds/mds_index.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

void require_below(const std::string& name) {
  const std::string path = '/' + name + '/';
  fuzz::require(!name.empty() && path.find("//") == path.npos && path.find("/../") == path.npos &&
                    path.find("/./") == path.npos && path.find('\0') == path.npos,
                "a file lies below the folder");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const auto index = ps::detail::mds_index_reader{text, "fuzzed"}.read();
    fuzz::require(index.shards.empty() || !index.columns.empty(), "a shard has a column");
    for (const auto& shard : index.shards) {
      require_below(shard.name);
      if (!shard.zipped.empty()) require_below(shard.zipped);
      fuzz::require(shard.samples >> 32U == 0, "a shard has less than 2^32 samples");
    }
    for (const auto& column : index.columns) {
      const auto encoding = ps::detail::mds_encoding_of(column.encoding);
      fuzz::require(
          encoding.is == ps::detail::mds_encoding::kind::unknown || encoding.size == column.size,
          "a column has its encoding's size");
    }
  } catch (const ps::file_format_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the index");
  }
  return 0;
}
