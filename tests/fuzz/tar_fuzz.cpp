// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as a tar archive. All members must lie within the archive in order, or the
// archive must be rejected with an error that points into it. The index of its samples must list
// the same samples again.
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

const ps::detail::shard_selection any_jpg{{"jpg", "x"}, "", true};

class archive {
 public:
  explicit archive(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const {
    if (offset >= bytes_.size()) return 0;
    const std::string_view piece = bytes_.substr(static_cast<std::size_t>(offset), out.size());
    std::memcpy(out.data(), piece.data(), piece.size());
    return piece.size();
  }
  std::uint64_t size() const { return bytes_.size(); }
  const std::string& path() const { return path_; }

 private:
  std::string_view bytes_;
  std::string path_ = "fuzzed";
};

// Writes valid checksums into blocks that look like headers, so that mutated headers are parsed.
void seal(std::string& bytes) {
  for (std::size_t block = 0; block + 512 <= bytes.size(); block += 512) {
    char* const header = bytes.data() + block;
    if (std::memcmp(header + 257, "ustar", 5) != 0) continue;
    std::memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
    std::snprintf(header + 148, 8, "%06o", sum);
  }
}

void walk(const archive& bytes) {
  ps::detail::tar_walk members{bytes};
  std::uint64_t end = 0;
  while (members.next()) {
    const ps::detail::tar_member& one = members.member();
    fuzz::require(one.begin % 512 == 0 && one.begin >= end + 512, "members lie in order");
    fuzz::require(one.size <= bytes.size() && one.begin <= bytes.size() - one.size,
                  "a member lies in the archive");
    fuzz::require(one.name.find('\0') == std::string_view::npos, "a name has no NUL");
    end = one.begin + one.size;
  }
}

void list(const archive& bytes, std::string_view text) {
  ps::detail::shard_listing listing{"fuzzed", any_jpg};
  ps::detail::shard_index_text index;
  ps::detail::list_by_headers(bytes, listing, &index);
  for (const auto& sample : listing.samples()) {
    fuzz::require(std::uint64_t{sample.blob_block} * 512 + sample.blob_size <= bytes.size(),
                  "a blob lies in the archive");
    fuzz::require(sample.key_begin < listing.keys().size(), "a key is there");
  }
  // A global header applies to all later members, so reading from the middle of the archive misses
  // it.
  if (!index.problem().empty() || text.find("size=") != text.npos) return;
  ps::detail::shard_listing again{"fuzzed", any_jpg};
  const std::string problem = ps::detail::list_by_index(bytes, index.text(listing.lines()), again);
  if (!problem.empty()) std::fprintf(stderr, "%s\n", problem.c_str());
  fuzz::require(problem.empty(), "an index is right");
  fuzz::require(
      again.keys() == listing.keys() && again.samples().size() == listing.samples().size(),
      "an index lists the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text{reinterpret_cast<const char*>(data), size};
  if (size % 2 == 0) seal(text);
  const archive bytes{text};
  try {
    walk(bytes);
    list(bytes, text);
  } catch (const ps::shard_sample_error& error) {
    fuzz::require(error.offset() < size, "an error points to a file");
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the archive");
  }
  return 0;
}
