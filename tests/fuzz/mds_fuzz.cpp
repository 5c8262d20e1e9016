// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as an MDS shard. The samples must lie within the shard in order, and their
// columns must fill each sample. Otherwise the shard must be rejected with an error that points
// into it.
#include <penstock_ext/blob/mds/mds_index.hpp>
#include <penstock_ext/blob/mds/mds_shards.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ext/blob/archives.hpp"
#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

const std::vector<ps::mds_column> columns{
    {"a", "bytes", 0}, {"b", "uint16", 2}, {"c", "str_int", 0}};

void read_sample(const std::string& bytes, std::uint64_t begin, std::uint64_t size) {
  const std::size_t head = static_cast<std::size_t>(ps::detail::mds_head_bytes(columns));
  if (size < head) return;
  const auto sample = std::as_bytes(std::span{bytes})
                          .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
  std::uint64_t end = head;
  for (std::size_t which = 0; which < columns.size(); ++which) {
    const auto place =
        ps::detail::mds_value(columns, which, sample.first(head), size, begin, "fuzzed");
    fuzz::require(place.begin == end && place.size <= size - end, "a value lies after another");
    end += place.size;
    const auto value =
        sample.subspan(static_cast<std::size_t>(place.begin), static_cast<std::size_t>(place.size));
    const auto number =
        ps::detail::mds_number(ps::detail::mds_encoding_of(columns[which].encoding), value);
    fuzz::require(which == 0 ? !number : which == 2 || (*number >= 0 && *number < 65'536),
                  "a number has the range of its encoding");
  }
  fuzz::require(end == size, "the columns fill the sample");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes{reinterpret_cast<const char*>(data), size};
  const test::archive_in_memory file{bytes};
  std::uint64_t samples = 0;
  for (std::size_t i = 0; i < 4 && i < size; ++i) samples |= std::uint64_t{data[i]} << 8U * i;
  try {
    const auto offsets = ps::detail::mds_offsets(file, samples);
    fuzz::require(offsets.size() == samples + 1 && offsets.back() == size, "offsets go to the end");
    for (std::size_t i = 0; i < samples; ++i) {
      fuzz::require(offsets[i] <= offsets[i + 1], "offsets are in order");
      try {
        read_sample(bytes, offsets[i], offsets[i + 1] - offsets[i]);
      } catch (const ps::file_corrupt& error) {
        fuzz::require(error.offset() == offsets[i], "an error points to its sample");
      }
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the shard");
  }
  return 0;
}
