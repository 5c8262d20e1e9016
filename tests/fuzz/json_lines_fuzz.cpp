// SPDX-License-Identifier: BSL-1.0
// Reads any bytes as JSON Lines. Each line is read into a record, with the lengths that the dataset
// returns, or is rejected with an error that points to it. Two reads of a line have the same
// result.
#include <penstock_ext/indexed/json/json_lines.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

namespace {

using format = ps::detail::json_line_format;
using post = ps::record<ps::field<"a", std::uint8_t, ps::ragged>, ps::field<"b", float, ps::ragged>,
                        ps::field<"c", std::int32_t, ps::ragged>, ps::field<"d", std::int16_t>,
                        ps::field<"e", bool, 2, 1>, ps::field<"f", double>>;

void add_token(std::string_view text, std::string_view, std::vector<std::uint32_t>& tokens) {
  for (const char one : text) tokens.push_back(static_cast<std::uint32_t>(one));
}

// Returns the values of a line, or its error.
std::string read(const ps::detail::json_lines_file<post>& part, std::uint64_t index,
                 std::size_t bytes) {
  const auto lengths = part.lengths(index);
  fuzz::require(lengths[0] <= bytes && lengths[1] <= bytes / 2 && lengths[2] <= bytes,
                "as many values as have room");
  std::vector<std::uint8_t> a(lengths[0]);
  std::vector<float> b(lengths[1]);
  std::vector<std::int32_t> c(lengths[2]);
  std::int16_t d = 0;
  bool e[2] = {};
  double f = 0;
  std::byte* const fields[] = {
      reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data()),
      reinterpret_cast<std::byte*>(c.data()), reinterpret_cast<std::byte*>(&d),
      reinterpret_cast<std::byte*>(e),        reinterpret_cast<std::byte*>(&f)};
  const std::size_t sizes[] = {a.size(), b.size() * 4, c.size() * 4, sizeof d, sizeof e, sizeof f};
  try {
    part.read(index, {{fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]},
                      part.extents(),
                      lengths});
  } catch (const ps::json_line_error& error) {
    fuzz::require(error.line() == index + 1 && error.offset() <= bytes &&
                      error.column() <= error.offset() + 1,
                  "an error points to its line");
    return error.what();
  }
  std::string all;
  for (std::size_t i = 0; i < 6; ++i) all.append(reinterpret_cast<char*>(fields[i]), sizes[i]);
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::scratch_file text_file;
  static const fuzz::scratch_file index_file;
  text_file.write(std::as_bytes(std::span{data, size}));
  ps::mapped_file text{text_file.path()};
  if (!ps::detail::foreign_format_of(text.bytes()).name.empty()) return 0;
  const auto found = format::scan(text, 1, [](std::uint64_t) {});
  ps::detail::index_header head{.count = found.count, .longest = found.longest};
  std::vector<std::byte> kept(sizeof head + found.marks.size() * sizeof(std::uint64_t));
  if (!found.marks.empty()) {
    std::memcpy(kept.data() + sizeof head, found.marks.data(), kept.size() - sizeof head);
  }
  std::memcpy(kept.data(), &head, sizeof head);
  head.checksum = ps::detail::checksum_of_index(kept);
  std::memcpy(kept.data(), &head, sizeof head);
  index_file.write(kept);
  const auto state = std::make_shared<ps::detail::json_lines_state>(
      ps::json_lines_options{.tokenizer = add_token});
  const ps::detail::json_lines_file<post> part{
      std::move(text),
      ps::detail::sample_index{ps::mapped_file{index_file.path()}, format::step, head},
      std::nullopt, state};
  for (std::uint64_t i = 0; i < (std::min)(part.size(), std::uint64_t{8}); ++i) {
    fuzz::require(read(part, i, size) == read(part, i, size), "the same result again");
  }
  return 0;
}
