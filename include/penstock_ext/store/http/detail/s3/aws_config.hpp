// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a profile of the files ~/.aws/credentials and ~/.aws/config says that a store needs; "" for
/// what is not there.
struct aws_profile {
  std::string key_id = {};
  std::string secret = {};
  std::string session_token = {};
  std::string region = {};
  bool is_there = false;
};

[[nodiscard]] inline std::string_view without_blanks(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// The name in a section's line: "x" of "[x]", "[profile x]" and "[profile \"x\"]"; "" for what is
/// no profile, such as "[sso-session x]".
[[nodiscard]] inline std::string_view profile_name(std::string_view line) noexcept {
  const std::size_t end = line.find(']');
  if (end == std::string_view::npos) return {};
  std::string_view name = without_blanks(line.substr(1, end - 1));
  const std::size_t blank = name.find_first_of(" \t");
  if (blank != std::string_view::npos) {
    if (name.substr(0, blank) != "profile") return {};
    name = without_blanks(name.substr(blank));
  }
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
    name = name.substr(1, name.size() - 2);
  }
  return name;
}

/// Reads what `text`, the content of the file `path`, says about the profile `profile`, besides
/// what `found` has already. Settings that are indented belong to another one and are left out, as
/// are comments. Throws `file_format_error` for a line of the profile that is no setting, without
/// its text, which may be secret.
inline void read_aws_profile(std::string_view text, const std::string& path,
                             std::string_view profile, aws_profile& found) {
  bool is_inside = false;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t newline = (std::min)(text.find('\n', begin), text.size());
    const std::string_view raw = text.substr(begin, newline - begin);
    const std::size_t offset = begin;
    begin = newline + 1;
    const std::string_view line = without_blanks(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      is_inside = profile_name(line) == profile && !profile.empty();
      found.is_there |= is_inside;
      continue;
    }
    if (!is_inside || raw.front() == ' ' || raw.front() == '\t') continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      throw file_format_error(path, offset, "a setting, \"name = value\"", "a line without '='");
    }
    const std::string_view name = without_blanks(line.substr(0, equals));
    std::string_view value = without_blanks(line.substr(equals + 1));
    for (const std::string_view comment : {" #", " ;", "\t#", "\t;"}) {
      value = without_blanks(value.substr(0, value.find(comment)));
    }
    std::string* const wanted = name == "aws_access_key_id"       ? &found.key_id
                                : name == "aws_secret_access_key" ? &found.secret
                                : name == "aws_session_token"     ? &found.session_token
                                : name == "region"                ? &found.region
                                                                  : nullptr;
    if (wanted != nullptr && wanted->empty()) *wanted = value;
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
