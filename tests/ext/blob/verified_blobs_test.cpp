// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/verified_blobs.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock_ext/blob/image_folder.hpp>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

struct summed_photos : test::folder {
  summed_photos() {
    add("cat/a photo.jpg", "one picture");
    add("dog/2.jpg", "another");
    add("dog/3.jpg", "");
    ps::write_checksums(ps::image_folder{path()}, sums);
  }
  const std::string sums = beside("sums");
};

}  // namespace

TEST_CASE("a blob with any flipped bit is rejected by its sum", "[blob][fault:files-26]") {
  const summed_photos dir;
  // The CRC-32C check value for "123456789", with the generator polynomial of RFC 3720.
  CHECK(ps::detail::crc32c_of(std::as_bytes(std::span{"123456789", 9})) == 0xe3069283U);
  const ps::verified_blobs checked{ps::image_folder{dir.path()}, dir.sums};
  CHECK(test::keys_of(checked) ==
        std::vector<std::string>{"cat/a photo.jpg", "dog/2.jpg", "dog/3.jpg"});
  CHECK(test::labels_of(checked) == std::vector<std::int64_t>{0, 1, 1});
  for (std::uint64_t i = 0; i < 3; ++i) checked.prefetch(i);
  CHECK(test::content_of(checked, 0) == "one picture");
  CHECK(test::content_of(checked, 2).empty());
  for (std::size_t bit = 0; bit < 8 * 7; ++bit) {
    std::string damaged = "another";
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    dir.add("dog/2.jpg", damaged);
    CHECK(error_of<ps::file_corrupt>([&] { (void)test::content_of(checked, 1); }).path() ==
          "dog/2.jpg");
  }
  dir.add("dog/3.jpg", "more");
  const auto problem = error_of<ps::file_corrupt>([&] { (void)test::content_of(checked, 2); });
  CHECK(problem.expected() == "CRC-32C 00000000, as in " + dir.sums);
  CHECK(test::has(problem.found(), " of 4 bytes: restore it, or call write_checksums"));
  ps::blob_buffer buffer;
  CHECK_THROWS_AS(checked.bytes(3, buffer), ps::index_error);
}

TEST_CASE("a checksum list that is invalid or lacks a blob is rejected", "[blob][fault:files-26]") {
  const summed_photos dir;
  const auto rejected = [&](const std::string& list) {
    test::folder::write(dir.sums, list);
    return error_of<ps::file_format_error>(
        [&] { ps::verified_blobs{ps::image_folder{dir.path()}, dir.sums}; });
  };
  const std::string right = test::folder::read(dir.sums);
  CHECK(test::has(rejected(right.substr(right.find('\n') + 1)).expected(), "'cat/a photo.jpg'"));
  CHECK(test::has(rejected(right + "00000001  dog/3.jpg\n").found(), "00000000 and 00000001"));
  for (const char* const line :
       {"0000000  dog/3.jpg", "000000001  dog/3.jpg", "0000000x  dog/3.jpg", "00000000 *dog/3.jpg",
        "00000000  ", "-0000000  dog/3.jpg", ""}) {
    CAPTURE(line);
    CHECK(rejected(right + line + "\n" + right).offset() == right.size());
  }
  CHECK_THROWS_AS((ps::verified_blobs{ps::image_folder{dir.path()}, dir.path("none")}),
                  ps::file_unreadable);
  CHECK_THROWS_AS(ps::write_checksums(ps::image_folder{dir.path()}, dir.path("none/sums")),
                  ps::file_unwritable);
}

TEST_CASE("a source with sums forwards hints and plans to the source below", "[blob]") {
  struct hinted {
    std::vector<std::uint64_t>* seen;

    [[nodiscard]] std::uint64_t size() const { return 1; }
    std::span<const std::byte> bytes(std::uint64_t, ps::blob_buffer&) const { return {}; }
    [[nodiscard]] std::int64_t label(std::uint64_t) const { return 4; }
    [[nodiscard]] std::string key(std::uint64_t) const { return "dog/3.jpg"; }
    void prefetch(std::uint64_t index) const noexcept { seen->push_back(index); }
    void prefetch(std::span<const std::uint64_t> some) const noexcept { seen->push_back(some[0]); }
    void access_plan(std::span<const std::uint64_t> some) const { seen->push_back(some[0]); }
    [[nodiscard]] std::uint64_t plan_capacity() const { return 5; }
    [[nodiscard]] std::uint64_t prefetch_capacity() const { return 6; }
    [[nodiscard]] std::uint64_t storage_size(std::uint64_t) const { return 7; }
    [[nodiscard]] std::vector<std::string> warnings() const { return {"a warning"}; }
  };
  const summed_photos dir;
  std::vector<std::uint64_t> seen;
  const hinted source{&seen};
  const ps::verified_blobs checked{source, dir.sums};
  checked.prefetch(1);
  checked.prefetch(std::vector<std::uint64_t>{2});
  ps::access_plan(checked, std::vector<std::uint64_t>{3});
  CHECK(seen == std::vector<std::uint64_t>{1, 2, 3});
  CHECK(checked.label(0) == 4);
  CHECK(ps::plan_capacity_of(checked) == 5);
  CHECK(checked.prefetch_capacity() == 6);
  CHECK(checked.storage_size(0) == 7);
  CHECK(ps::warnings_of(checked) == std::vector<std::string>{"a warning"});
  using plain = ps::verified_blobs<ps::image_folder>;
  STATIC_REQUIRE(ps::detail::prefetches<plain>);
  STATIC_REQUIRE_FALSE(ps::detail::has_prefetch_capacity<plain>);
}
