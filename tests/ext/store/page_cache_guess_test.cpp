// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/cache/detail/block_disk.hpp>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

using guess = penstock::detail::page_cache_guess;

// Reads `files` cached files. Returns the number of files for which the heuristic checks the cache.
int looks_of(guess& of, int files) {
  int looks = 0;
  for (int i = 0; i < files; ++i) {
    if (!of.is_due()) continue;
    ++looks;
    of.saw(true);
  }
  return looks;
}

}  // namespace

TEST_CASE("files are checked seldom after 32 consecutive cached files", "[store]") {
  guess one;
  CHECK(looks_of(one, 32) == 32);
  CHECK(looks_of(one, 1600) == 100);
  CHECK(looks_of(one, 15) + looks_of(one, 1) == 1);
}

TEST_CASE("after an uncached file each file is checked again", "[store]") {
  guess one;
  CHECK(looks_of(one, 31) == 31);
  CHECK(one.is_due());
  one.saw(false);
  CHECK(looks_of(one, 32) == 32);
  while (!one.is_due()) {
  }
  one.saw(false);
  for (int i = 0; i < 100; ++i) {
    CHECK(one.is_due());
    one.saw(false);
  }
}

TEST_CASE("a block in the page cache is not requested again", "[store]") {
  using penstock::detail::block_folder;
  const test::temp_dir dir;
  const block_folder folder{dir.path("blocks")};
  const std::vector<std::byte> bytes(5000, std::byte{7});
  const penstock::detail::block_id id{
      .store = "s", .object = "o", .object_size = bytes.size(), .block_size = bytes.size()};
  CHECK(folder.warm(1, id, 0, bytes.size()) == block_folder::nearness::nothing);
  REQUIRE(folder.write(1, id, bytes) == 0);
  // The file is in the page cache, because it was just written.
  const auto seen = folder.warm(1, id, 0, bytes.size());
  // Not all file systems support RWF_NOWAIT, so the test probes for it.
  const int file = ::open(dir.path("probe").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(file >= 0);
  std::byte one{};
  const ::iovec probe{&one, 1};
  REQUIRE(::write(file, &one, 1) == 1);
  const bool tells = ::preadv2(file, &probe, 1, 0, RWF_NOWAIT) == 1;
  ::close(file);
  CHECK(seen == (tells ? block_folder::nearness::in_memory : block_folder::nearness::requested));
}
