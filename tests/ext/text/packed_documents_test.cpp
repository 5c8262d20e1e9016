// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/packed_documents.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/order/random.hpp>
#include <penstock_ext/text/megatron_documents.hpp>

#include "data/read_batch.hpp"
#include "ext/files/npy_files.hpp"
#include "ext/text/token_lists.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::numbered_documents;

namespace {

std::vector<std::uint64_t> all_rows(std::uint64_t count) {
  std::vector<std::uint64_t> rows(count);
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  return rows;
}

// A document source that returns all lengths in one call and records hints for the next documents.
struct reporting_documents : numbered_documents {
  using numbered_documents::numbered_documents;

  void lengths(std::span<const std::uint64_t> indices, std::span<std::uint64_t> out) const {
    ++requested;
    for (std::size_t i = 0; i < indices.size(); ++i) out[i] = length(indices[i]);
  }
  void prefetch(std::span<const ps::document_part> parts) const noexcept {
    hints += parts.size();
    for (const ps::document_part& part : parts) {
      are_parts =
          are_parts && part.tokens > 0 && part.begin + part.tokens <= lengths_.at(part.document);
      is_hinted.at(part.document) = true;
    }
  }
  std::span<const std::byte> bytes(std::uint64_t index, ps::blob_buffer& buffer) const {
    all_were_hinted = all_were_hinted && is_hinted.at(index);
    return numbered_documents::bytes(index, buffer);
  }

  mutable std::uint64_t requested = 0;
  mutable std::uint64_t hints = 0;
  mutable bool are_parts = true;
  mutable bool all_were_hinted = true;
  mutable std::vector<bool> is_hinted = std::vector<bool>(numbered_documents::size());
};

// The tokens of a row by sequence.
struct packed_sequences {
  std::vector<std::vector<std::uint32_t>> sequences;
  friend bool operator==(const packed_sequences&, const packed_sequences&) = default;
};

// Replaces REQUIRE, which is too slow for a million checks.
void require(bool holds, const char* what) {
  if (!holds) FAIL(what);
}

// Checks the fields of all rows against each other and returns their contents.
template <class Rows>
std::vector<packed_sequences> rows_of(const Rows& rows, const numbered_documents& documents,
                                      const ps::packing_options& options,
                                      const std::vector<std::uint64_t>& indices) {
  std::vector<packed_sequences> found;
  if (indices.empty()) return found;
  auto batch = test::read_batch(rows, indices);
  const auto tokens = batch.template get<"tokens">();
  const auto labels = batch.template get<"labels">();
  const auto positions = batch.template get<"position_ids">();
  const auto ends = batch.template get<"cu_seqlens">();
  const auto sequences = batch.template get<"sequences">();
  for (std::size_t r = 0; r < indices.size(); ++r) {
    packed_sequences row;
    const auto count = static_cast<std::size_t>(sequences(r));
    require(count >= 1, "count >= 1");
    require(count < ends.extent(1), "count < ends.extent(1)");
    bool starts_right = ends(r, 0) == 0;
    bool labels_right = true;
    bool places_right = true;
    for (std::size_t s = 0; s < count; ++s) {
      const auto begin = static_cast<std::size_t>(ends(r, s));
      const auto end = static_cast<std::size_t>(ends(r, s + 1));
      require(begin < end, "begin < end");
      require(end <= options.length, "end <= options.length");
      std::vector<std::uint32_t> of;
      for (std::size_t i = begin; i < end; ++i) {
        const std::uint32_t token = tokens(r, i);
        const bool is_last = documents.is_last(token);
        of.push_back(token);
        places_right = places_right && positions(r, i) == static_cast<int>(i - begin);
        labels_right = labels_right &&
                       labels(r, i) == (is_last ? options.no_label : static_cast<int>(token + 1));
        starts_right = starts_right && (i == begin || token == of[i - begin - 1] + 1) &&
                       (!is_last || i + 1 == end);
      }
      row.sequences.push_back(of);
    }
    const auto used = static_cast<std::size_t>(ends(r, count));
    for (std::size_t s = count; s < ends.extent(1); ++s) {
      starts_right = starts_right && ends(r, s) == ends(r, count);
    }
    for (std::size_t i = used; i < options.length; ++i) {
      places_right = places_right && tokens(r, i) == options.padding && positions(r, i) == 0;
      labels_right = labels_right && labels(r, i) == options.no_label;
    }
    require(starts_right, "sequences");
    require(labels_right, "labels");
    require(places_right, "places");
    found.push_back(row);
  }
  return found;
}

template <class Rows>
std::vector<packed_sequences> rows_of(const Rows& rows, const numbered_documents& documents,
                                      const ps::packing_options& options) {
  return rows_of(rows, documents, options, all_rows(rows.size()));
}

// Returns log-normally distributed lengths, a few of which are very large.
std::vector<std::uint64_t> long_tailed(std::size_t count, double median, double spread) {
  std::vector<std::uint64_t> lengths;
  ps::sample_generator draw{{.seed = 11}, 0};
  for (std::size_t i = 0; i < count; ++i) {
    const double length = median * std::exp(spread * ps::normal(draw, 0.0, 1.0));
    lengths.push_back(static_cast<std::uint64_t>(length) + 1);
  }
  return lengths;
}

// A document source with lengths but without tokens.
struct only_lengths {
  std::vector<std::uint64_t> lengths;

  std::uint64_t size() const { return lengths.size(); }
  std::size_t token_bytes() const { return 2; }
  std::uint64_t length(std::uint64_t index) const { return lengths[index]; }
  std::span<const std::byte> bytes(std::uint64_t, ps::blob_buffer&) const { return {}; }
  std::int64_t label(std::uint64_t) const { return 0; }
  std::string key(std::uint64_t index) const { return std::to_string(index); }
};

}  // namespace

TEST_CASE("each token of each document is in exactly one row, with its label and place",
          "[text][promise:exact-13]") {
  const numbered_documents documents{test::mixed_lengths(500)};
  for (const std::size_t length : {1U, 2U, 17U, 64U, 2000U}) {
    for (const std::size_t window : {1U, 7U, 100U, 499U, 501U}) {
      for (const std::size_t max : {0U, 1U}) {
        CAPTURE(length, window, max);
        const ps::packing_options options{
            .length = length, .seed = 3, .window = window, .max_documents = max, .padding = 77};
        const auto rows = ps::pack_documents<std::uint32_t>(documents, options);
        CHECK(rows.tokens() == documents.tokens());
        std::vector<bool> seen(documents.tokens(), false);
        std::uint64_t count = 0;
        bool is_once = true;
        for (const auto& row : rows_of(rows, documents, options)) {
          is_once = is_once && (max != 1 || row.sequences.size() == 1);
          for (const auto& sequence : row.sequences) {
            for (const std::uint32_t token : sequence) {
              is_once = is_once && !seen.at(token);
              seen[token] = true;
              ++count;
            }
          }
        }
        CHECK(is_once);
        CHECK(count == documents.tokens());
        CHECK(rows.fill() ==
              Approx(static_cast<double>(count) / static_cast<double>(rows.size() * length)));
      }
    }
  }
}

TEST_CASE("a row is the same wherever and however often it is read", "[text][promise:exact-13]") {
  const numbered_documents documents{test::mixed_lengths(600)};
  const ps::packing_options options{.length = 64, .seed = 9, .window = 50};
  const auto rows = ps::pack_documents<std::uint32_t>(documents, options);
  const auto expected = rows_of(rows, documents, options);
  REQUIRE(expected.size() > 20);
  ps::packing_options few = options;
  few.cached_windows = 1;
  const auto other = ps::pack_documents<std::uint32_t>(documents, few);
  CHECK(other.fingerprint() == rows.fingerprint());
  CHECK(rows_of(other, documents, few) == expected);
  for (std::uint64_t i = 0; i < rows.size(); ++i) {  // alternates between rows of both halves
    const std::uint64_t index = i * 7919 % rows.size();
    const std::uint64_t back = rows.size() - 1 - index;
    const auto two = rows_of(other, documents, few, {index, back});
    CHECK(two[0] == expected[index]);
    CHECK(two[1] == expected[back]);
  }
}

TEST_CASE("another seed gives another packing, with documents from the whole source", "[text]") {
  const numbered_documents documents{test::mixed_lengths(1000)};
  ps::packing_options options{.length = 64, .window = 100};
  const auto first = ps::pack_documents<std::uint32_t>(documents, options);
  const auto rows = rows_of(first, documents, options);
  options.seed = 1;
  const auto second = ps::pack_documents<std::uint32_t>(documents, options);
  CHECK(rows_of(second, documents, options) != rows);
  CHECK(first.fingerprint() != second.fingerprint());
  for (const std::uint64_t part : {0U, 1U}) {  // the first tenth has tokens from both halves
    int found = 0;
    for (std::size_t r = 0; r < rows.size() / 10; ++r) {
      for (const auto& sequence : rows[r].sequences) {
        if (sequence.front() * std::uint64_t{2} / documents.tokens() == part) ++found;
      }
    }
    CHECK(found > 10);
  }
}

TEST_CASE("the same lengths in another order are another packing", "[text][promise:exact-13]") {
  for (const std::size_t window : {2U, 6U}) {
    const ps::packing_options options{.length = 8, .window = window};
    std::set<std::uint64_t> fingerprints;
    std::vector<std::uint64_t> lengths{3, 5, 5, 3, 3, 3};
    std::sort(lengths.begin(), lengths.end());
    std::size_t orders = 0;
    do {
      ++orders;
      fingerprints.insert(
          ps::pack_documents<std::uint32_t>(numbered_documents{lengths}, options).fingerprint());
    } while (std::next_permutation(lengths.begin(), lengths.end()));
    CHECK(orders == 15);
    CHECK(fingerprints.size() == orders);
  }
}

TEST_CASE("rows are at least 99 % full if few documents are long", "[text][promise:exact-13]") {
  const std::size_t count = 20'000;
  for (const auto& [median, spread] : {std::pair{400.0, 1.2}, std::pair{700.0, 1.0}}) {
    const auto rows = ps::pack_documents(only_lengths{long_tailed(count, median, spread)},
                                         {.length = 2048, .window = 4096});
    CAPTURE(median, spread, rows.fill(), rows.size());
    CHECK(rows.tokens() * 100 >= rows.size() * 2048 * 99);
    CHECK(rows.tokens() <= rows.size() * 2048);
    // Four windows of 4096 documents, and the remaining documents.
    CHECK(rows.window_rows() == rows.size() / 4);
  }
}

TEST_CASE("a packing never changes: golden rows", "[text][promise:exact-13]") {
  const numbered_documents documents{
      {5, 3, 8, 21, 0, 2, 2, 7, 1, 4, 40, 3, 6, 1, 1, 9, 11, 12, 30, 2}};
  const ps::packing_options options{.length = 12, .seed = 4, .window = 8, .max_documents = 3};
  const auto rows = ps::pack_documents<std::uint32_t>(documents, options);
  std::string text;
  for (const auto& row : rows_of(rows, documents, options)) {
    for (const auto& sequence : row.sequences) {
      text += std::to_string(sequence.front()) + '+' + std::to_string(sequence.size()) + ' ';
    }
    text += "| ";
  }
  CHECK(text ==
        "77+12 | 65+12 | 53+12 | 89+4 8+8 | 28+9 5+3 | 16+12 | 103+1 41+7 37+2 | 124+12 | 136+12 | "
        "93+3 49+4 0+5 | 96+6 160+6 | 39+2 | 166+2 102+1 104+9 | 113+11 48+1 | 148+12 | ");
  CHECK(rows.fingerprint() == 0x7de7052ef31e767eU);
}

TEST_CASE("a document that is longer than a row may be rejected", "[text][fault:files-9]") {
  const numbered_documents documents{{3, 9, 8}};
  const auto rejected = error_of<ps::document_error>([&] {
    (void)ps::pack_documents<std::uint32_t>(documents,
                                            {.length = 8, .longer = ps::long_documents::reject});
  });
  CHECK(rejected.document() == 1);
  CHECK(std::string{rejected.what()} ==
        "document 1 (number 1): expected at most 8 tokens (length), found 9: split the document "
        "(long_documents::split), or raise the length of rows");
  CHECK(ps::pack_documents<std::uint32_t>(documents,
                                          {.length = 9, .longer = ps::long_documents::reject})
            .size() == 3);
  const only_lengths endless{{3, std::uint64_t{1} << 39U}};
  CHECK(error_of<ps::document_error>([&] { (void)ps::pack_documents(endless); }).document() == 1);
}

TEST_CASE("invalid options of a packing are rejected by name", "[text]") {
  const only_lengths some{{3}};
  const auto rejected = [&](const ps::packing_options& options) {
    return error_of<ps::option_error>([&] { (void)ps::pack_documents(some, options); }).option();
  };
  CHECK(rejected({.length = 0}) == "length");
  CHECK(rejected({.length = std::size_t{1} << 31U}) == "length");
  CHECK(rejected({.window = 0}) == "window");
  CHECK(rejected({.length = 8, .max_documents = 9}) == "max_documents");
  CHECK(rejected({.cached_windows = 0}) == "cached_windows");
  CHECK(rejected({.padding = 65536}) == "padding");
  const auto size =
      error_of<ps::option_error>([&] { (void)ps::pack_documents<std::uint32_t>(some); });
  CHECK(size.option() == "Token");
  CHECK(test::has(size.what(), "has 4 bytes, but the documents' tokens have 2"));
}

TEST_CASE("an empty source and empty documents give no rows", "[text]") {
  CHECK(ps::pack_documents(only_lengths{}).size() == 0);
  const auto rows = ps::pack_documents(only_lengths{{0, 0, 0}}, {.window = 1});
  CHECK(rows.size() == 0);
  CHECK(rows.fill() == 1);
  CHECK(rows.window_rows() == 1);
  CHECK(error_of<ps::index_error>([&] { (void)test::read_batch(rows, {0}); }).size() == 0);
}

TEST_CASE("documents that change after packing are detected", "[text][fault:files-9]") {
  numbered_documents documents{{30, 3, 4, 5}};
  const ps::packing_options options{.length = 8};
  SECTION("if their number of rows changes") {
    const auto rows = ps::pack_documents<std::uint32_t>(documents, options);
    documents.lengths_[0] = 6;
    CHECK(test::has(error_of<ps::documents_changed>([&] {
                      (void)test::read_batch(rows, all_rows(rows.size()));
                    }).what(),
                    "fill 7 rows in window 0, found documents that fill 4"));
  }
  SECTION("if their lengths change but not the number of rows") {
    const auto rows = ps::pack_documents<std::uint32_t>(documents, options);
    std::swap(documents.lengths_[1], documents.lengths_[3]);
    CHECK(test::has(
        error_of<ps::documents_changed>([&] { (void)test::read_batch(rows, {0}); }).what(),
        "expected in window 0 the document lengths at the time of packing, found different"));
  }
  SECTION("if the length of one document changes") {
    const auto rows = ps::pack_documents<std::uint32_t>(documents, options);
    (void)test::read_batch(rows, {0});
    documents.lengths_[1] = 2;
    const auto changed =
        error_of<ps::document_error>([&] { (void)test::read_batch(rows, all_rows(rows.size())); });
    CHECK(changed.document() == 1);
    CHECK(test::has(changed.what(), "expected 3 tokens, as at the time of packing, found 8 bytes"));
  }
}

TEST_CASE("a token that cannot be a label is rejected with its document", "[text][fault:files-9]") {
  for (const std::size_t at : {0U, 2U, 17U, 39U}) {
    numbered_documents documents{{3, 37, 2}};
    documents.tokens_[at] = 0x8000'0000U;
    const auto rows = ps::pack_documents<std::uint32_t>(documents, {.length = 20});
    const auto found =
        error_of<ps::document_error>([&] { (void)test::read_batch(rows, all_rows(rows.size())); });
    CHECK(found.document() == (at < 3 ? 0 : 1));
    CHECK(test::has(found.what(), "expected tokens from 0 to 2^31 - 1"));
  }
}

TEST_CASE("Megatron's documents are packed", "[text]") {
  const test::temp_dir dir;
  std::string index{"MMIDIDX\0\0", 9};
  index += test::little(1, 8) + test::little(8, 1) + test::little(3, 8) + test::little(3, 8);
  index += test::little(2, 4) + test::little(1, 4) + test::little(3, 4);
  index += test::little(0, 8) + test::little(4, 8) + test::little(6, 8);
  index += test::little(0, 8) + test::little(2, 8) + test::little(3, 8);
  test::write_file(dir.path("text.idx"), index);
  test::write_file(dir.path("text.bin"),
                   test::bytes_of(std::vector<std::uint16_t>{1, 2, 3, 40'000, 50'000, 60'000}));
  ps::megatron_documents documents{dir.path("text")};
  CHECK(documents.length(0) == 3);
  CHECK(documents.length(1) == 3);
  CHECK(error_of<ps::index_error>([&] { (void)documents.length(2); }).size() == 2);
  const auto rows = ps::pack_documents(std::move(documents), {.length = 8, .max_documents = 4});
  auto batch = test::read_batch(rows, {0});
  using tokens = std::vector<std::uint16_t>;
  using numbers = std::vector<std::int32_t>;
  const bool is_turned = test::values<"tokens">(batch)[0] != 1;
  CHECK(test::values<"tokens">(batch) == (is_turned
                                              ? tokens{40'000, 50'000, 60'000, 1, 2, 3, 0, 0}
                                              : tokens{1, 2, 3, 40'000, 50'000, 60'000, 0, 0}));
  CHECK(test::values<"labels">(batch) ==
        (is_turned ? numbers{50'000, 60'000, -100, 2, 3, -100, -100, -100}
                   : numbers{2, 3, -100, 50'000, 60'000, -100, -100, -100}));
  CHECK(test::values<"position_ids">(batch) == numbers{0, 1, 2, 0, 1, 2, 0, 0});
  CHECK(test::values<"cu_seqlens">(batch) == numbers{0, 3, 6, 6, 6});
  CHECK(test::values<"sequences">(batch) == numbers{2});
}

TEST_CASE("documents with bulk lengths and hints are packed the same", "[text][promise:exact-13]") {
  const ps::packing_options options{.length = 64, .seed = 3, .window = 100};
  const numbered_documents plain{test::mixed_lengths(700)};
  const reporting_documents reported{test::mixed_lengths(700)};
  const auto plain_rows = ps::pack_documents<std::uint32_t>(plain, options);
  const auto reported_rows = ps::pack_documents<std::uint32_t>(reported, options);
  CHECK(reported.requested == 7);  // one call per window
  CHECK(reported.hints == 0);
  REQUIRE(reported_rows.fingerprint() == plain_rows.fingerprint());
  std::vector<std::uint64_t> backwards = all_rows(plain_rows.size());
  std::reverse(backwards.begin(), backwards.end());
  for (const auto& indices : {all_rows(plain_rows.size()), backwards}) {
    CHECK(rows_of(reported_rows, reported, options, indices) ==
          rows_of(plain_rows, plain, options, indices));
  }
  CHECK(reported.hints > 0);
  CHECK(reported.are_parts);
  CHECK(reported.all_were_hinted);
}

TEST_CASE("only the most recently read windows are kept", "[text]") {
  const reporting_documents reported{test::mixed_lengths(400)};
  const ps::packing_options options{.length = 64, .window = 100, .cached_windows = 2};
  const auto rows = ps::pack_documents<std::uint32_t>(reported, options);
  const std::uint64_t last = rows.size() - 1;
  std::vector<std::size_t> packed;
  for (const std::uint64_t index : {std::uint64_t{0}, last, std::uint64_t{0}, last / 2, last,
                                    std::uint64_t{0}, std::uint64_t{0}}) {
    const std::size_t before = reported.requested;
    static_cast<void>(test::read_batch(rows, {index}));
    packed.push_back(reported.requested - before);
  }
  CHECK(packed == std::vector<std::size_t>{1, 1, 0, 1, 1, 1, 0});
}

TEST_CASE("tokens around a block of sixteen have their labels and positions",
          "[text][promise:exact-13]") {
  for (std::uint64_t length = 1; length <= 50; ++length) {
    const numbered_documents documents{{length, 3}};
    const ps::packing_options options{.length = 64, .seed = 1};
    const auto rows = ps::pack_documents<std::uint32_t>(documents, options);
    CHECK(rows_of(rows, documents, options, all_rows(rows.size())).size() == rows.size());
  }
}
