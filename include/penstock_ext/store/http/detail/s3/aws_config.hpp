// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A setting in an AWS configuration file, or an environment variable that overrides it.
struct aws_setting {
  /// Value, which starts with a line break if it is a list of indented settings.
  std::string value = {};
  std::string path = {};   ///< file path or variable name
  std::size_t offset = 0;  ///< byte offset of the line
  std::size_t line = 0;    ///< line number starting at 1, or 0 for a variable

  /// Throws `file_format_error` with the file and line. The message never contains the value, which
  /// may be secret.
  [[noreturn]] void reject(std::string expected, const std::string& found) const {
    throw file_format_error(path, offset, std::move(expected),
                            (line == 0 ? "" : "in line " + std::to_string(line) + " ") + found);
  }
};

/// Settings by lower-case name.
using aws_settings = std::map<std::string, aws_setting, std::less<>>;

/// A section of an AWS configuration file.
struct aws_section {
  std::string name;  ///< the text between the brackets
  aws_settings settings = {};
};

/// Returns `text` without leading and trailing blanks.
[[nodiscard]] inline std::string_view without_blanks(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\n\v\f\x1c\x1d\x1e\x1f";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// Returns `value` without surrounding blanks and without a trailing comment. Botocore keeps such a
/// comment, but no setting that a store uses has a blank in its value.
[[nodiscard]] inline std::string_view without_comment(std::string_view value) noexcept {
  for (const std::string_view comment : {" #", " ;", "\t#", "\t;"}) {
    value = value.substr(0, value.find(comment));
  }
  return without_blanks(value);
}

/// Calls `use(name, value, line)` for each nested setting of `outer`, such as the settings below
/// "s3 =". For a line without '=', `name` is the line and `value` is empty.
template <class Use>
void for_each_nested(const aws_setting& outer, const Use& use) {
  std::size_t line = outer.line;
  for (std::string_view left = outer.value; !left.empty(); ++line) {
    const std::string_view one = left.substr(0, left.find('\n'));
    left.remove_prefix((std::min)(one.size() + 1, left.size()));
    if (one.empty()) continue;
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos) {
      use(one, std::optional<std::string_view>{}, line);
    } else {
      use(without_blanks(one.substr(0, equals)),
          std::optional{without_blanks(one.substr(equals + 1))}, line);
    }
  }
}

/// Returns the nested setting `name` of `outer`, or nothing if it is missing.
[[nodiscard]] inline std::optional<aws_setting> nested(const aws_setting& outer,
                                                       std::string_view name) {
  std::optional<aws_setting> found;
  for_each_nested(outer, [&](std::string_view inner, auto value, std::size_t line) {
    if (inner == name && value) {
      found = aws_setting{std::string{*value}, outer.path, outer.offset, line};
    }
  });
  return found;
}

/// Parses `text`, the content of the file `path`, like Python's configparser and botocore. Setting
/// names are case-insensitive. A line that is indented deeper than the previous setting belongs to
/// that setting. The settings in [DEFAULT] apply to each section. Throws `file_format_error` for
/// any other line, and for a duplicate section or setting.
[[nodiscard]] inline std::vector<aws_section> parse_aws_file(std::string_view text,
                                                             const std::string& path) {
  std::vector<aws_section> sections;
  const auto find = [&](std::string_view name) {
    return std::find_if(sections.begin(), sections.end(),
                        [&](const aws_section& one) { return one.name == name; });
  };
  constexpr std::string_view common = "DEFAULT";
  aws_section* section = nullptr;
  aws_setting* open = nullptr;  // the setting to which indented lines belong
  std::size_t indent = 0;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = (std::min)(text.find_first_of("\r\n", begin), text.size());
    const std::string_view raw = text.substr(begin, end - begin);
    const std::string_view line = without_blanks(raw);
    const aws_setting here{{}, path, begin, ++number};
    begin = end + (text.substr(end, 2) == "\r\n" ? 2 : 1);
    if (line.empty() || line.front() == '#' || line.front() == ';') {
      // Keeps the line numbers of nested settings correct.
      if (open != nullptr) open->value += '\n';
      continue;
    }
    const auto depth = static_cast<std::size_t>(line.data() - raw.data());
    if (open != nullptr && depth > indent) {
      open->value.append("\n").append(without_comment(line));
      continue;
    }
    indent = depth;
    const std::size_t bracket = line.rfind(']');
    if (line.front() == '[' && bracket != std::string_view::npos && bracket > 1) {
      const std::string_view name = line.substr(1, bracket - 1);
      auto at = find(name);
      if (at == sections.end()) {
        at = sections.insert(at, {std::string{name}});
      } else if (name != common) {
        here.reject("each section once", "a repeated section: merge the two");
      }
      section = &*at;
      open = nullptr;
      continue;
    }
    const std::size_t mark = line.find_first_of("=:");
    if (section == nullptr || mark == std::string_view::npos || mark == 0) {
      here.reject("a section, \"[name]\", and in it settings, \"name = value\"",
                  section == nullptr ? "another line before the first section" : "another line");
    }
    const auto [at, is_new] =
        section->settings.try_emplace(in_lower_case(without_blanks(line.substr(0, mark))), here);
    if (!is_new) {
      here.reject(
          "each setting of a section once",
          "the setting of line " + std::to_string(at->second.line) + " again: remove one of them");
    }
    open = &at->second;
    open->value = without_comment(without_blanks(line.substr(mark + 1)));
  }
  for (aws_section& one : sections) {
    for (auto& named : one.settings) {
      aws_setting& setting = named.second;
      setting.value.resize(setting.value.find_last_not_of('\n') + 1);
      if (!setting.value.starts_with('\n')) continue;
      for_each_nested(setting, [&](std::string_view, const auto& value, std::size_t line) {
        if (value) return;
        const aws_setting bad{{}, path, setting.offset, line};
        bad.reject("an indented setting, \"name = value\"", "a line without '='");
      });
    }
  }
  if (const auto at = find(common); at != sections.end()) {
    const aws_settings shared = std::move(at->settings);
    sections.erase(at);
    for (aws_section& one : sections) one.settings.insert(shared.begin(), shared.end());
  }
  return sections;
}

/// Splits `text` into words by POSIX shell rules for quotes and backslashes, like Python's
/// shlex.split. Returns nothing if a quotation is not closed.
[[nodiscard]] inline std::optional<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote == '\0' && (text[i] == ' ' || text[i] == '\t')) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote != '\0' && text[i] == quote) {
      quote = '\0';
    } else if (quote == '\0' && (text[i] == '"' || text[i] == '\'')) {
      quote = text[i];
    } else if (text[i] == '\\' && quote != '\'') {
      if (++i == text.size()) return std::nullopt;
      if (quote == '"' && text[i] != '"' && text[i] != '\\') words.back() += '\\';
      words.back() += text[i];
    } else {
      words.back() += text[i];
    }
  }
  if (quote != '\0') return std::nullopt;
  return words;
}

/// Returns the name in a section header such as "profile x" or "profile 'x'". `kind` is the first
/// word, such as "profile" or "services". Returns "" if the section is of a different kind.
[[nodiscard]] inline std::string name_in(std::string_view section, std::string_view kind) {
  if (!section.starts_with(kind)) return {};
  auto words = shell_words(section);
  return words && words->size() == 2 ? std::move((*words)[1]) : std::string{};
}

/// Returns an environment variable, or "" if it is not set.
[[nodiscard]] inline std::string from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string{value};
}

[[nodiscard]] inline std::string first_of(std::string a, std::string b) {
  return a.empty() ? std::move(b) : std::move(a);
}

/// Returns the user's home folder: HOME, or if HOME is not set, the folder in the system user
/// database.
[[nodiscard]] inline std::string home_folder() {
  if (std::getenv("HOME") != nullptr) return from_environment("HOME");
  ::passwd user{};
  ::passwd* found = nullptr;
  std::array<char, 4096> room{};
  ::getpwuid_r(::getuid(), &user, room.data(), room.size(), &found);
  return found == nullptr ? std::string{} : std::string{found->pw_dir};
}

/// Returns `path` with "$NAME", "${NAME}" and a leading "~" expanded. Unset variables remain
/// unchanged.
[[nodiscard]] inline std::string expanded(std::string_view path) {
  constexpr std::string_view word =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool is_braced = path.substr(i).starts_with("${");
    const std::size_t begin = i + (is_braced ? 2 : 1);
    const std::size_t end = path[i] != '$' ? 0
                            : is_braced
                                ? path.find('}', begin)
                                : (std::min)(path.find_first_not_of(word, begin), path.size());
    const char* value = nullptr;
    if (end > begin && end != std::string_view::npos) {
      value = std::getenv(std::string{path.substr(begin, end - begin)}.c_str());
    }
    out += value == nullptr ? std::string{path[i]} : std::string{value};
    if (value != nullptr) i = is_braced ? end : end - 1;
  }
  if (out == "~" || out.starts_with("~/")) out.replace(0, 1, home_folder());
  return out;
}

/// The settings of a profile in ~/.aws/credentials and ~/.aws/config, or in the files specified by
/// environment variables. The credentials file takes precedence.
class aws_profile {
 public:
  /// Reads the profile `name` from both files. Throws `file_unreadable` if a file exists but cannot
  /// be read, and `file_format_error` if a file is invalid.
  explicit aws_profile(std::string name) : name_(std::move(name)) {
    for (aws_section& one : sections_of("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials")) {
      if (one.name == name_) credentials_ = std::move(one.settings);
    }
    std::vector<aws_section> sections = sections_of("AWS_CONFIG_FILE", "/.aws/config");
    for (const aws_section& one : sections) {  // the last section takes precedence
      const bool is_default = one.name == name_ && name_ == "default";
      if (is_default || name_in(one.name, "profile") == name_) config_ = one.settings;
    }
    const aws_setting* const services = find("services");
    if (services == nullptr) return;
    for (const aws_section& one : sections) {
      if (name_in(one.name, "services") == services->value) services_ = one.settings;
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Returns true if a file contains the profile.
  [[nodiscard]] bool is_there() const noexcept { return credentials_ || config_; }
  /// Returns the paths of both files, for messages.
  [[nodiscard]] const std::string& files() const noexcept { return files_; }
  /// Returns the settings in the credentials file, or nothing if it does not contain the profile.
  [[nodiscard]] const std::optional<aws_settings>& credentials() const { return credentials_; }
  /// Returns the settings in the config file, or nothing if it does not contain the profile.
  [[nodiscard]] const std::optional<aws_settings>& config() const { return config_; }

  /// Returns a setting of the profile, or null if it is missing.
  [[nodiscard]] const aws_setting* find(std::string_view name) const {
    for (const auto* const file : {&credentials_, &config_}) {
      if (!*file) continue;
      if (const auto at = (*file)->find(name); at != (*file)->end()) return &at->second;
    }
    return nullptr;
  }

  /// Returns a setting in the profile's list "s3 =". Throws `file_format_error` if "s3" is not a
  /// list.
  [[nodiscard]] std::optional<aws_setting> find_s3(std::string_view name) const {
    const aws_setting* const list = find("s3");
    if (list == nullptr) return std::nullopt;
    if (!list->value.starts_with('\n')) list->reject("indented settings below s3", "none");
    return nested(*list, name);
  }

  /// Returns the endpoint in the profile's services section, or the profile's own endpoint. Throws
  /// `file_format_error` if the services section does not exist.
  [[nodiscard]] std::optional<aws_setting> endpoint() const {
    if (const aws_setting* const services = find("services")) {
      if (!services_) {
        services->reject("services, the name of a section [services ...] of the config file",
                         "a name without such a section");
      }
      const auto s3 = services_->find("s3");
      if (s3 != services_->end()) {
        auto url = nested(s3->second, "endpoint_url");
        if (url && !url->value.empty()) return url;
      }
    }
    const aws_setting* const url = find("endpoint_url");
    return url == nullptr || url->value.empty() ? std::nullopt : std::optional{*url};
  }

 private:
  // Returns the sections of the file specified by the environment variable `variable`, or of the
  // file `usual` in the home folder. Returns nothing if the file does not exist.
  [[nodiscard]] std::vector<aws_section> sections_of(const char* variable,
                                                     const std::string& usual) {
    const bool is_named = std::getenv(variable) != nullptr;
    const std::string home = is_named ? std::string{} : home_folder();
    const std::string path = is_named       ? expanded(from_environment(variable))
                             : home.empty() ? std::string{}
                                            : home + usual;
    files_ += (files_.empty() ? "" : " and ") + (path.empty() ? variable : path);
    std::error_code wrong;
    const bool is_there = std::filesystem::exists(path, wrong);
    // If the home folder belongs to another user, its files count as missing.
    if (wrong && is_named)
      throw file_unreadable(path, 0, "a file of AWS's profiles", wrong.message());
    if (!is_there) return {};
    const std::vector<std::byte> bytes = read_file(path);
    return parse_aws_file({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  }

  std::string name_;
  std::string files_ = {};
  std::optional<aws_settings> credentials_ = std::nullopt;
  std::optional<aws_settings> config_ = std::nullopt;
  std::optional<aws_settings> services_ = std::nullopt;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
