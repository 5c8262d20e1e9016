// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/megatron_documents.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <string>
#include <string_view>
#include <vector>

#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::little;

namespace {

struct sequence {
  std::uint64_t tokens;
  std::uint64_t begin;
};

std::string index_of_documents(const std::vector<sequence>& sequences,
                               const std::vector<std::uint64_t>& starts, std::uint64_t code = 8) {
  std::string bytes{"MMIDIDX\0\0", 9};
  bytes += little(1, 8) + little(code, 1) + little(sequences.size(), 8) + little(starts.size(), 8);
  for (const sequence& one : sequences) bytes += little(one.tokens, 4);
  for (const sequence& one : sequences) bytes += little(one.begin, 8);
  for (const std::uint64_t start : starts) bytes += little(start, 8);
  return bytes;
}

// Three documents of two sequences, no sequence and one sequence, in 12 bytes.
const std::vector<sequence> three_sequences{{2, 0}, {1, 4}, {3, 6}};
const std::string right_index = index_of_documents(three_sequences, {0, 2, 2, 3});

ps::megatron_documents opened(const test::temp_dir& dir, const std::string& index,
                              std::string_view tokens = "aabbccddeeff",
                              const ps::megatron_options& options = {}) {
  test::write_file(dir.path("text.idx"), index);
  test::write_file(dir.path("text.bin"), tokens);
  return ps::megatron_documents{dir.path("text"), options};
}

std::string document(const ps::megatron_documents& of, std::uint64_t index) {
  ps::blob_buffer unused;
  const auto bytes = of.bytes(index, unused);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("Megatron's documents are the sequences that follow each other", "[text]") {
  const test::temp_dir dir;
  for (const std::string& modes : {std::string{}, std::string(3, '\0')}) {
    const auto all = opened(dir, right_index + modes);
    REQUIRE(all.size() == 3);
    CHECK(all.token_bytes() == 2);
    CHECK(document(all, 0) == "aabbcc");
    CHECK(document(all, 1).empty());
    CHECK(document(all, 2) == "ddeeff");
    CHECK(all.label(2) == 0);
    CHECK(all.key(2) == dir.path("text") + ":2");
    CHECK(error_of<ps::index_error>([&] { (void)document(all, 3); }).size() == 3);
    CHECK(error_of<ps::index_error>([&] { (void)all.label(3); }).size() == 3);
    CHECK(error_of<ps::index_error>([&] { (void)all.key(3); }).size() == 3);
  }
  constexpr std::size_t sizes[] = {1, 1, 2, 4, 8, 0, 0, 2};
  for (std::uint64_t code = 1; code <= 8; ++code) {
    if (sizes[code - 1] == 0) continue;
    CHECK(opened(dir, index_of_documents({}, {0}, code), "").token_bytes() == sizes[code - 1]);
  }
}

TEST_CASE("an index that is not Megatron's is rejected", "[text]") {
  const test::temp_dir dir;
  const auto with = [&](std::size_t at, char value) {
    std::string bytes = right_index;
    bytes[at] = value;
    return error_of<ps::file_format_error>([&] { opened(dir, bytes); });
  };
  for (std::size_t i = 0; i < 34; ++i) {
    CAPTURE(i);
    const auto cut = error_of<ps::file_truncated>([&] { opened(dir, right_index.substr(0, i)); });
    CHECK(cut.offset() == i);
    CHECK(cut.path() == dir.path("text.idx"));
  }
  CHECK(with(0, 'm').offset() == 0);
  CHECK(with(8, 'x').offset() == 0);
  CHECK(with(9, '\2').found() == "2");
  CHECK(with(17, '\0').offset() == 17);
  CHECK(with(17, '\x09').found() == "9");
  for (const char code : {'\6', '\7'}) {  // the codes of double and float
    CHECK(with(17, code).offset() == 17);
    CHECK(with(17, code).expected() == "tokens that are integers");
  }
  CHECK(with(18, '\4').found() == "4 and 4");
  CHECK(with(25, '\x7f').offset() == 18);
  CHECK(with(26, '\0').offset() == 26);
  CHECK(with(26, '\5').offset() == 18);
  CHECK(with(33, '\x7f').offset() == 18);
  CHECK(error_of<ps::file_format_error>([&] { opened(dir, right_index + "x"); }).offset() == 18);
  CHECK(error_of<ps::file_format_error>([&] {
          opened(dir, right_index.substr(0, right_index.size() - 1));
        }).offset() == 18);
  CHECK(error_of<ps::file_unreadable>([&] { ps::megatron_documents{dir.path("none")}; }).path() ==
        dir.path("none.idx"));
}

TEST_CASE("an index that points outside its tokens is rejected at that document",
          "[text][fault:files-9]") {
  const test::temp_dir dir;
  constexpr std::string_view twelve = "aabbccddeeff";
  constexpr ps::megatron_options unchecked{.check_size = false};
  const auto corrupt = [&](const std::vector<sequence>& sequences,
                           const std::vector<std::uint64_t>& starts, std::uint64_t index) {
    const auto all = opened(dir, index_of_documents(sequences, starts), twelve, unchecked);
    return error_of<ps::file_corrupt>([&] { (void)document(all, index); }).offset();
  };
  constexpr std::size_t lengths = 34;
  constexpr std::size_t begins = lengths + 12;
  constexpr std::size_t documents = begins + 24;
  CHECK(corrupt({{2, 0}, {1, 4}, {4, 6}}, {0, 2, 3}, 1) == begins + 16);
  CHECK(corrupt({{2, 0}, {1, 4}, {3, 8}}, {0, 2, 3}, 1) == begins + 16);
  CHECK(corrupt({{2, 0}, {1, 4}, {3, ~std::uint64_t{0}}}, {0, 2, 3}, 1) == begins + 16);
  CHECK(corrupt({{2, 0}, {1, 6}, {3, 6}}, {0, 2, 3}, 0) == begins + 8);  // the sequences have a gap
  CHECK(corrupt({{2, 0}, {1, 2}, {3, 6}}, {0, 2, 3}, 0) == begins + 8);  // the sequences overlap
  CHECK(corrupt({{0x8000'0000U, 0}, {1, 4}, {3, 6}}, {0, 2, 3}, 0) == lengths);
  for (const std::uint64_t second : {std::uint64_t{4}, ~std::uint64_t{0}}) {
    const auto all = opened(dir, index_of_documents(three_sequences, {0, second, 3}));
    const auto beyond = error_of<ps::file_corrupt>([&] { (void)document(all, 0); });
    CHECK(beyond.offset() == documents);
    CHECK(beyond.expected() == "the first sequence of a document, in order");
  }
  CHECK(corrupt(three_sequences, {2, 0, 3}, 0) == documents);
}

TEST_CASE("an index and a file of tokens of other sizes are rejected", "[text][fault:files-9]") {
  const test::temp_dir dir;
  const auto cut = error_of<ps::file_truncated>([&] { opened(dir, right_index, "aabbccddeef"); });
  CHECK(cut.path() == dir.path("text.bin"));
  CHECK(cut.offset() == 11);
  const auto longer =
      error_of<ps::length_mismatch>([&] { opened(dir, right_index, "aabbccddeeffgg"); });
  CHECK(longer.offset() == 12);
  CHECK_THAT(longer.found(), Catch::Matchers::StartsWith("14 bytes"));
  CHECK(opened(dir, right_index, "aabbccddeeffgg", {.check_size = false}).size() == 3);
  const std::string packed{"\x1f\x8b\x08\0\0\0\0\0\0\3abcd", 14};
  CHECK_THAT(error_of<ps::file_format_error>([&] { opened(dir, right_index, packed); }).found(),
             Catch::Matchers::StartsWith("a gzip file"));
  // The token file has exactly the required length.
  CHECK(opened(dir, right_index, packed.substr(0, 12)).size() == 3);
  const auto other = error_of<ps::file_corrupt>(
      [&] { opened(dir, index_of_documents(three_sequences, {0, 2, 2})); });
  CHECK(other.offset() == 34 + 12 + 24 + 16);
  CHECK(other.expected() == "3 sequences, according to the header");
}

TEST_CASE("the sequences of a long document are checked once", "[text]") {
  const test::temp_dir dir;
  std::vector<sequence> sequences;
  for (std::uint64_t i = 0; i < 1000; ++i) sequences.push_back({1, 2 * i});
  const std::string index = index_of_documents(sequences, {0, 600, 1000});
  const std::string tokens(2000, 'a');
  const auto all = opened(dir, index, tokens);
  CHECK(all.length(0) == 600);
  CHECK(all.length(1) == 400);
  // Overwrites an entry in the middle of both lists, to find out which list is read again.
  {
    std::fstream file{dir.path("text.idx"), std::ios::binary | std::ios::in | std::ios::out};
    for (const std::streamoff of : {300, 800}) {
      file.seekp(34 + 4 * 1000 + 8 * of);
      file << little(7, 8);
    }
    REQUIRE(file.flush().good());
  }
  CHECK(document(all, 0).size() == 1200);
  CHECK(document(all, 1).size() == 800);
  const ps::megatron_documents damaged{dir.path("text")};
  for (int times = 0; times < 2; ++times) {
    CHECK(error_of<ps::file_corrupt>([&] { (void)damaged.length(1); }).offset() ==
          34 + 4 * 1000 + 8 * 800);
  }
}

TEST_CASE("Megatron's documents return many lengths at once and accept any hint",
          "[text][promise:exact-13]") {
  const test::temp_dir dir;
  const auto all = opened(dir, right_index);
  const std::vector<std::uint64_t> indices{2, 0, 1, 1, 2};
  std::vector<std::uint64_t> lengths(5);
  all.lengths(indices, lengths);
  CHECK(lengths == std::vector<std::uint64_t>{3, 3, 0, 0, 3});
  std::vector<std::uint64_t> many(200);
  std::vector<std::uint64_t> reported(200);
  for (std::uint64_t i = 0; i < many.size(); ++i) many[i] = i * 7 % 3;
  all.lengths(many, reported);
  for (std::size_t i = 0; i < many.size(); ++i) CHECK(reported[i] == all.length(many[i]));
  many[150] = 3;
  CHECK(error_of<ps::index_error>([&] { all.lengths(many, reported); }).index() == 3);

  constexpr std::uint64_t max = ~std::uint64_t{0};
  const std::vector<ps::document_part> parts{{0, 0, 3},   {2, 1, 2},   {1, 0, 0},  {7, 0, 5},
                                             {0, max, 9}, {0, 2, max}, {max, 1, 1}};
  all.prefetch(parts);
  const auto damaged = opened(dir, index_of_documents(three_sequences, {0, max >> 20U, 2, 3}));
  damaged.prefetch(parts);
  CHECK_THROWS_AS(damaged.lengths(indices, lengths), ps::file_corrupt);
}
