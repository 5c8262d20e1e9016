// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as the header of an HTTP response. A range or a checksum in the result
// must be valid.
#include <penstock_ext/store/http/detail/answer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  ps::detail::http_answer answer;
  for (std::size_t begin = 0; begin < size;) {
    const std::size_t end = std::min(text.find('\n', begin), size - 1);
    answer.add_line(text.substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  fuzz::require(answer.status == 0 || (answer.status >= 100 && answer.status <= 999),
                "a status has three digits");
  fuzz::require(answer.has_range || !answer.range, "a range is of a line");
  if (answer.range) {
    const auto& range = *answer.range;
    fuzz::require(range.begin <= range.end, "a range does not end before its start");
    fuzz::require(range.begin < range.end || range.total, "no range, but a size");
    fuzz::require(!range.total || range.end <= *range.total, "a range lies in its object");
  }
  if (auto said = answer.digest_of_body()) {
    fuzz::require(answer.body || answer.object, "a sum is of a line");
    ps::detail::body_checksum sum{std::move(*said)};
    sum.add(std::as_bytes(std::span{data, size}));
    static_cast<void>(sum.difference());
  }
  return 0;
}
