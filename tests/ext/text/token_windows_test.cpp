// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/token_windows.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "data/read_batch.hpp"
#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::little;

namespace {

// Returns the tokens 0, 1, 2, ...
template <class Token>
std::string tokens_from_zero(std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), Token{0});
  return test::bytes_of(tokens);
}

// Returns, for each window, the first token of x and the last token of y.
template <class Token>
std::vector<Token> ends_of(const ps::token_windows<Token>& data) {
  std::vector<std::uint64_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  std::vector<Token> ends;
  if (indices.empty()) return ends;
  auto batch = test::read_batch(data, indices);
  const std::size_t last = data.extents().template at<0>()[0] - 1;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    for (std::size_t t = 0; t <= last; ++t) {
      CHECK(batch.template get<"y">()(i, t) == batch.template get<"x">()(i, t) + 1);
    }
    ends.push_back(batch.template get<"x">()(i, 0));
    ends.push_back(batch.template get<"y">()(i, last));
  }
  return ends;
}

}  // namespace

TEST_CASE("a file of tokens is cut into windows, each with its next tokens", "[text]") {
  const test::temp_dir dir;
  const auto windows = [&](std::size_t tokens, const ps::token_windows_options& options) {
    const std::string header(static_cast<std::size_t>(options.header), 'h');
    const std::string bytes = header + tokens_from_zero<std::uint16_t>(tokens);
    return ends_of(ps::token_windows<>{test::write_file(dir.path("tokens.bin"), bytes), options});
  };
  using ends = std::vector<std::uint16_t>;
  CHECK(windows(9, {.length = 4}) == ends{0, 4, 4, 8});
  CHECK(windows(8, {.length = 4}) == ends{0, 4});
  CHECK(windows(12, {.length = 4}) == ends{0, 4, 4, 8});
  CHECK(windows(13, {.length = 4}) == ends{0, 4, 4, 8, 8, 12});
  CHECK(windows(7, {.length = 4, .stride = 1}) == ends{0, 4, 1, 5, 2, 6});
  CHECK(windows(9, {.length = 4, .stride = 3}) == ends{0, 4, 3, 7});
  CHECK(windows(2, {.length = 1, .header = 513}) == ends{0, 1});
  for (const std::size_t tokens : {0U, 4U}) {
    const auto shorter = error_of<ps::file_truncated>([&] { windows(tokens, {.length = 4}); });
    CHECK(shorter.path() == dir.path("tokens.bin"));
    CHECK(shorter.expected() == "4 tokens of a window and the next token");
    CHECK_THAT(shorter.found(),
               Catch::Matchers::StartsWith("the end of the file after " + std::to_string(tokens)));
  }
  CHECK(windows(5, {.length = 4, .stride = ~std::uint64_t{0}}) == ends{0, 4});
}

TEST_CASE("tokens may have 8 and 32 bits", "[text]") {
  const test::temp_dir dir;
  const std::string path =
      test::write_file(dir.path("tokens.bin"), tokens_from_zero<std::uint32_t>(70'000));
  const ps::token_windows<std::uint32_t> data{path, {.length = 1000}};
  CHECK(data.size() == 69);
  CHECK(test::read_batch(data, {68}).get<"y">()(0, 999) == 69'000);
  test::write_file(dir.path("bytes.bin"), "abcdef");
  const ps::token_windows<std::uint8_t> text{dir.path("bytes.bin"), {.length = 2}};
  CHECK(test::values<"y">(test::read_batch(text, {1})) == std::vector<std::uint8_t>{'d', 'e'});
}

TEST_CASE("a file of 10^12 tokens is opened, and read at its end", "[text]") {
  const test::temp_dir dir;
  const std::string path = test::write_file(dir.path("tokens.bin"), "");
  const std::uint64_t tokens = 1'000'000'000'000;
  std::error_code rejected;  // the file system may not support a hole of this size
  std::filesystem::resize_file(path, tokens * 2, rejected);
  if (rejected) {
    WARN("no file of 2 TB here: " << rejected.message());
    return;
  }
  const ps::token_windows<> data{path, {.length = 1024}};
  REQUIRE(data.size() == (tokens - 1) / 1024);
  auto batch = test::read_batch(data, {data.size() - 1, 0, data.size() / 2});
  CHECK(batch.get<"y">()(0, 1023) == 0);
  CHECK(ps::token_windows<>{path, {.length = 1024, .stride = 1}}.size() == tokens - 1024);
}

TEST_CASE("a header of llm.c is skipped if its count agrees with the file", "[text]") {
  const test::temp_dir dir;
  const std::string header = little(20240520, 4) + little(1, 4) + little(9, 4);
  const std::string path =
      test::write_file(dir.path("fineweb.bin"), header + std::string(1024 - header.size(), '\0') +
                                                    tokens_from_zero<std::uint16_t>(9));
  CHECK(ends_of(ps::token_windows<>{path, {.length = 4, .header = 1024}}) ==
        std::vector<std::uint16_t>{0, 4, 4, 8});
  CHECK_THAT(error_of<ps::file_format_error>([&] { ps::token_windows<>{path}; }).found(),
             Catch::Matchers::Contains(".header = 1024"));
  CHECK(ps::token_windows<>{path, {.length = 4, .check_format = false}}.size() == 130);
  std::filesystem::resize_file(path, 1024 + 16);
  const auto cut = error_of<ps::length_mismatch>(
      [&] { ps::token_windows<>{path, {.length = 4, .header = 1024}}; });
  CHECK(cut.offset() == 8);
  CHECK_THAT(cut.found(), Catch::Matchers::StartsWith("9: the file was truncated"));
}

TEST_CASE("a file with a partial token is rejected", "[text][fault:files-9]") {
  const test::temp_dir dir;
  const std::string path = test::write_file(dir.path("tokens.bin"), "abcde");
  const auto within = error_of<ps::file_truncated>([&] { ps::token_windows<>{path}; });
  CHECK(within.path() == path);
  CHECK(within.offset() == 5);
  CHECK(within.expected() == "tokens of 2 bytes");
  CHECK(error_of<ps::file_truncated>([&] {
          ps::token_windows<>(path, ps::token_windows_options{.header = 6});
        }).expected() == "a header of 6 bytes");
  CHECK(error_of<ps::option_error>([&] {
          ps::token_windows<>(path, ps::token_windows_options{.length = 0});
        }).option() == "length");
  (void)error_of<ps::file_unreadable>([&] { ps::token_windows<>{dir.path("none")}; });
  test::write_file(path, "abcd");
  const ps::token_windows<> data{path, {.length = 1}};
  CHECK(error_of<ps::index_error>([&] { test::read_batch(data, {1}); }).size() == 1);
  data.prefetch(1);
}
