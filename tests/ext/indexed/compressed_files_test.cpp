// SPDX-License-Identifier: BSL-1.0
// Tests that compressed files, which have no random access, are errors with their remedy.
#include <cstdint>
#include <filesystem>
#include <string>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/indexed/prefixed_records.hpp>
#include <penstock_ext/indexed/text_lines.hpp>
#include <penstock_ext/indexed/tf_examples.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

using one_number = ps::record<ps::field<"x", float>>;

// The bytes of `printf 'a\nb\n' | gzip -n` and of `printf 'a\nb\n' | zstd`.
const test::file_bytes gzip_bytes{0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
                                  0x00, 0x03, 0x4b, 0xe4, 0x4a, 0xe2, 0x02, 0x00,
                                  0x97, 0x2a, 0x57, 0x18, 0x04, 0x00, 0x00, 0x00};
const test::file_bytes zstd_bytes{0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x21, 0x00, 0x00,
                                  0x61, 0x0a, 0x62, 0x0a, 0x25, 0x50, 0xb3, 0x23};
// The bytes of `zstd --no-check </dev/null`, which are fewer than those of a TFRecord.
const test::file_bytes short_bytes{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00};

constexpr const char* gzip_remedy =
    "a gzip file: unpack it with gunzip or penstock::unpack_files, "
    "or open an IDX file with penstock::gzip";
constexpr const char* zstd_remedy =
    "a zstd file: unpack it with unzstd or penstock::unpack_files, "
    "or open an IDX file with penstock::zstd";

/// Checks that opening compressed files is an error, and that they get no index.
template <class Open>
void check_compressed(const std::string& expected, const Open& open) {
  const test::temp_dir folder;
  const auto check = [&](const std::string& name, const test::file_bytes& bytes,
                         const std::string& remedy) {
    const std::string path = folder.write(name, bytes);
    const auto problem = test::error_of<ps::file_format_error>([&] { open(path); });
    CHECK(problem.path() == path);
    CHECK(problem.offset() == 0);
    CHECK(problem.expected() == expected);
    CHECK(problem.found() == remedy);
  };
  check("a.gz", gzip_bytes, gzip_remedy);
  check("a.zst", zstd_bytes, zstd_remedy);
  check("b.zst", short_bytes, zstd_remedy);
  CHECK(test::files_in(folder) == 3);
}

}  // namespace

TEST_CASE("a compressed text file is rejected with the remedy", "[indexed][fault:files-28]") {
  check_compressed("lines of text", [](const std::string& path) { ps::text_lines{{path}}; });
}

TEST_CASE("a compressed TFRecord file is rejected with the remedy", "[indexed][fault:files-28]") {
  check_compressed("TFRecord",
                   [](const std::string& path) { ps::tf_examples<one_number>{{path}}; });
}

TEST_CASE("a compressed file of prefixed records is rejected with the remedy",
          "[indexed][fault:files-28]") {
  for (const std::size_t length_bytes : {2U, 4U, 8U}) {
    for (const bool is_big_endian : {false, true}) {
      const ps::prefixed_layout layout{.length_bytes = length_bytes,
                                       .is_big_endian = is_big_endian};
      check_compressed("records in the layout",
                       [&](const std::string& path) { ps::prefixed_records{{path}, layout}; });
    }
  }
}

TEST_CASE("records that begin like a compressed file are read", "[indexed]") {
  const test::temp_dir folder;
  test::file_bytes bytes{0x1f, 0x8b, 0x08, 0};  // a length of 559,903 bytes
  bytes.resize(4 + 559'903);
  const std::string path = folder.write("a", bytes);
  CHECK(ps::prefixed_records{{path}}.size() == 1);
  // An error that the progress function throws is not replaced.
  std::filesystem::remove(path + ".index");
  const auto fail = [](const ps::index_progress&) {
    throw ps::file_unreadable("log", 0, "a log", "none");
  };
  CHECK_THROWS_AS(ps::prefixed_records({path}, {}, {.progress = fail}), ps::file_unreadable);
}
