// SPDX-License-Identifier: BSL-1.0
#include <zlib.h>

#include <penstock_ext/files/gzip/gzip.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock_ext/files/idx_dataset.hpp>

#include "ext/files/packed_bytes.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

test::file_bytes packed(const test::file_bytes& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  test::file_bytes out(deflateBound(&stream, static_cast<uLong>(bytes.size())));
  test::file_bytes in = bytes;
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("deflate");
  return out;
}

test::file_bytes unpacked(const test::file_bytes& file) {
  return test::unpacked_by(ps::gzip, "x.gz", file);
}

template <class E>
E error_in(const test::file_bytes& file) {
  return test::error_of<E>([&] { (void)unpacked(file); });
}

}  // namespace

TEST_CASE("a gzip file is unpacked", "[files]") {
  CHECK(unpacked(packed({})).empty());
  CHECK(unpacked(packed({1, 2, 3})) == test::file_bytes{1, 2, 3});
  const test::file_bytes content = test::noise(1'500'000);
  CHECK((unpacked(packed(content)) == content));
}

TEST_CASE("the members of a gzip file are one content", "[files]") {
  CHECK(unpacked(test::joined(packed({1, 2}), packed({3}))) == test::file_bytes{1, 2, 3});
  CHECK(unpacked(test::joined(packed({}), packed({3}))) == test::file_bytes{3});
  // Makes the second member begin at the last byte of an input buffer, or at the first byte of the
  // next buffer.
  const test::file_bytes member = packed(test::noise(100'000));
  for (const std::size_t border : {(std::size_t{1} << 18U) - 1, std::size_t{1} << 18U}) {
    test::file_bytes file = member;
    while (file.size() + member.size() + 200 < border) file = test::joined(file, member);
    // A comment in the header, which consists of flag 16 and a zero-terminated text, fills the
    // space up to the boundary.
    test::file_bytes filler = packed({});
    filler[3] = 16;
    filler.insert(filler.begin() + 10, border - file.size() - filler.size(), 'x');
    filler[10 + border - file.size() - packed({}).size() - 1] = 0;
    file = test::joined(file, filler);
    REQUIRE(file.size() == border);
    file = test::joined(file, packed({7}));
    CHECK(unpacked(file).back() == 7);
  }
}

TEST_CASE("a gzip file that ends too early is rejected wherever it ends",
          "[files][fault:files-3]") {
  test::check_every_beginning(packed({1, 2, 3, 4, 5}), error_in<ps::file_truncated>);
}

TEST_CASE("a gzip file with a wrong checksum or length is rejected", "[files][fault:files-3]") {
  test::file_bytes file = packed({1, 2, 3, 4, 5});
  SECTION("checksum") {
    file[file.size() - 8] ^= 1U;
    CHECK(error_in<ps::file_corrupt>(file).found() == "incorrect data check");
  }
  SECTION("length") {
    file[file.size() - 4] ^= 1U;
    CHECK(error_in<ps::file_corrupt>(file).found() == "incorrect length check");
  }
}

TEST_CASE("a flipped bit of a gzip file is detected or harmless", "[files][fault:files-3]") {
  test::file_bytes content = test::noise(300);
  for (auto& byte : content) byte &= 0x3U;
  const test::file_bytes whole = packed(content);
  std::size_t harmless = 0;
  // Skips the header, because its flags and timestamp do not affect the content.
  for (std::size_t i = 10; i < whole.size(); ++i) {
    CAPTURE(i);
    test::file_bytes file = whole;
    file[i] ^= 0x10U;
    try {
      const test::file_bytes found = unpacked(file);
      CHECK(found == content);
      ++harmless;
    } catch (const ps::file_error&) {
    }
  }
  // Only the padding bits of the last byte before the checksum may change without effect.
  CHECK(harmless <= 1);
}

TEST_CASE("bytes after a gzip file's last member are rejected", "[files][fault:files-3]") {
  const test::file_bytes whole = packed({1, 2, 3});
  const auto problem = error_in<ps::file_corrupt>(test::joined(whole, {0, 0, 0}));
  CHECK(problem.offset() == whole.size());
  CHECK(error_in<ps::file_corrupt>(test::joined(whole, {0x1f, 0x00})).found() == "0x1f 0x00");
  CHECK(error_in<ps::file_corrupt>(test::joined(whole, {0x20})).found() == "0x20");
}

TEST_CASE("a file that is not gzip is rejected as such", "[files][fault:files-3]") {
  CHECK(error_in<ps::file_format_error>({0, 0, 8, 1}).offset() == 0);
  CHECK(error_in<ps::file_format_error>({0x1f, 0x8c, 8, 1}).found() ==
        "0x1f 0x8c: open a plain file without penstock::gzip");
  error_in<ps::file_truncated>({});
  CHECK_THROWS_AS(test::content_by(ps::gzip, "/no/such/file.gz"), ps::file_unreadable);
}

TEST_CASE("a gzip file is not unpacked beyond the given size",
          "[files][promise:bounded-9][fault:files-3]") {
  const test::temp_dir dir;
  const std::string path = dir.write("zeros.gz", packed(test::file_bytes(1'000'000)));
  CHECK(test::content_by(ps::gzip, path, 1'000'000).size() == 1'000'000);
  CHECK_THROWS_AS(test::content_by(ps::gzip, path, 999'999), ps::file_format_error);
}

TEST_CASE("an IDX dataset opens gzip files", "[files]") {
  using small = ps::record<ps::field<"x", std::int16_t, 2>, ps::field<"y", std::uint8_t>>;
  const test::temp_dir dir;
  const auto x = test::idx_bytes(0x0b, {2, 2}, {0, 1, 0, 2, 0, 3, 0, 4});
  const auto y = test::idx_bytes(0x08, {2}, {5, 6});
  const std::string x_path = dir.write("x.gz", packed(x));
  const std::string y_path = dir.write("y.gz", packed(y));
  const ps::idx_dataset<small> data{ps::gzip, x_path, y_path};
  CHECK(data.size() == 2);
  CHECK(ps::get<"x">(data.view(1))(0) == 3);
  CHECK(ps::get<"y">(data.view(1)) == 6);

  SECTION("and verifies the checksum after the last element") {
    test::file_bytes damaged = packed(y);
    damaged[damaged.size() - 8] ^= 1U;
    const std::string path = dir.write("damaged.gz", damaged);
    CHECK_THROWS_AS((ps::idx_dataset<small>{ps::gzip, x_path, path}), ps::file_corrupt);
  }
  SECTION("and detects missing and surplus bytes") {
    const std::string less = dir.write("less.gz", packed(test::file_bytes{y.begin(), y.end() - 1}));
    CHECK_THROWS_AS((ps::idx_dataset<small>{ps::gzip, x_path, less}), ps::file_truncated);
    const std::string more = dir.write("more.gz", packed(test::joined(y, {0})));
    CHECK_THROWS_AS((ps::idx_dataset<small>{ps::gzip, x_path, more}), ps::file_format_error);
  }
  SECTION("and does not allocate the size that a false header claims") {
    const auto huge = test::idx_bytes(0x08, {0xffffffff, 0xffff}, {1, 2, 3});
    const std::string path = dir.write("huge.gz", packed(huge));
    CHECK_THROWS_AS((ps::detail::idx_file{ps::gzip, path}), ps::file_truncated);
  }
}

TEST_CASE("the real MNIST is read from gzip files, where it is present", "[files]") {
  const char* dir = std::getenv("MNIST_DIR");
  const std::string folder = dir == nullptr ? "" : dir;
  const std::string labels = folder + "/t10k-labels-idx1-ubyte.gz";
  if (!std::filesystem::exists(labels)) {
    WARN("no packed MNIST in MNIST_DIR: not tried");
    return;
  }
  const ps::idx_dataset digits{ps::gzip, folder + "/t10k-images-idx3-ubyte.gz", labels};
  CHECK(digits.size() == 10'000);
  CHECK(ps::get<"label">(digits.view(0)) == 7);
  const auto image = ps::get<"image">(digits.view(0)).flat();
  CHECK(std::count_if(image.begin(), image.end(), [](std::uint8_t p) { return p > 0; }) == 116);
}
