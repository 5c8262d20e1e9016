// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/token_shards.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <penstock/order/sampler.hpp>
#include <penstock/order/sharded.hpp>
#include <penstock_ext/files/glob.hpp>

#include "data/read_batch.hpp"
#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::little;

namespace {

using tokens = std::vector<int>;

// Returns a file in the format of llm.c's data_common.py.
std::string llmc_file(const tokens& all, std::size_t token_bytes = 2) {
  const bool is_gpt2 = token_bytes == 2;
  std::string bytes =
      little(is_gpt2 ? 20240520 : 20240801, 4) + little(is_gpt2 ? 1 : 7, 4) + little(all.size(), 4);
  bytes.resize(1024);
  for (const int token : all) bytes += little(static_cast<std::uint32_t>(token), token_bytes);
  return bytes;
}

tokens from(int first, std::size_t count) {
  tokens all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

}  // namespace

TEST_CASE("ranks get the same windows of token shards as with llm.c's loader", "[text]") {
  const test::temp_dir dir;
  constexpr std::size_t batch = 2;   // B
  constexpr std::size_t length = 4;  // T
  constexpr std::size_t world = 3;
  // With steps of 24 tokens plus one token, the shards contain 1, 2 and 1 whole steps.
  const std::vector<tokens> shards{from(0, 48), from(1000, 49), from(2000, 25)};
  test::write_file(dir.path("shard_0.bin"), llmc_file(shards[0]));
  test::write_file(dir.path("shard_1.bin"), llmc_file(shards[1]));
  test::write_file(dir.path("shard_2.bin"), llmc_file(shards[2]));
  const ps::token_shards<int> data{
      ps::glob(dir.path("shard_*.bin")),
      {.length = length, .header = ps::llmc_header, .whole_steps = batch * world}};
  REQUIRE(data.size() == 4 * batch * world);

  for (std::size_t rank = 0; rank < world; ++rank) {
    const ps::sharded order{ps::sequential{},
                            {.rank = static_cast<int>(rank),
                             .world = static_cast<int>(world),
                             .global_batch = batch * world}};
    std::size_t step = 0;
    for (const tokens& shard : shards) {
      const std::size_t of_step = world * batch * length;
      for (std::size_t s = 0; s < (shard.size() - 1) / of_step; ++s, ++step) {
        const auto at =
            shard.begin() + static_cast<std::ptrdiff_t>(s * of_step + rank * batch * length);
        std::vector<std::uint64_t> indices(batch);
        order.order(data.size(), 0).fill(step * batch, indices);
        auto read = test::read_batch(data, indices);
        CHECK(test::values<"x">(read) == tokens(at, at + batch * length));
        CHECK(test::values<"y">(read) == tokens(at + 1, at + 1 + batch * length));
      }
    }
    CHECK(step == 4);
  }
  CHECK(ps::origin_of(data, 6) == ps::sample_origin{0, 1});
  // A shard keeps all its windows if windows need not form whole steps.
  CHECK(ps::token_shards<int>{ps::glob(dir.path("shard_*.bin")),
                              {.length = length, .header = ps::llmc_header}}
            .size() == 11 + 12 + 6);
}

TEST_CASE("tokens of 16 and 32 bits are read as any wider integer type", "[text]") {
  const test::temp_dir dir;
  const std::string wide =
      test::write_file(dir.path("llama.bin"), llmc_file({1, 70'000, 128'255, 2, 3}, 4));
  const ps::token_shards<std::int64_t> data{{wide}, {.length = 2, .header = ps::llmc_header}};
  CHECK(test::values<"y">(test::read_batch(data, {0, 1})) ==
        std::vector<std::int64_t>{70'000, 128'255, 2, 3});
  CHECK(ps::storage_size_of(data, 0) == 12);
  const ps::token_shards<std::uint16_t> narrow{{wide}, {.length = 2, .header = ps::llmc_header}};
  const auto large = error_of<ps::element_type_mismatch>([&] { test::read_batch(narrow, {0}); });
  CHECK(large.path() == wide);
  CHECK(large.offset() == 1024 + 4);
  CHECK(large.expected() == "a token of at most 65535");
  CHECK_THAT(large.found(), Catch::Matchers::StartsWith("70000: "));
  // Only y contains the token after the window.
  const auto next = error_of<ps::element_type_mismatch>([&] {
    const ps::token_shards<std::uint16_t> one{{wide}, {.length = 1, .header = ps::llmc_header}};
    test::read_batch(one, {0});
  });
  CHECK(next.offset() == 1024 + 4);

  const std::string raw =
      test::write_file(dir.path("raw.bin"), "ab" + little(7, 4) + little(0xffffffff, 4));
  const ps::token_shards<int> negative{{raw},
                                       {.length = 1, .header = {.bytes = 2, .token_bytes = 4}}};
  CHECK(error_of<ps::element_type_mismatch>([&] { test::read_batch(negative, {0}); }).offset() ==
        6);
  const ps::token_shards<std::uint32_t> all{
      {raw}, {.length = 1, .header = {.bytes = 2, .token_bytes = 4}}};
  CHECK(test::values<"y">(test::read_batch(all, {0})) ==
        std::vector{std::numeric_limits<std::uint32_t>::max()});
}

TEST_CASE("a shard whose header does not fit the file is rejected", "[text][fault:files-9]") {
  const test::temp_dir dir;
  const std::string good = test::write_file(dir.path("good.bin"), llmc_file(from(0, 9)));
  const std::string bad = dir.path("bad.bin");
  const ps::token_shards_options options{.length = 4, .header = ps::llmc_header};
  const auto open = [&](const std::string& bytes) {
    test::write_file(bad, bytes);
    ps::token_shards<int>{{good, bad}, options};
  };
  std::string bytes = llmc_file(from(0, 9));
  CHECK(error_of<ps::file_truncated>([&] { open(bytes.substr(0, 1000)); }).path() == bad);
  CHECK(error_of<ps::length_mismatch>([&] { open(bytes + "ab"); }).offset() == 8);
  CHECK(error_of<ps::length_mismatch>([&] { open(bytes.substr(0, 1041)); }).path() == bad);
  CHECK_THAT(error_of<ps::file_format_error>([&] { open("\x93NUMPY" + bytes.substr(6)); }).found(),
             Catch::Matchers::Contains("an npy file"));
  bytes[4] = 7;  // the version of a Llama 3 file
  CHECK(error_of<ps::file_format_error>([&] { open(bytes); }).offset() == 4);
  const auto shorter = error_of<ps::file_truncated>([&] { open(llmc_file(from(0, 4))); });
  CHECK(shorter.expected() == "1 windows of 4 tokens and the next token");
  CHECK(error_of<ps::file_format_error>([&] {
          ps::token_shards<int>{{good}, {.length = 4}};
        }).offset() == 0);
  CHECK(error_of<ps::file_truncated>([&] {
          ps::token_shards<int>{{good}, {.length = 4, .header = ps::llmc_header, .whole_steps = 3}};
        }).path() == good);
  const auto option = [&](const std::vector<std::string>& paths, ps::token_shards_options wrong) {
    return error_of<ps::option_error>([&] { ps::token_shards<int>(paths, wrong); }).option();
  };
  CHECK(option({}, options) == "paths");
  CHECK(option({good}, {.length = 0}) == "length");
  CHECK(option({good}, {.whole_steps = 0}) == "whole_steps");
  CHECK(option({bad}, {.header = {.token_bytes = 3}, .check_format = false}) == "header");
  (void)error_of<ps::index_error>(
      [&] { test::read_batch(ps::token_shards<int>{{good}, options}, {2}); });
}
