// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/text/packed_documents.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ext/text/token_lists.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::numbered_documents;

namespace {

// A document, its first hinted token, and the number of hinted tokens.
using hinted_part = std::vector<std::uint64_t>;
using hinted_parts = std::vector<hinted_part>;

// A document source that records the parts in each prefetch call.
struct hinted_documents : numbered_documents {
  using numbered_documents::numbered_documents;

  void prefetch(std::span<const ps::document_part> parts) const noexcept {
    hinted_parts& call = calls.emplace_back();
    for (const ps::document_part& part : parts) {
      call.push_back({part.document, part.begin, part.tokens});
    }
  }

  mutable std::vector<hinted_parts> calls;
};

ps::detail::packed_window only_window(const numbered_documents& documents, std::size_t length) {
  const auto options = ps::detail::resolved_packing({.length = length, .max_documents = length});
  return ps::detail::window_packer{documents, options}.pack(0);
}

hinted_parts pieces_of_rows(const ps::detail::packed_window& window, std::uint64_t count) {
  hinted_parts pieces;
  for (std::uint64_t row = 0; row < count; ++row) {
    window.for_each_piece(row, [&](const ps::detail::packed_piece& piece) {
      pieces.push_back({piece.document, piece.begin, piece.tokens});
    });
  }
  return pieces;
}

hinted_parts starts_of(hinted_parts pieces) {
  for (hinted_part& piece : pieces) piece.back() = 1;
  return pieces;
}

}  // namespace

TEST_CASE("hints name the first tokens of pieces, then each piece before it is read", "[text]") {
  const hinted_documents documents{{5, 3, 9, 4, 20, 2}};
  const auto window = only_window(documents, 8);
  REQUIRE(window.rows() == 6);
  const hinted_parts pieces = pieces_of_rows(window, 6);
  ps::detail::piece_hints<hinted_documents> hints{documents};
  CHECK(hints.take(window, 100, std::vector<std::uint64_t>{100, 101, 102, 103, 104, 105}) == 6);
  REQUIRE(documents.calls.size() == 2);
  CHECK(documents.calls[0] == starts_of(pieces));
  CHECK(documents.calls[1] == hinted_parts{pieces[0]});
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    hints.advance();  // piece i is being read
    REQUIRE(documents.calls.size() == 2 + (i + 1 < pieces.size() ? i + 1 : i));
    if (i + 1 < pieces.size()) CHECK(documents.calls.back() == hinted_parts{pieces[i + 1]});
  }
}

TEST_CASE("hints do not name rows of another window", "[text]") {
  const hinted_documents documents{{8, 8, 8}};
  const auto window = only_window(documents, 8);
  ps::detail::piece_hints<hinted_documents> hints{documents};
  CHECK(hints.take(window, 10, std::vector<std::uint64_t>{12, 10, 13, 11}) == 2);
  CHECK(documents.calls[0].size() == 2);
  CHECK(hints.take(window, 10, std::vector<std::uint64_t>{12, 9}) == 1);
  hints.advance();
  CHECK(documents.calls.size() == 4);  // two calls per document
}

TEST_CASE("hints name few pieces at a time, even for rows with many", "[text]") {
  const hinted_documents documents{std::vector<std::uint64_t>(90, 1)};
  const auto window = only_window(documents, 30);
  REQUIRE(window.rows() == 3);
  const hinted_parts pieces = pieces_of_rows(window, 1);
  ps::detail::piece_hints<hinted_documents> hints{documents};
  CHECK(hints.take(window, 0, std::vector<std::uint64_t>{0, 1, 2}) == 1);
  CHECK(documents.calls[0] == starts_of({pieces.begin(), pieces.begin() + 24}));
  for (std::size_t i = 0; i < pieces.size(); ++i) hints.advance();
  CHECK(documents.calls.size() == 1 + 24);
  CHECK(hints.take(window, 0, std::vector<std::uint64_t>{1, 2}) == 1);
  CHECK(documents.calls.size() == 27);
}

TEST_CASE("documents without hints receive none", "[text]") {
  const numbered_documents documents{{5, 3, 9}};
  const auto window = only_window(documents, 8);
  ps::detail::piece_hints<numbered_documents> hints{documents};
  CHECK(hints.take(window, 0, std::vector<std::uint64_t>{0, 1, 7}) == 3);
  hints.advance();
}
