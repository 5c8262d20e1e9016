// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/zstd/zstd.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <penstock_ext/files/idx_dataset.hpp>

#include "ext/files/packed_bytes.hpp"
#include "ext/files/zstd_packed.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

test::file_bytes zstd_packed(const test::file_bytes& bytes, int level = 1) {
  const std::string packed =
      test::zstd_packed({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, level);
  return {packed.begin(), packed.end()};
}

test::file_bytes zstd_unpacked(const test::file_bytes& file) {
  return test::unpacked_by(ps::zstd{}, "x.zst", file);
}

template <class E>
E zstd_error(const test::file_bytes& file) {
  return test::error_of<E>([&] { (void)zstd_unpacked(file); });
}

}  // namespace

TEST_CASE("a zstd file is unpacked", "[files]") {
  CHECK(zstd_unpacked(zstd_packed({})).empty());
  for (const int level : {0, 1, 3, 22}) {
    CHECK(zstd_unpacked(zstd_packed({1, 2, 3}, level)) == test::file_bytes{1, 2, 3});
  }
  const test::file_bytes content = test::noise(700'000);
  CHECK((zstd_unpacked(zstd_packed(content)) == content));
  const test::file_bytes zeros(3'000'000);
  CHECK((zstd_unpacked(zstd_packed(zeros)) == zeros));
}

TEST_CASE("the frames of a zstd file are concatenated, and skippable frames are skipped",
          "[files]") {
  const test::file_bytes skipped{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
  const test::file_bytes none = zstd_packed({});
  CHECK(zstd_unpacked(test::joined(zstd_packed({1, 2}), zstd_packed({3}))) ==
        test::file_bytes{1, 2, 3});
  CHECK(zstd_unpacked(test::joined(none, zstd_packed({3}))) == test::file_bytes{3});
  CHECK(zstd_unpacked(test::joined(skipped, zstd_packed({3}))) == test::file_bytes{3});
  CHECK(zstd_unpacked(test::joined(zstd_packed({3}), skipped)) == test::file_bytes{3});
  // Makes the second frame begin at the last byte of an input buffer, at the boundary, and at the
  // first byte of the next buffer.
  for (const std::size_t border : {(std::size_t{1} << 18U) - 1, std::size_t{1} << 18U}) {
    test::file_bytes filler(border - 8, 'x');
    const auto size = static_cast<std::uint32_t>(filler.size());
    for (unsigned i = 4; i-- > 0;) {
      filler.insert(filler.begin(), static_cast<std::uint8_t>(size >> 8U * i));
    }
    filler = test::joined({0x50, 0x2a, 0x4d, 0x18}, filler);
    REQUIRE(filler.size() == border);
    CHECK(zstd_unpacked(test::joined(filler, zstd_packed({7}))) == test::file_bytes{7});
  }
}

TEST_CASE("a zstd file that ends too early is rejected wherever it ends",
          "[files][fault:files-3]") {
  test::check_every_beginning(zstd_packed({1, 2, 3, 4, 5}), zstd_error<ps::file_truncated>);
}

TEST_CASE("a flipped bit of a zstd file is detected or harmless", "[files][fault:files-3]") {
  test::file_bytes content = test::noise(300);
  for (auto& byte : content) byte &= 0x3U;
  const test::file_bytes whole = zstd_packed(content);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    CAPTURE(i);
    test::file_bytes file = whole;
    file[i] ^= 0x10U;
    try {
      const test::file_bytes found = zstd_unpacked(file);
      CHECK(found == content);
    } catch (const ps::file_error& problem) {
      CHECK(problem.offset() <= file.size());
    }
  }
  test::file_bytes file = whole;
  file.back() ^= 1U;  // flips a bit of the checksum
  CHECK(test::has(zstd_error<ps::file_corrupt>(file).found(), "checksum"));
}

TEST_CASE("a file that is not zstd or has a too large window is rejected",
          "[files][fault:files-3]") {
  CHECK(zstd_error<ps::file_format_error>({0, 0, 8, 1}).offset() == 0);
  CHECK(zstd_error<ps::file_format_error>({0x28, 0xb5, 0x2f, 0xfe}).found() ==
        "0x28 0xb5 0x2f 0xfe: open a plain file without penstock::zstd");
  zstd_error<ps::file_truncated>({});
  const test::file_bytes whole = zstd_packed({1, 2, 3});
  CHECK(zstd_error<ps::file_corrupt>(test::joined(whole, {0, 0, 0})).offset() == whole.size());
  CHECK(zstd_error<ps::file_corrupt>(test::joined(whole, {0x20})).found() == "0x20");
  // A frame header without the single-segment flag and with a window of 2^31 bytes.
  const auto window = zstd_error<ps::file_format_error>({0x28, 0xb5, 0x2f, 0xfd, 0, 0xa8, 1, 0, 0});
  CHECK(window.expected() == "a window of at most 128 MiB");
  CHECK_THROWS_AS(test::content_by(ps::zstd{}, "/no/such/file.zst"), ps::file_unreadable);
}

TEST_CASE("a zstd file is not unpacked beyond the given size", "[files][fault:files-3]") {
  const test::temp_dir dir;
  const std::string path = dir.write("zeros.zst", zstd_packed(test::file_bytes(1'000'000)));
  CHECK(test::content_by(ps::zstd{}, path, 1'000'000).size() == 1'000'000);
  CHECK_THROWS_AS(test::content_by(ps::zstd{}, path, 999'999), ps::file_format_error);
}

TEST_CASE("an IDX dataset opens zstd files", "[files]") {
  using one_byte = ps::record<ps::field<"y", std::uint8_t>>;
  const test::temp_dir dir;
  const std::string path = dir.write("y.zst", zstd_packed(test::idx_bytes(0x08, {2}, {5, 6})));
  const ps::idx_dataset<one_byte> data{ps::zstd{}, path};
  CHECK(data.size() == 2);
  CHECK(ps::get<"y">(data.view(1)) == 6);
}
