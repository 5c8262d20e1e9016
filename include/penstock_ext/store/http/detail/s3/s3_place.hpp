// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/detail/s3/aws_config.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The bucket location, and the credentials for its requests.
struct s3_place {
  http_target bucket;
  std::string region;
  std::optional<s3_credentials> credentials;  ///< empty for unsigned requests
  std::string ca_file = {};                   ///< from AWS_CA_BUNDLE or the profile
};

/// Returns the key, secret and token in `settings`, which are a profile in a single file. Returns
/// nothing without a key. Throws `file_format_error` for a key without a secret.
[[nodiscard]] inline std::optional<s3_credentials> keys_in(
    const std::optional<aws_settings>& settings) {
  if (!settings || settings->find("aws_access_key_id") == settings->end()) return std::nullopt;
  const auto value = [&](std::string_view name) {
    const auto at = settings->find(name);
    if (at == settings->end()) return std::string{};
    if (at->second.value.find('\n') != std::string::npos) {
      at->second.reject(std::string{name} + " on one line",
                        "a value that continues on an indented line: indent all settings equally");
    }
    return at->second.value;
  };
  s3_credentials found{
      value("aws_access_key_id"), value("aws_secret_access_key"),
      value(settings->contains("aws_security_token") ? "aws_security_token" : "aws_session_token")};
  if (found.key_id.empty() || found.secret.empty()) {
    settings->at("aws_access_key_id")
        .reject("aws_access_key_id and aws_secret_access_key in one section",
                "one without the other");
  }
  return found;
}

/// Returns the credentials in the environment or in `profile`, with the precedence of botocore.
/// Throws:
/// - `file_format_error` if a setting requires a role, SSO, a login or another program
/// - `access_denied` if an environment variable requires a role, or if no credentials are found
[[nodiscard]] inline s3_credentials found_credentials(const s3_options& options,
                                                      const aws_profile& profile,
                                                      const std::string& url) {
  const std::string remedy =
      ": `aws configure export-credentials --format env` prints credentials that a store accepts";
  const std::string key = from_environment("AWS_ACCESS_KEY_ID");
  if (options.profile.empty() && !key.empty()) {
    const std::string secret = from_environment("AWS_SECRET_ACCESS_KEY");
    if (secret.empty()) {
      throw access_denied(url, 0, "AWS_SECRET_ACCESS_KEY in addition to AWS_ACCESS_KEY_ID",
                          "none: set both");
    }
    return {
        key, secret,
        first_of(from_environment("AWS_SECURITY_TOKEN"), from_environment("AWS_SESSION_TOKEN"))};
  }
  const auto reject = [&](std::initializer_list<const char*> names) {
    for (const char* const name : names) {
      if (const aws_setting* const setting = profile.find(name)) {
        setting->reject("credentials that a store supports, such as aws_access_key_id",
                        name + (", which a store does not support" + remedy));
      }
    }
  };
  reject({"role_arn", "web_identity_token_file"});
  if (options.profile.empty() && !from_environment("AWS_WEB_IDENTITY_TOKEN_FILE").empty()) {
    throw access_denied(url, 0, "credentials that a store supports",
                        "AWS_WEB_IDENTITY_TOKEN_FILE, whose role a store cannot assume" + remedy);
  }
  reject({"sso_role_name", "sso_account_id"});
  if (auto found = keys_in(profile.credentials())) return *std::move(found);
  reject({"login_session", "credential_process"});
  if (auto found = keys_in(profile.config())) return *std::move(found);
  throw access_denied(
      url, 0, "credentials",
      "none in the options, in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in the profile " +
          profile.name() + " of " + profile.files() +
          (profile.is_there() ? "" : ", which does not exist") +
          ": on an instance or in a container, `aws configure export-credentials --format env` "
          "prints them; for a public bucket set `anonymous`");
}

/// Returns the credentials from the options or from `found_credentials`, or nothing if
/// `options.anonymous` is true. Throws the same errors as `found_credentials`. Also throws
/// `access_denied` if a credential is empty or contains a line break.
[[nodiscard]] inline std::optional<s3_credentials> credentials_of(const s3_options& options,
                                                                  const aws_profile& profile,
                                                                  const std::string& url) {
  if (options.anonymous) return std::nullopt;
  s3_credentials who =
      options.credentials ? *options.credentials : found_credentials(options, profile, url);
  if (who.key_id.empty() || who.secret.empty()) {
    throw access_denied(url, 0, "a key and a secret in `credentials`", "an empty string");
  }
  constexpr std::string_view breaks{"\r\n\0", 3};
  for (const std::string& text : {who.key_id, who.session_token}) {
    if (text.find_first_of(breaks) != std::string::npos) {
      throw access_denied(url, 0, "credentials of one line each", "a line break");
    }
  }
  return who;
}

/// Returns the environment variable, or the setting if the variable is not set. Returns nothing
/// unless the value is "true".
[[nodiscard]] inline std::optional<aws_setting> enabled(const char* variable,
                                                        const aws_setting* setting) {
  std::optional<aws_setting> found;
  if (setting != nullptr) found = *setting;
  if (std::getenv(variable) != nullptr) found = {from_environment(variable), variable};
  return found && in_lower_case(found->value) == "true" ? found : std::nullopt;
}

/// Determines the location of the bucket `bucket` from the options, the environment and the AWS
/// configuration files, with the precedence of botocore. Throws `option_error`, `access_denied`,
/// `file_unreadable`, `file_format_error`.
[[nodiscard]] inline s3_place place_of(std::string_view bucket, const s3_options& options) {
  require_option(!bucket.empty() && bucket.front() != '.', "bucket", "must have a name");
  for (const char c : bucket) {
    const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    require_option(is_fine, "bucket", "must be a name of letters, digits, dots and dashes");
  }
  const std::string chosen =
      first_of(options.profile,
               first_of(from_environment("AWS_DEFAULT_PROFILE"), from_environment("AWS_PROFILE")));
  const aws_profile profile{first_of(chosen, "default")};
  if (!chosen.empty() && !profile.is_there()) {
    throw file_unreadable(profile.files(), 0, "the profile " + chosen, "no section for it");
  }
  s3_place place;

  // The configured endpoint and its source, unless `options` specifies an endpoint.
  std::optional<aws_setting> configured;
  const bool is_ignored = enabled("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                  profile.find("ignore_configured_endpoint_urls"))
                              .has_value();
  if (options.endpoint.empty() && !is_ignored) {
    for (const char* const variable : {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
      const std::string url = from_environment(variable);
      if (!configured && !url.empty()) configured = {url, variable};
    }
    if (!configured) configured = profile.endpoint();
  }
  const bool is_aws = options.endpoint.empty() && !configured;

  place.region = first_of(options.region, from_environment("AWS_REGION"));
  place.region = first_of(place.region, from_environment("AWS_DEFAULT_REGION"));
  const aws_setting* const region = profile.find("region");
  const bool is_of_profile = place.region.empty() && region != nullptr;
  if (is_of_profile) place.region = region->value;
  for (const char c : place.region) {
    const bool is_fine = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    if (!is_fine && is_of_profile)
      region->reject("region, a name such as eu-central-1", "another value");
    require_option(is_fine, "region", "must be a name such as eu-central-1");
  }
  place.region = first_of(place.region, "us-east-1");

  std::string aws_host = "s3";
  if (options.endpoint.empty()) {
    const auto of_s3 = [&](const char* name) {
      const auto setting = profile.find_s3(name);
      return setting && in_lower_case(setting->value) == "true" ? setting : std::nullopt;
    };
    if (const auto accelerated = of_s3("use_accelerate_endpoint")) {
      accelerated->reject("an endpoint that a store can derive",
                          "use_accelerate_endpoint: name that endpoint in `endpoint`");
    }
    const auto fips = enabled("AWS_USE_FIPS_ENDPOINT", profile.find("use_fips_endpoint"));
    auto dual = of_s3("use_dualstack_endpoint");
    if (!dual) {
      dual = enabled("AWS_USE_DUALSTACK_ENDPOINT", profile.find("use_dualstack_endpoint"));
    }
    if (configured && fips) {
      fips->reject("an endpoint of AWS",
                   "use_fips_endpoint together with another endpoint: remove one of them");
    }
    if (fips) aws_host += "-fips";
    if (dual) aws_host += ".dualstack";
  }
  std::string endpoint = configured ? configured->value : options.endpoint;
  if (is_aws) {
    endpoint = "https://" + aws_host + '.' + place.region + ".amazonaws.com";
    if (place.region.starts_with("cn-")) endpoint += ".cn";
  }
  try {
    place.bucket = parse_store_url(endpoint, "endpoint");
    require_option(place.bucket.query.empty(), "endpoint", "must not have a query");
  } catch (const option_error& wrong) {
    if (configured)
      configured->reject("the URL of a server", std::string{"another endpoint: "} + wrong.what());
    throw;
  }
  // The signature covers the Host header, from which libcurl omits the default port.
  const std::string_view usual = place.bucket.is_secure() ? ":443" : ":80";
  if (place.bucket.origin.ends_with(usual)) {
    place.bucket.origin.erase(place.bucket.origin.size() - usual.size());
  }
  // AWS wildcard certificates do not match a bucket name with a dot.
  const bool has_dot = bucket.find('.') != std::string_view::npos;
  bool in_path = options.addressing == s3_addressing::path;
  if (options.addressing == s3_addressing::usual) {
    in_path = !is_aws || has_dot;
    if (const auto style = profile.find_s3("addressing_style")) {
      if (style->value == "path") {
        in_path = true;
      } else if (style->value == "virtual") {
        // A bucket name cannot precede an IP address, and a dotted name does not match a
        // certificate.
        const bool is_address =
            place.bucket.host().find_first_not_of("0123456789.:") == std::string_view::npos ||
            place.bucket.host().front() == '[';
        in_path = is_address || (has_dot && place.bucket.is_secure());
      } else if (style->value != "auto") {
        style->reject("addressing_style = auto, path or virtual", "another value");
      }
    }
  }
  if (in_path) {
    place.bucket.path += '/' + std::string{bucket};
  } else {
    place.bucket.origin.insert(place.bucket.origin.find("://") + 3, std::string{bucket} + '.');
  }
  const aws_setting* const bundle = profile.find("ca_bundle");
  place.ca_file = first_of(from_environment("AWS_CA_BUNDLE"), bundle ? bundle->value : "");
  place.credentials = credentials_of(options, profile, place.bucket.shown());
  return place;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
