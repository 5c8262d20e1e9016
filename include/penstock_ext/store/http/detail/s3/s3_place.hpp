// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/http_options.hpp>

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

/// Where a bucket is, and with which credentials it is asked for.
struct s3_place {
  http_target bucket;
  std::string region;
  std::optional<s3_credentials> credentials;  ///< nothing: without a signature
};

/// A variable of the environment; "" where it is not set.
[[nodiscard]] inline std::string from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string{value};
}

[[nodiscard]] inline std::string first_of(std::string a, std::string b) {
  return a.empty() ? std::move(b) : std::move(a);
}

/// The text of the file `path`; nothing where there is none. Throws `file_unreadable` for one that
/// can't be read, such as a folder.
[[nodiscard]] inline std::optional<std::string> text_of(const std::string& path) {
  std::error_code wrong;
  const bool is_there = std::filesystem::exists(path, wrong);
  if (wrong) throw file_unreadable(path, 0, "a file of AWS's profiles", wrong.message());
  if (!is_there) return std::nullopt;
  const std::vector<std::byte> bytes = read_file(path);
  return std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The profile `profile` of both files of AWS, the credentials' one first: the key, the secret and
/// the token are those of one file.
[[nodiscard]] inline aws_profile aws_profile_of(const std::string& profile) {
  const std::string home = from_environment("HOME");
  aws_profile found;
  for (const auto& [variable, name] :
       {std::pair{"AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"},
        std::pair{"AWS_CONFIG_FILE", "/.aws/config"}}) {
    const std::string path =
        first_of(from_environment(variable), home.empty() ? std::string{} : home + name);
    const auto text = text_of(path);
    if (!text) continue;
    aws_profile said;
    read_aws_profile(*text, path, profile, said);
    if (!found.key_id.empty() || !found.secret.empty()) {
      found.region = first_of(found.region, said.region);
    } else {
      said.region = first_of(found.region, said.region);
      said.is_there |= found.is_there;
      found = std::move(said);
    }
  }
  return found;
}

/// Whether the credentials of AWS_ACCESS_KEY_ID count.
[[nodiscard]] inline bool environment_asks(const s3_options& options) {
  return options.profile.empty() && !from_environment("AWS_ACCESS_KEY_ID").empty();
}

/// The credentials. Throws `access_denied` where there are none.
[[nodiscard]] inline std::optional<s3_credentials> credentials_of(const s3_options& options,
                                                                  const std::string& profile,
                                                                  const aws_profile& found,
                                                                  const std::string& url) {
  if (options.anonymous) return std::nullopt;
  s3_credentials who;
  if (options.credentials) {
    who = *options.credentials;
  } else if (environment_asks(options)) {
    who = {from_environment("AWS_ACCESS_KEY_ID"), from_environment("AWS_SECRET_ACCESS_KEY"),
           from_environment("AWS_SESSION_TOKEN")};
  } else {
    who = {found.key_id, found.secret, found.session_token};
  }
  constexpr std::string_view breaks{"\r\n\0", 3};
  const auto has_break = [&](const std::string& text) {
    return text.find_first_of(breaks) != std::string::npos;
  };
  if (who.key_id.empty() || who.secret.empty()) {
    throw access_denied(
        url, 0, "credentials",
        "none in the options, in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in the profile " +
            profile + " of the files of AWS" + (found.is_there ? "" : ", which is not there") +
            ": after a login by SSO, or with a role, `aws configure export-credentials --format "
            "env` prints them; for a public bucket set `anonymous`");
  }
  if (has_break(who.key_id) || has_break(who.session_token)) {
    throw access_denied(url, 0, "credentials of one line each", "one with a line break");
  }
  return who;
}

/// Finds out where the bucket `bucket` is; reads the files of AWS where something is left for them
/// to say. Throws `option_error`, `access_denied`, `file_unreadable`, `file_format_error`.
[[nodiscard]] inline s3_place place_of(std::string_view bucket, const s3_options& options) {
  require_option(!bucket.empty() && bucket.front() != '.', "bucket", "must have a name");
  for (const char c : bucket) {
    const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    require_option(is_fine, "bucket", "must be a name of letters, digits, dots and dashes");
  }
  const std::string profile =
      first_of(options.profile, first_of(from_environment("AWS_PROFILE"), "default"));
  std::string endpoint = first_of(options.endpoint, from_environment("AWS_ENDPOINT_URL_S3"));
  endpoint = first_of(endpoint, from_environment("AWS_ENDPOINT_URL"));
  const bool is_aws = endpoint.empty();
  s3_place place;
  place.region = first_of(options.region, from_environment("AWS_REGION"));
  place.region = first_of(place.region, from_environment("AWS_DEFAULT_REGION"));
  // Without a signature another endpoint does not hear of the region.
  const bool wants_region = place.region.empty() && (is_aws || !options.anonymous);
  const bool wants_key = !options.anonymous && !options.credentials && !environment_asks(options);
  const aws_profile found = wants_region || wants_key ? aws_profile_of(profile) : aws_profile{};
  place.region = first_of(place.region, first_of(found.region, "us-east-1"));
  for (const char c : place.region) {
    const bool is_fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    require_option(is_fine, "region", "must be a name such as eu-central-1");
  }

  if (is_aws) {
    endpoint = "https://s3." + place.region + ".amazonaws.com";
    if (place.region.starts_with("cn-")) endpoint += ".cn";
  }
  place.bucket = parse_store_url(endpoint, "endpoint");
  require_option(place.bucket.query.empty(), "endpoint", "must not have a query");
  // libcurl leaves a scheme's own port out of the line Host, which the signature covers.
  const std::string_view usual = place.bucket.is_secure() ? ":443" : ":80";
  if (place.bucket.origin.ends_with(usual)) {
    place.bucket.origin.erase(place.bucket.origin.size() - usual.size());
  }
  // No certificate of AWS's fits a host with a dot more.
  const bool in_path = options.addressing == s3_addressing::path ||
                       (options.addressing == s3_addressing::usual &&
                        (!is_aws || bucket.find('.') != std::string_view::npos));
  if (in_path) {
    place.bucket.path += '/' + std::string{bucket};
  } else {
    place.bucket.origin.insert(place.bucket.origin.find("://") + 3, std::string{bucket} + '.');
  }
  place.credentials = credentials_of(options, profile, found, place.bucket.shown());
  return place;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
