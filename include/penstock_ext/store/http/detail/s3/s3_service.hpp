// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/detail/object_url.hpp>
#include <penstock_ext/store/http/detail/s3/list_answer.hpp>
#include <penstock_ext/store/http/detail/s3/s3_place.hpp>
#include <penstock_ext/store/http/detail/s3/signature.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How S3 wants to be asked, and what its errors mean. Signatures leave the range out: some servers
/// behind proxies see another one.
class s3_service final : public http_service {
 public:
  /// With `asks_for_sums` the server is to name the sums of objects that it has.
  explicit s3_service(s3_place place, bool asks_for_sums = false)
      : http_service({}), place_(std::move(place)), asks_for_sums_(asks_for_sums) {}

  [[nodiscard]] std::vector<std::string> headers(std::string_view method,
                                                 const http_target& target) const override {
    return headers(method, target, std::time(nullptr));
  }

  /// The lines of a request that is signed at `now`.
  [[nodiscard]] std::vector<std::string> headers(std::string_view method, const http_target& target,
                                                 std::time_t now) const {
    // Of an object, and not of a listing, which has none.
    std::vector<signed_line> lines{{"host", std::string{target.host()}}};
    if (asks_for_sums_ && target.query.empty())
      lines.emplace_back("x-amz-checksum-mode", "ENABLED");
    if (!place_.credentials) return written(lines);
    const std::string time = signing_time(now);
    lines.emplace_back("x-amz-content-sha256", sum_of_nothing);
    lines.emplace_back("x-amz-date", time);
    if (!place_.credentials->session_token.empty()) {
      lines.emplace_back("x-amz-security-token", place_.credentials->session_token);
    }
    const std::string value =
        authorization(*place_.credentials, place_.region, "s3", time,
                      {method, target.path, target.query, lines, sum_of_nothing});
    std::vector<std::string> all = written(lines);
    all.push_back("Authorization: " + value);
    return all;
  }

  [[nodiscard]] service_error error_of(const http_answer& answer,
                                       std::string_view body) const override {
    service_error said;
    said.code = error_word(body, "Code");
    const std::string& code = said.code;
    if (code == "SlowDown" || code == "RequestTimeout" || code == "InternalError" ||
        code == "ServiceUnavailable") {
      said.is_transient = true;
    } else if (code == "RequestTimeTooSkewed") {
      said.is_denied = true;
      said.remedy = "the clock of this machine is wrong: set it";
    } else if (code == "ExpiredToken" || code == "TokenRefreshRequired") {
      said.is_denied = true;
      said.remedy = "the session of the credentials is over: get new ones, and make a new store";
    } else if (code == "InvalidAccessKeyId" || code == "InvalidToken") {
      said.is_denied = true;
      said.remedy =
          "the server does not know these credentials: look at AWS_ACCESS_KEY_ID, "
          "AWS_SESSION_TOKEN and the profile";
    } else if (code == "SignatureDoesNotMatch") {
      said.is_denied = true;
      said.remedy = "look at AWS_SECRET_ACCESS_KEY, the profile and the region";
    } else if (code == "NoSuchBucket") {
      said.is_missing = true;
      said.remedy = "there is no such bucket: look at its name, the region and the endpoint";
    } else if (code == "PermanentRedirect" || code == "TemporaryRedirect" ||
               code == "AuthorizationHeaderMalformed" || answer.status == 301) {
      std::string region = answer.bucket_region;
      if (region.empty()) region = error_word(body, "Region");
      said.remedy = "the bucket is in another region: set `region`" +
                    (region.empty() ? std::string{} : " to " + safe(region));
    }
    return said;
  }

 private:
  // As lines of a request.
  [[nodiscard]] static std::vector<std::string> written(const std::vector<signed_line>& lines) {
    std::vector<std::string> all;
    for (const auto& [name, content] : lines) {
      if (name == "host") continue;  // libcurl makes it
      all.push_back(name);
      all.back().append(": ").append(content);
    }
    return all;
  }

  // A region's name comes from the server.
  [[nodiscard]] static std::string safe(const std::string& text) {
    return percent_encoded(text.substr(0, 64), "");
  }

  s3_place place_;
  bool asks_for_sums_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
