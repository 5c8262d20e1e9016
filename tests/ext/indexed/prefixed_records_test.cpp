// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/indexed/prefixed_records.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::has;

namespace {

using blobs = std::vector<test::file_bytes>;

/// Returns the content of a file of `records` in `layout`. Every other byte has the value 0xee.
test::file_bytes prefixed_bytes(const blobs& records, const ps::prefixed_layout& layout,
                                bool ends_aligned) {
  const auto fill = [](test::file_bytes& bytes, std::uint64_t count) {
    bytes.insert(bytes.end(), static_cast<std::size_t>(count), 0xee);
  };
  test::file_bytes all;
  fill(all, layout.file_header);
  for (std::size_t i = 0; i < records.size(); ++i) {
    fill(all, layout.before);
    const std::uint64_t length = records[i].size() / layout.unit;
    for (std::size_t k = 0; k < layout.length_bytes; ++k) {
      const std::size_t byte = layout.is_big_endian ? layout.length_bytes - 1 - k : k;
      all.push_back(static_cast<std::uint8_t>(length >> (8 * byte)));
    }
    fill(all, layout.between);
    all.insert(all.end(), records[i].begin(), records[i].end());
    fill(all, layout.after);
    if (i + 1 == records.size() && !ends_aligned) break;
    while ((all.size() - layout.file_header) % layout.alignment != 0) fill(all, 1);
  }
  return all;
}

blobs random_blobs(std::mt19937& bits, std::size_t count, std::size_t unit) {
  blobs all(count);
  for (auto& one : all) {
    one.resize(bits() % 60 * unit);
    std::ranges::generate(one, [&] { return static_cast<std::uint8_t>(bits()); });
  }
  return all;
}

blobs read_blobs(const ps::prefixed_records& data, std::size_t workers) {
  ps::loader loader{data, ps::sequential{}, {.batch_size = 7, .workers = workers}};
  blobs all;
  for (auto& batch : loader.epoch(0)) {
    const auto bytes = ps::get<"bytes">(batch);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      all.emplace_back(bytes[i].flat().begin(), bytes[i].flat().end());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("records with any layout are read as they were written", "[indexed]") {
  const test::temp_dir folder;
  std::mt19937 bits{7};
  for (int round = 0; round < 60; ++round) {
    const ps::prefixed_layout layout{.file_header = bits() % 3 * 5,
                                     .before = bits() % 3,
                                     .length_bytes = std::size_t{1} << bits() % 4,
                                     .is_big_endian = bits() % 2 == 0,
                                     .unit = 1 + bits() % 4,
                                     .between = bits() % 3 * 2,
                                     .after = bits() % 3,
                                     .alignment = 1 + bits() % 9};
    blobs expected;
    std::vector<std::string> paths;
    for (std::size_t file = 0; file < 2; ++file) {
      const auto some = random_blobs(bits, file == 0 ? 9 : bits() % 5, layout.unit);
      expected.insert(expected.end(), some.begin(), some.end());
      paths.push_back(folder.write(std::to_string(2 * round + static_cast<int>(file)),
                                   prefixed_bytes(some, layout, bits() % 2 == 0)));
    }
    const ps::prefixed_records data{paths, layout};
    REQUIRE(data.size() == expected.size());
    CHECK(read_blobs(data, 2) == expected);
    const auto last = data.size() - 1;
    const auto view = ps::get<"bytes">(data.view(last)).flat();
    CHECK(test::file_bytes(view.begin(), view.end()) == expected.back());
    CHECK(data.lengths(last) == ps::sample_lengths<ps::prefixed_record>{expected.back().size()});
  }
}

TEST_CASE("progress of a scan of records ends with the size of the file", "[indexed]") {
  const test::temp_dir folder;
  const std::string path = folder.write("a", {1, 7, 2, 8, 9, 0});
  std::vector<std::uint64_t> done;
  const ps::index_options options{.progress = [&](const ps::index_progress& at) {
    CHECK(at.path == path);
    CHECK(at.total_bytes == 6);
    done.push_back(at.done_bytes);
  }};
  CHECK(read_blobs(ps::prefixed_records{{path}, {.length_bytes = 1}, options}, 0) ==
        blobs{{7}, {8, 9}, {}});
  CHECK(done == std::vector<std::uint64_t>{6});
}

TEST_CASE("another layout of records makes an index stale", "[indexed][fault:files-27]") {
  const test::temp_dir folder;
  const std::string path = folder.write("a", {1, 0, 7, 2, 0, 8, 9});
  const ps::prefixed_layout two{.length_bytes = 2};
  CHECK(read_blobs(ps::prefixed_records{{path}, two}, 0) == blobs{{7}, {8, 9}});
  const ps::prefixed_layout one{.length_bytes = 1, .after = 1};
  CHECK_THROWS_AS((ps::prefixed_records{{path}, one, {.on_stale = ps::stale_index::reject}}),
                  ps::file_format_error);
  CHECK_NOTHROW(ps::prefixed_records{{path}, two, {.on_stale = ps::stale_index::reject}});
}

TEST_CASE("a record that exceeds its file is an error with its position",
          "[indexed][fault:files-28]") {
  const test::temp_dir folder;
  const auto error = [&](const test::file_bytes& bytes, const ps::prefixed_layout& layout) {
    const std::string path = folder.write("a", bytes);
    const auto problem =
        error_of<ps::file_truncated>([&] { ps::prefixed_records{{path}, layout}; });
    CHECK(problem.offset() == bytes.size());
    return std::string{problem.what()};
  };
  const ps::prefixed_layout layout{.length_bytes = 2, .after = 1};
  const test::file_bytes whole{2, 0, 5, 6, 9, 1, 0, 7, 9};
  for (std::size_t size = 1; size < whole.size(); ++size) {
    if (size == 5) continue;  // the first record is whole
    const test::file_bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(has(error(cut, layout), size < 5 ? "starts at byte 0" : "starts at byte 5"));
  }
  CHECK(has(error({255, 255, 255, 255, 255, 255, 255, 255, 0}, {.length_bytes = 8}), "byte 0"));
  CHECK(has(error({255, 255, 255, 255, 255, 255, 255, 255, 0},
                  {.length_bytes = 8, .unit = std::uint64_t{1} << 40}),
            "byte 0"));
  CHECK(has(error({1, 2}, {.file_header = 3}), "a header of 3 bytes"));
  const auto invalid = [&](const ps::prefixed_layout& wrong) {
    const std::string path = folder.write("b", whole);
    CHECK_THROWS_AS((ps::prefixed_records{{path}, wrong}), ps::option_error);
  };
  constexpr auto huge = (std::numeric_limits<std::uint64_t>::max)();
  invalid({.length_bytes = 3});
  invalid({.length_bytes = 16});
  invalid({.unit = 0});
  invalid({.alignment = 0});
  invalid({.file_header = huge});
  invalid({.before = huge});
  invalid({.between = huge});
  invalid({.after = huge});
}
