// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/support/foreign_format.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

using namespace std::string_view_literals;
using test::little;

namespace {

std::string found_in(std::string_view bytes) {
  return std::string{penstock::detail::foreign_format_of(std::as_bytes(std::span{bytes})).name};
}

std::string padded(std::string_view start) {
  return std::string{start} + std::string(600 - start.size(), '\x11');
}

}  // namespace

TEST_CASE("formats are detected by the first bytes of their files", "[files][fault:files-20]") {
  const std::string json = R"( {"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}} )";
  const struct {
    std::string bytes;
    std::string name;
  } cases[] = {
      {padded("\x93NUMPY\1\0v\0"sv), "an npy file"},
      {padded("PK\3\4"sv), "a zip or npz file"},
      {padded("PK\5\6"sv), "a zip or npz file"},
      {padded("\x1f\x8b\x08\0"sv), "a gzip file"},
      {padded("\x1f\x8b\x08\x1f"sv), "a gzip file"},
      {padded("\x28\xb5\x2f\xfd"sv), "a zstd file"},
      {"\x5f\x2a\x4d\x18" + little(4, 4) + "abcd", "a zstd file"},
      {padded("\xfd"
              "7zXZ\0"sv),
       "an xz file"},
      {padded("BZh91AY&SY"sv), "a bzip2 file"},
      {padded("\x04\x22\x4d\x18"sv), "an lz4 file"},
      {padded("PAR1"sv), "a Parquet file"},
      {padded("PARE"sv), "a Parquet file"},
      {padded("ARROW1\0\0"sv), "an Arrow file or stream"},
      {padded("FEA1"sv), "an Arrow file or stream"},
      {padded("\xff\xff\xff\xff" + little(64, 4) + little(16, 4)), "an Arrow file or stream"},
      {little(json.size(), 8) + json + "ab", "a safetensors file"},
      {little(2, 8) + "{}ab", "a safetensors file"},
      {std::string(257, 'n') + "ustar", "a tar file"},
      {padded("\x89HDF\r\n\x1a\n"sv), "an HDF5 file"},
      {padded("\x89PNG\r\n\x1a\n"sv), "a PNG image"},
      {padded("\xff\xd8\xff\xe0"sv), "a JPEG image"},
      {padded("\xff\xd8\xff\xdb"sv), "a JPEG image"},
      {padded(little(20240520, 4) + little(1, 4)), "a file of llm.c or modded-nanogpt"},
      {padded(little(20240801, 4) + little(7, 4)), "a file of llm.c or modded-nanogpt"},
      {padded("MMIDIDX\0\0"sv), "a Megatron index"},
      {"\x80\x04\x95" + little(3, 8) + "N..", "a Python pickle"},
      {"\x80\x05\x95" + little(3, 8) + "N..", "a Python pickle"},
      {"\x80\x02}q\1(abcdef.", "a Python pickle"},
      {"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"},
      {"<!DOCTYPE html><html>", "an HTML page"},
  };
  for (const auto& [bytes, name] : cases) {
    CAPTURE(bytes.substr(0, 16));
    CHECK(found_in(bytes) == name);
    CHECK(found_in("x" + bytes).empty());
  }
}

TEST_CASE("raw values that resemble a format are not mistaken for it", "[files]") {
  for (const std::string& bytes :
       {std::string{}, std::string{"PK\3"}, std::string{"\x1f\x8b\x08"},
        padded("\x1f\x8b\x08\x20"sv),                         // a reserved flag
        padded("\xff\xd8\xff\xff"sv),                         // not a JPEG marker
        padded("\xff\xff\xff\xff" + little(16, 4) + "abcd"),  // document IDs of -1
        padded("\xff\xff\xff\xff" + little(1 << 20, 4) + little(16, 4)),
        padded(little(20240520, 4) + little(256, 4)),          // the version is invalid
        padded("\x5f\x2a\x4d\x18" + little(1000, 4)),          // the length exceeds the file
        padded(little(2, 8) + "{\""),                          // the JSON text is incomplete
        padded(little(1000, 8) + "{}"), padded("\x80\x02}q"),  // the pickle is incomplete
        padded("\x80\x04\x95" + little(1000, 8)), std::string(700, '\0'),
        std::string(256, 'n') + "ustar"}) {
    CAPTURE(bytes.substr(0, 16));
    CHECK(found_in(bytes).empty());
  }
  // Random 16-bit and 32-bit tokens at the start of a file.
  std::mt19937 random{1};
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes;
    for (int word = 0; word < 80; ++word) {
      const std::uint32_t token = static_cast<std::uint32_t>(random()) % 50'257;
      bytes += little(token, i % 2 == 0 ? 2 : 4);
    }
    REQUIRE(found_in(bytes).empty());
  }
}

TEST_CASE("the remedy for an npy file has the length of its header", "[files]") {
  for (const std::string& bytes :
       {padded("\x93NUMPY\1\0\x76\0"sv), padded("\x93NUMPY\2\0\x74\0\0\0"sv)}) {
    const auto rejected = test::error_of<penstock::file_format_error>([&] {
      penstock::detail::throw_foreign_format(std::as_bytes(std::span{bytes}), "x", "tokens", 0, "");
    });
    CHECK(rejected.found() ==
          "an npy file: read it with penstock::npy_dataset, or skip its header with .header = 128");
    penstock::detail::throw_foreign_format(std::as_bytes(std::span{bytes}), "x", "tokens", 128);
  }
}

TEST_CASE("no part of another format's header is read as values", "[files]") {
  const auto is_rejected = [](const std::string& bytes, std::uint64_t header) {
    try {
      penstock::detail::throw_foreign_format(std::as_bytes(std::span{bytes}), "x", "tokens",
                                             header);
      return false;
    } catch (const penstock::file_format_error&) {
      return true;
    }
  };
  const std::string npy = padded("\x93NUMPY\1\0\x76\0"sv);
  CHECK(is_rejected(npy, 127));
  CHECK_FALSE(is_rejected(npy, 128));
  const std::string of_llm_c = padded(little(20240520, 4) + little(1, 4));
  CHECK(is_rejected(of_llm_c, 1023));
  CHECK_FALSE(is_rejected(of_llm_c, 1024));
  CHECK_FALSE(is_rejected(padded("ARROW1"sv), 8));
}
