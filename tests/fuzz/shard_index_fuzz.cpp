// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as the index file of a fixed archive. The entries must lie within the
// archive, or the index must be rejected.
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "ext/blob/archives.hpp"
#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

const ps::detail::shard_selection wanted{{"jpg"}, "cls", true};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string bytes = test::archive{}
                                       .add("a/1.jpg", "picture")
                                       .add("a/1.cls", "3")
                                       .add("a/2.jpg", std::string(513, 'x'))
                                       .add("READ", "me")
                                       .ended();
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const test::archive_in_memory archive{bytes};
  ps::detail::shard_index_words words{text, bytes.size()};
  std::uint64_t end = 0;
  while (words.next()) {
    const auto& file = words.file();
    fuzz::require(file.begin % 512 == 0 && file.begin >= end + 512 && file.size <= bytes.size() &&
                      file.begin <= bytes.size() - file.size,
                  "a file lies in the archive, after the one before");
    end = file.begin + file.size;
  }
  try {
    ps::detail::shard_listing listing{"fuzzed", wanted};
    const std::string problem = ps::detail::list_by_index(archive, text, listing);
    if (!problem.empty()) return 0;
    fuzz::require(listing.samples().size() <= listing.lines(), "a line is a sample at most");
    for (const auto& sample : listing.samples()) {
      if (sample.extension == ps::detail::shard_sample::skipped) continue;
      const std::uint64_t begin = std::uint64_t{sample.blob_block} * 512;
      fuzz::require(begin >= 512 && begin + sample.blob_size <= bytes.size(),
                    "a blob lies in the archive");
      fuzz::require(sample.label_block != sample.blob_block, "blob and label are two files");
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= bytes.size(), "an error points into the archive");
  }
  return 0;
}
