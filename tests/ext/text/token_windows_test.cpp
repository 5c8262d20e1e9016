// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/token_windows.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
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

using tokens = std::vector<std::int64_t>;

tokens from(std::int64_t first, std::size_t count) {
  tokens all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

std::string raw_tokens(const tokens& all, std::size_t token_bytes = 2) {
  std::string bytes;
  for (const std::int64_t token : all) {
    bytes += little(static_cast<std::uint64_t>(token), token_bytes);
  }
  return bytes;
}

// Returns a file in the format of llm.c's data_common.py.
std::string llmc_file(const tokens& all, std::size_t token_bytes = 2) {
  const bool is_gpt2 = token_bytes == 2;
  std::string bytes =
      little(is_gpt2 ? 20240520 : 20240801, 4) + little(is_gpt2 ? 1 : 7, 4) + little(all.size(), 4);
  bytes.resize(1024);
  return bytes + raw_tokens(all, token_bytes);
}

std::string npy_file(const tokens& all, const std::string& descr) {
  const auto width = static_cast<std::size_t>(descr.back() - '0');
  return test::npy(descr, std::to_string(all.size()) + ",", raw_tokens(all, width));
}

// A format and a token type.
struct token_type {
  std::string name;  // "raw", "llmc", or the type in an npy file
  std::size_t bytes;
  std::uint64_t end;  // tokens are less than this number
};

std::string file_of(const tokens& all, const token_type& type) {
  if (type.name == "raw") return raw_tokens(all, type.bytes);
  if (type.name == "llmc") return llmc_file(all, type.bytes);
  return npy_file(all, type.name);
}

// A window: its tokens, and its position among the windows that start in the same file.
struct window {
  tokens all;
  ps::sample_origin origin;
};

// Returns the windows of the files, taken token by token.
std::vector<window> reference_of(const std::vector<tokens>& files,
                                 const ps::token_windows_options& options) {
  std::vector<std::vector<std::pair<std::int64_t, std::size_t>>> sequences(1);
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (!options.cross_files && f > 0) sequences.emplace_back();
    for (const std::int64_t token : files[f]) sequences.back().emplace_back(token, f);
  }
  std::vector<window> windows;
  std::vector<std::uint64_t> starts(files.size());
  const std::size_t stride = options.stride == 0 ? options.length : options.stride;
  for (const auto& sequence : sequences) {
    std::size_t count = 0;
    while (count * stride + options.length < sequence.size()) ++count;
    for (std::size_t i = 0; i < count / options.whole_steps * options.whole_steps; ++i) {
      const std::size_t file = sequence[i * stride].second;
      window one{{}, {starts[file]++, file}};
      for (std::size_t t = 0; t <= options.length; ++t) {
        one.all.push_back(sequence[i * stride + t].first);
      }
      windows.push_back(one);
    }
  }
  return windows;
}

template <class Token>
void require_equal(const std::vector<std::string>& paths, const ps::token_windows_options& options,
                   const std::vector<window>& expected) {
  const ps::token_windows<Token> data{paths, options};
  REQUIRE(data.size() == expected.size());
  data.prefetch(data.size());
  std::vector<std::uint64_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  std::shuffle(indices.begin(), indices.end(), std::mt19937{1});  // NOLINT: a fixed seed
  data.prefetch_hint(indices);
  auto batch = test::read_batch(data, indices);
  tokens x;
  tokens y;
  for (const std::uint64_t index : indices) {
    const window& one = expected[index];
    x.insert(x.end(), one.all.begin(), one.all.end() - 1);
    y.insert(y.end(), one.all.begin() + 1, one.all.end());
    CHECK(ps::origin_of(data, index) == one.origin);
    CHECK(one.origin.index < data.base_sizes()[one.origin.part]);
  }
  const auto found_x = test::values<"x">(batch);
  const auto found_y = test::values<"y">(batch);
  CHECK(tokens(found_x.begin(), found_x.end()) == x);
  CHECK(tokens(found_y.begin(), found_y.end()) == y);
}

// Returns, for each window, the first token of x and the last token of y.
tokens ends_of(const std::string& path, const ps::token_windows_options& options) {
  const ps::token_windows<> data{path, options};
  std::vector<std::uint64_t> indices(data.size());
  std::iota(indices.begin(), indices.end(), std::uint64_t{0});
  auto batch = test::read_batch(data, indices);
  tokens ends;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    ends.push_back(batch.get<"x">()(i, 0));
    ends.push_back(batch.get<"y">()(i, options.length - 1));
  }
  return ends;
}

}  // namespace

TEST_CASE("token files of each format and type are read like a sequence in memory", "[text]") {
  const test::temp_dir dir;
  const std::vector<token_type> types{
      {"raw", 1, 256},         {"raw", 2, 65'536},      {"raw", 4, 1ULL << 32U},
      {"raw", 8, 1ULL << 62U}, {"llmc", 2, 65'536},     {"llmc", 4, 1ULL << 32U},
      {"|u1", 1, 256},         {"|i1", 1, 128},         {"<u2", 2, 65'536},
      {"<i2", 2, 1U << 15U},   {"<u4", 4, 1ULL << 32U}, {"<i4", 4, 1U << 31U},
      {"<i8", 8, 1ULL << 62U}};
  std::mt19937_64 bits{1};  // NOLINT: a fixed seed
  const auto below = [&](std::uint64_t end) { return static_cast<std::size_t>(bits() % end); };
  for (std::size_t round = 0; round < 130; ++round) {
    const token_type& type = types[round % types.size()];
    ps::token_windows_options options{.length = 1 + below(5), .cross_files = below(2) == 1};
    options.stride = below(options.length + 3);
    if (options.stride <= options.length) options.whole_steps = 1 + below(3);
    options.token_bytes = type.name == "raw" ? type.bytes : 0;
    const std::size_t count = 1 + below(4);
    std::vector<tokens> files;
    std::vector<std::string> paths;
    for (std::size_t f = 0; f < count; ++f) {
      const bool may_be_short = options.cross_files && f + 1 < count;  // or empty
      files.emplace_back(may_be_short ? below(9) : 3 * options.length + 1 + below(20));
      for (std::int64_t& token : files.back()) token = static_cast<std::int64_t>(below(type.end));
      paths.push_back(
          test::write_file(dir.path(std::to_string(f) + ".bin"), file_of(files.back(), type)));
    }
    INFO(type.name << ' ' << type.bytes << ", round " << round);
    const auto expected = reference_of(files, options);
    require_equal<std::int64_t>(paths, options, expected);
    if (type.end <= 1ULL << 32U) require_equal<std::uint32_t>(paths, options, expected);
    if (type.end <= 65'536) require_equal<std::int32_t>(paths, options, expected);
    if (type.end <= 65'536) require_equal<std::uint16_t>(paths, options, expected);
    if (type.end <= 128) require_equal<signed char>(paths, options, expected);
  }
}

TEST_CASE("windows start at each stride, and end before the last token", "[text]") {
  const test::temp_dir dir;
  const std::string path = dir.path("tokens.bin");
  const auto windows = [&](std::size_t count, const ps::token_windows_options& options) {
    const std::string header(static_cast<std::size_t>(options.header), 'h');
    return ends_of(test::write_file(path, header + raw_tokens(from(0, count))), options);
  };
  CHECK(windows(9, {.length = 4}) == tokens{0, 4, 4, 8});
  CHECK(windows(8, {.length = 4}) == tokens{0, 4});
  CHECK(windows(13, {.length = 4}) == tokens{0, 4, 4, 8, 8, 12});
  CHECK(windows(7, {.length = 4, .stride = 1}) == tokens{0, 4, 1, 5, 2, 6});
  CHECK(windows(9, {.length = 4, .stride = 3}) == tokens{0, 4, 3, 7});
  CHECK(windows(2, {.length = 1, .header = 513}) == tokens{0, 1});
  CHECK(windows(5, {.length = 4, .stride = ~std::uint64_t{0}}) == tokens{0, 4});
  for (const std::size_t count : {0U, 4U}) {
    const auto shorter = error_of<ps::file_truncated>([&] { windows(count, {.length = 4}); });
    CHECK(shorter.path() == path);
    CHECK(shorter.expected() == "4 tokens of a window and the next token");
    CHECK_THAT(shorter.found(), Catch::Matchers::StartsWith("the end of the file after " +
                                                            std::to_string(count) + " tokens"));
    const auto joint = error_of<ps::file_truncated>(
        [&] { windows(count, {.length = 4, .cross_files = true, .whole_steps = 2}); });
    CHECK(joint.expected() == "2 windows of 4 tokens and the next token");
    CHECK_THAT(joint.found(), Catch::Matchers::StartsWith("the end of the last file after "));
  }
}

TEST_CASE("a loader gives the windows of several files with any workers, also resumed", "[text]") {
  const test::temp_dir dir;
  const std::vector<std::string> paths{
      test::write_file(dir.path("a.npy"), npy_file(from(0, 50), "<i4")),
      test::write_file(dir.path("b.npy"), npy_file(from(50, 3), "<i4")),
      test::write_file(dir.path("c.npy"), npy_file(from(53, 70), "<i4"))};
  const ps::token_windows<int> data{paths, {.length = 4, .cross_files = true}};
  REQUIRE(data.size() == 30);
  std::vector<std::vector<int>> batches;
  for (std::size_t workers = 0; workers < 4; ++workers) {
    ps::loader loader{data, ps::shuffled{.seed = 1}, {.batch_size = 4, .workers = workers}};
    std::vector<std::vector<int>> found;
    for (const auto& batch : loader.epoch(0)) {
      const auto x = ps::get<"x">(batch).flat();
      const auto y = ps::get<"y">(batch).flat();
      found.emplace_back(x.begin(), x.end());
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == x[i] + 1);
    }
    if (workers == 0) batches = found;
    CHECK(found == batches);
    std::vector<std::vector<int>> rest(batches.begin() + 3, batches.end());
    found.clear();
    for (const auto& batch : loader.resume(loader.state_at({0, 3}), 1)) {
      const auto x = ps::get<"x">(batch).flat();
      found.emplace_back(x.begin(), x.end());
    }
    CHECK(found == rest);
  }
}

TEST_CASE("ranks get the same windows of token files as with llm.c's loader", "[text]") {
  const test::temp_dir dir;
  constexpr std::size_t batch = 2;   // B
  constexpr std::size_t length = 4;  // T
  constexpr std::size_t world = 3;
  // With steps of 24 tokens plus one token, the shards contain 1, 2 and 1 whole steps.
  const std::vector<tokens> shards{from(0, 48), from(1000, 49), from(2000, 25)};
  test::write_file(dir.path("shard_0.bin"), llmc_file(shards[0]));
  test::write_file(dir.path("shard_1.bin"), llmc_file(shards[1]));
  test::write_file(dir.path("shard_2.bin"), llmc_file(shards[2]));
  const ps::token_windows<std::int64_t> data{ps::glob(dir.path("shard_*.bin")),
                                             {.length = length, .whole_steps = batch * world}};
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
  CHECK(ps::token_windows<int>{ps::glob(dir.path("shard_*.bin")), {.length = length}}.size() ==
        11 + 12 + 6);
}

TEST_CASE("a token that does not fit the type of the batch is rejected with its position",
          "[text]") {
  const test::temp_dir dir;
  const std::string wide =
      test::write_file(dir.path("llama.bin"), llmc_file({1, 70'000, 128'255, 2, 3}, 4));
  const ps::token_windows<std::int64_t> data{{wide}, {.length = 2}};
  CHECK(test::values<"y">(test::read_batch(data, {0, 1})) ==
        std::vector<std::int64_t>{70'000, 128'255, 2, 3});
  CHECK(ps::storage_size_of(data, 0) == 12);
  const ps::token_windows<std::uint16_t> narrow{{wide}, {.length = 2}};
  const auto large = error_of<ps::element_type_mismatch>([&] { test::read_batch(narrow, {0}); });
  CHECK(large.path() == wide);
  CHECK(large.offset() == 1024 + 4);
  CHECK(large.expected() == "a token of at most 65535");
  CHECK_THAT(large.found(), Catch::Matchers::StartsWith("70000: "));
  // Only y contains the token after the window.
  const auto next = error_of<ps::element_type_mismatch>([&] {
    const ps::token_windows<std::uint16_t> one{{wide}, {.length = 1}};
    test::read_batch(one, {0});
  });
  CHECK(next.offset() == 1024 + 4);

  const std::string raw =
      test::write_file(dir.path("raw.bin"), "ab" + little(7, 4) + little(0xffffffff, 4));
  const ps::token_windows<int> negative{{raw}, {.length = 1, .header = 2, .token_bytes = 4}};
  CHECK(error_of<ps::element_type_mismatch>([&] { test::read_batch(negative, {0}); }).offset() ==
        6);
  const ps::token_windows<std::uint32_t> all{{raw}, {.length = 1, .header = 2, .token_bytes = 4}};
  CHECK(test::values<"y">(test::read_batch(all, {0})) ==
        std::vector{std::numeric_limits<std::uint32_t>::max()});
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

TEST_CASE("a damaged token file is rejected with its path and the position",
          "[text][fault:files-9]") {
  const test::temp_dir dir;
  const std::string good = test::write_file(dir.path("good.bin"), llmc_file(from(0, 9)));
  const std::string bad = dir.path("bad.bin");
  const auto open = [&](const std::string& bytes,
                        const ps::token_windows_options& options = {.length = 4}) {
    test::write_file(bad, bytes);
    ps::token_windows<>{std::vector{good, bad}, options};
  };
  const std::string bytes = llmc_file(from(0, 9));
  const auto is_rejected = [&](const std::string& damaged) {
    try {
      open(damaged);
      return false;
    } catch (const ps::file_error& error) {
      CHECK(error.path() == bad);
      CHECK(error.offset() <= damaged.size());
      return true;
    }
  };
  open(bytes);
  // The header consists of the magic number, the version and the count. Every bit of them is
  // checked.
  for (std::size_t bit = 0; bit < 12 * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    INFO("bit " << bit);
    CHECK(is_rejected(flipped));
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    INFO("size " << size);
    CHECK(is_rejected(bytes.substr(0, size)));
  }
  CHECK(is_rejected(bytes + "ab"));
  CHECK(error_of<ps::file_truncated>([&] { open(bytes.substr(0, 1000)); }).offset() == 1000);
  const auto count = error_of<ps::length_mismatch>([&] { open(bytes.substr(0, 1040)); });
  CHECK(count.offset() == 8);
  CHECK(count.expected() == "8 tokens of 2 bytes, according to the file's length");
  CHECK_THAT(count.found(), Catch::Matchers::StartsWith("9: the file was truncated"));
  std::string version = bytes;
  version[4] = 7;  // the version of a Llama 3 file
  CHECK(error_of<ps::file_format_error>([&] { open(version); }).offset() == 4);
  CHECK_THAT(error_of<ps::file_format_error>([&] {
               open("\x93NUMPY" + bytes.substr(6), {.length = 4, .format = ps::token_format::llmc});
             }).found(),
             Catch::Matchers::Contains("an npy file"));
  CHECK_THAT(error_of<ps::file_format_error>([&] { open("PAR1" + bytes.substr(4)); }).found(),
             Catch::Matchers::Contains(".format = penstock::token_format::raw"));
  CHECK(error_of<ps::file_truncated>([&] { open(llmc_file(from(0, 4))); }).expected() ==
        "4 tokens of a window and the next token");
  CHECK(error_of<ps::file_truncated>([&] {
          open(bytes, {.length = 4, .whole_steps = 3});
        }).path() == good);
  // The tokens of a file whose format is given, or whose header is skipped, are raw.
  CHECK(ps::token_windows<>{good, {.length = 4, .format = ps::token_format::raw}}.size() == 130);
  CHECK(ps::token_windows<>{good, {.length = 4, .header = 1026}}.size() == 1);
  CHECK(ends_of(good, {.length = 4, .header = 1024}) == tokens{0, 4, 4, 8});
}

TEST_CASE("a damaged or unsuitable npy file of tokens is rejected", "[text][fault:files-9]") {
  const test::temp_dir dir;
  const std::string path = dir.path("tokens.npy");
  const auto open = [&](const std::string& bytes) {
    test::write_file(path, bytes);
    ps::token_windows<>{path, {.length = 2, .format = ps::token_format::npy}};
  };
  const std::string good = npy_file(from(0, 9), "<u2");
  open(good);
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO("size " << size);
    CHECK(error_of<ps::file_truncated>([&] { open(good.substr(0, size)); }).path() == path);
  }
  CHECK(error_of<ps::file_format_error>([&] { open(good + "ab"); }).offset() == good.size());
  CHECK(error_of<ps::file_format_error>([&] { open(raw_tokens(from(0, 9))); }).offset() == 0);
  for (const char* const type : {"<f4", ">u2", "|b1", "<i3"}) {
    const std::size_t width = static_cast<std::size_t>(type[2] - '0');
    const auto other = error_of<ps::element_type_mismatch>(
        [&] { open(test::npy(type, "4,", std::string(4 * width, '\0'))); });
    CHECK(other.offset() == 20);
    CHECK_THAT(other.found(), Catch::Matchers::Contains(".astype(numpy.uint16)"));
  }
  const auto shape = error_of<ps::dimension_mismatch>(
      [&] { open(test::npy("<u2", "2, 4", std::string(16, '\0'))); });
  CHECK_THAT(shape.found(), Catch::Matchers::StartsWith("2: "));
  open(npy_file({1, -2, 3, 4, 5}, "<i4"));
  const ps::token_windows<std::int64_t> negative{path, {.length = 2}};
  const auto read = error_of<ps::element_type_mismatch>([&] { test::read_batch(negative, {0}); });
  CHECK(read.offset() == std::filesystem::file_size(path) - 16);
  CHECK_THAT(read.found(), Catch::Matchers::StartsWith("a negative token"));
}

TEST_CASE("token files of another type, and invalid options, are rejected",
          "[text][fault:files-9]") {
  const test::temp_dir dir;
  const std::string gpt2 = test::write_file(dir.path("gpt2.bin"), llmc_file(from(0, 9)));
  const std::string llama = test::write_file(dir.path("llama.bin"), llmc_file(from(0, 9), 4));
  const std::string array = test::write_file(dir.path("a.npy"), npy_file(from(0, 9), "<u2"));
  const std::string raw = test::write_file(dir.path("raw.bin"), raw_tokens(from(0, 9)) + "a");
  const auto other = error_of<ps::element_type_mismatch>(
      [&] { ps::token_windows<int>{{gpt2, llama}, {.length = 4}}; });
  CHECK(other.path() == llama);
  CHECK(other.expected() == "uint16 tokens of an llm.c file, as in " + gpt2);
  CHECK_THAT(other.found(), Catch::Matchers::StartsWith("uint32 tokens of an llm.c file: "));
  CHECK(error_of<ps::element_type_mismatch>([&] {
          ps::token_windows<int>{{gpt2, array}, {.length = 4}};
        }).offset() == 20);
  const auto size = error_of<ps::element_type_mismatch>(
      [&] { ps::token_windows<int>{{gpt2}, {.length = 4, .token_bytes = 4}}; });
  CHECK(size.expected() == "tokens of 4 bytes (.token_bytes)");
  const auto within = error_of<ps::file_truncated>([&] { ps::token_windows<>{raw}; });
  CHECK(within.offset() == 19);
  CHECK(within.expected() == "tokens of 2 bytes");
  CHECK(error_of<ps::file_truncated>([&] {
          ps::token_windows<>(raw, ps::token_windows_options{.header = 20});
        }).expected() == "a header of 20 bytes");
  (void)error_of<ps::file_unreadable>([&] { ps::token_windows<>{dir.path("none")}; });
  const auto option = [&](const std::vector<std::string>& paths,
                          const ps::token_windows_options& options) {
    return error_of<ps::option_error>([&] { ps::token_windows<int>(paths, options); }).option();
  };
  CHECK(option({}, {}) == "paths");
  CHECK(option({gpt2}, {.length = 0}) == "length");
  CHECK(option({gpt2}, {.whole_steps = 0}) == "whole_steps");
  CHECK(option({raw}, {.token_bytes = 3}) == "token_bytes");
  CHECK(option({raw}, {}) == "token_bytes");  // the type of the batch is signed
  const ps::token_windows<> data{gpt2, {.length = 4}};
  CHECK(error_of<ps::index_error>([&] { test::read_batch(data, {2}); }).size() == 2);
}
