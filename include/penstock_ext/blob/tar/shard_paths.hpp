// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The paths that a pattern in WebDataset's notation stands for: "train-{000..146}.tar" is 147
/// paths, with numbers of as many digits as the first has. Ranges may follow each other; the last
/// one counts fastest. What is in braces and no range stays as it is. Throws `option_error` for a
/// range that goes down, and for more than a million paths.
[[nodiscard]] inline std::vector<std::string> shard_paths(std::string_view pattern) {
  constexpr std::uint64_t most = 1'000'000;
  std::vector<std::string> paths{""};
  while (true) {
    // The next range: digits, two dots, digits.
    std::size_t open = pattern.find('{');
    std::size_t close = 0;
    std::string_view first;
    std::string_view last;
    for (; open != std::string_view::npos; open = pattern.find('{', open + 1)) {
      close = pattern.find('}', open);
      const std::string_view inside =
          pattern.substr(open + 1, close == std::string_view::npos ? 0 : close - open - 1);
      const std::size_t dots = inside.find("..");
      const auto is_number = [](std::string_view text) {
        return !text.empty() && text.size() < 19 &&
               std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
      };
      if (dots == std::string_view::npos) continue;
      first = inside.substr(0, dots);
      last = inside.substr(dots + 2);
      if (is_number(first) && is_number(last)) break;
    }
    const std::string_view before = pattern.substr(0, open);
    for (std::string& path : paths) path += before;
    if (open == std::string_view::npos) return paths;
    const auto number = [](std::string_view text) {
      std::uint64_t value = 0;
      static_cast<void>(std::from_chars(text.data(), text.data() + text.size(), value));
      return value;
    };
    const std::uint64_t begin = number(first);
    const std::uint64_t end = number(last);
    const std::string range{pattern.substr(open, close - open + 1)};
    if (end < begin) throw option_error("shards", range + " goes down");
    if (end - begin >= most / paths.size()) {
      throw option_error("shards", range + " makes more than a million paths");
    }
    std::vector<std::string> longer;
    longer.reserve(paths.size() * static_cast<std::size_t>(end - begin + 1));
    for (const std::string& path : paths) {
      for (std::uint64_t i = begin; i <= end; ++i) {
        std::string digits = std::to_string(i);
        if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
        longer.push_back(path + digits);
      }
    }
    paths = std::move(longer);
    pattern.remove_prefix(close + 1);
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
