// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as an AWS profile file. Names, values and error positions must lie within
// the file.
#include <penstock_ext/store/http/detail/s3/aws_config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  static_cast<void>(ps::detail::expanded(text.substr(0, text.find('\0'))));
  const auto words = ps::detail::shell_words(text);
  std::size_t letters = 0;
  for (const std::string& word : words ? *words : std::vector<std::string>{}) {
    letters += word.size();
  }
  fuzz::require(letters <= size, "words are shorter than their text");
  const auto lines =
      1 + static_cast<std::size_t>(std::count_if(text.begin(), text.end(),
                                                 [](char c) { return c == '\n' || c == '\r'; }));
  try {
    for (const auto& section : ps::detail::parse_aws_file(text, "fuzzed")) {
      fuzz::require(text.find(section.name) != std::string_view::npos, "a name stands in the text");
      static_cast<void>(ps::detail::name_in(section.name, "profile"));
      for (const auto& named : section.settings) {
        const auto& setting = named.second;
        fuzz::require(!named.first.empty(), "a setting has a name");
        fuzz::require(setting.line >= 1 && setting.line <= lines, "a setting stands on a line");
        fuzz::require(setting.offset < size, "a setting stands in the text");
        const std::string_view value = setting.value;
        fuzz::require(text.find(value.substr(0, value.find('\n'))) != std::string_view::npos,
                      "a value stands in the text");
        fuzz::require(!value.ends_with('\n'), "a value does not end with a line break");
        ps::detail::for_each_nested(setting, [&](std::string_view inner, const auto& of_inner,
                                                 std::size_t line) {
          fuzz::require(of_inner || !value.starts_with('\n'), "a setting in a list has a value");
          fuzz::require(line <= lines, "a line is one of the text");
          fuzz::require(inner.find('\n') == std::string_view::npos, "a name is of one line");
        });
      }
    }
  } catch (const ps::file_format_error& error) {
    fuzz::require(error.offset() < size, "an error points into the text");
  }
  return 0;
}
