// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/http_client.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/detail/s3/list_answer.hpp>
#include <penstock_ext/store/http/detail/s3/s3_place.hpp>
#include <penstock_ext/store/http/detail/s3/signature.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Request headers for S3, and the interpretation of S3 errors. The Range header is not signed,
/// because a proxy may change it.
class s3_service final : public http_service {
 public:
  /// If `requests_checksums` is true, requests the checksums stored by the server.
  explicit s3_service(s3_place place, bool requests_checksums = false)
      : http_service({}), place_(std::move(place)), requests_checksums_(requests_checksums) {}

  [[nodiscard]] std::vector<std::string> headers(std::string_view method,
                                                 const http_target& target) const override {
    return headers(method, target, std::time(nullptr));
  }

  /// Returns the headers of a request that is signed at time `now`.
  [[nodiscard]] std::vector<std::string> headers(std::string_view method, const http_target& target,
                                                 std::time_t now) const {
    // Requests checksums only for objects, because a listing has no checksum.
    std::vector<signed_line> lines{{"host", std::string{target.host()}}};
    if (requests_checksums_ && target.query.empty())
      lines.emplace_back("x-amz-checksum-mode", "ENABLED");
    if (!place_.credentials) return written(lines);
    const std::string time = signing_time(now);
    lines.emplace_back("x-amz-content-sha256", sha256_of_nothing);
    lines.emplace_back("x-amz-date", time);
    if (!place_.credentials->session_token.empty()) {
      lines.emplace_back("x-amz-security-token", place_.credentials->session_token);
    }
    const std::string value =
        authorization(*place_.credentials, place_.region, "s3", time,
                      {method, target.path, target.query, lines, sha256_of_nothing});
    std::vector<std::string> all = written(lines);
    all.push_back("Authorization: " + value);
    return all;
  }

  [[nodiscard]] bool takes_any_name() const noexcept override { return true; }

  [[nodiscard]] service_error error_of(const http_answer& answer,
                                       std::string_view body) const override {
    service_error problem;
    problem.code = error_word(body, "Code");
    const std::string& code = problem.code;
    if (code == "SlowDown" || code == "RequestTimeout" || code == "InternalError" ||
        code == "ServiceUnavailable") {
      problem.is_transient = true;
    } else if (code == "RequestTimeTooSkewed") {
      problem.is_denied = true;
      problem.remedy = "the clock of this machine is wrong: correct it";
    } else if (code == "ExpiredToken" || code == "TokenRefreshRequired") {
      problem.is_denied = true;
      problem.remedy = "the credentials have expired: get new credentials, and make a new store";
    } else if (code == "InvalidAccessKeyId" || code == "InvalidToken") {
      problem.is_denied = true;
      problem.remedy =
          "the server does not know these credentials: check AWS_ACCESS_KEY_ID, "
          "AWS_SESSION_TOKEN and the profile";
    } else if (code == "SignatureDoesNotMatch") {
      problem.is_denied = true;
      problem.remedy = "check AWS_SECRET_ACCESS_KEY, the profile and the region";
    } else if (code == "NoSuchBucket") {
      problem.is_missing = true;
      problem.remedy = "the bucket does not exist: check its name, the region and the endpoint";
    } else if (code == "PermanentRedirect" || code == "TemporaryRedirect" ||
               code == "AuthorizationHeaderMalformed" || answer.status == 301) {
      std::string region = answer.bucket_region;
      if (region.empty()) region = error_word(body, "Region");
      problem.remedy = "the bucket is in another region: set `region`" +
                       (region.empty() ? std::string{} : " to " + safe(region));
    }
    return problem;
  }

 private:
  // Converts signed headers to header lines.
  [[nodiscard]] static std::vector<std::string> written(const std::vector<signed_line>& lines) {
    std::vector<std::string> all;
    for (const auto& [name, content] : lines) {
      if (name == "host") continue;  // libcurl adds the Host header
      all.push_back(name);
      all.back().append(": ").append(content);
    }
    return all;
  }

  // Escapes a region name, which is untrusted because the server sent it.
  [[nodiscard]] static std::string safe(const std::string& text) {
    return percent_encoded(text.substr(0, 64), "");
  }

  s3_place place_;
  bool requests_checksums_;
};

}  // namespace detail

/// A `batching_store` of the objects in an S3 bucket, or on a server with the same protocol.
/// Requires libcurl (CMake target `penstock::http`).
///
///     s3_store photos{"my-bucket", {.region = "eu-central-1"}};
///     for (const s3_object& shard : photos.list("train/")) ...
///
/// Requests are signed with AWS Signature Version 4. Credentials come from the options, from
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or from the profile in
/// ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE,
/// AWS_PROFILE). The files are read once, at construction, by botocore rules. Messages never
/// contain credentials. The store does not query instance or container credentials. A profile that
/// needs SSO, a role or another program for its credentials is an error.
///
/// Any key can be read, including keys with a leading slash, or with "." or ".." between slashes.
///
/// Redirects are not followed. The error contains the region reported by the server. Otherwise the
/// store behaves like `http_store`, including threads, lifetime and fork().
class s3_store {
 public:
  /// Creates a store for the bucket `bucket`, without sending a request. Throws:
  /// - `option_error` if an option is invalid
  /// - `access_denied` if no credentials are found
  /// - `file_unreadable` if an AWS configuration file cannot be read
  /// - `file_format_error` if an AWS configuration file has an error or an unsupported setting
  /// - `std::system_error` if the system cannot create a thread or a descriptor
  explicit s3_store(std::string_view bucket, const s3_options& options = {})
      : s3_store(detail::place_of(bucket, options), options.http, bucket.ends_with("--x-s3")) {}

  /// Returns the object size in bytes.
  [[nodiscard]] std::uint64_t size_of(std::string_view key) const { return state_of(key).size; }

  /// Returns the object size, and the version reported by the server (see `versioned_store`). The
  /// version is the ETag. If the ETag is not strong, the version also contains Last-Modified.
  [[nodiscard]] object_state state_of(std::string_view key) const { return client_->state_of(key); }

  /// Reads one range (see `read_many`).
  void read(const byte_range& range) const { read_many({&range, 1}); }

  /// Reads all ranges, from any objects in any order. Adjacent ranges share a request, and all
  /// requests run concurrently. Throws the error of the first request that fails permanently.
  void read_many(std::span<const byte_range> ranges) const { client_->read_many(ranges); }

  /// Returns the objects whose keys start with `prefix`, in server order, which sorts keys bytewise
  /// except in directory buckets. Sends one request for each thousand objects. Later responses are
  /// compared with the listed sizes.
  ///
  /// Throws the same errors as `read`. Throws `bad_response` if a response is not a listing or does
  /// not continue the order of the previous page, or if more than a thousand consecutive pages are
  /// empty.
  [[nodiscard]] std::vector<s3_object> list(std::string_view prefix = {}) const {
    const detail::http_target& bucket = client_->base();
    std::vector<s3_object> all;
    std::set<std::string> tokens;
    std::string next;
    // Number of consecutive empty pages, which a service may return because it filters its results.
    std::size_t empty_pages = 0;
    do {
      // The query parameters are sorted by name, as the signature requires.
      detail::http_target page{bucket.origin, bucket.path.empty() ? "/" : bucket.path, ""};
      if (!next.empty()) {
        page.query = "continuation-token=" + detail::percent_encoded(next, "") + '&';
      }
      page.query += "encoding-type=url&list-type=2&prefix=" + detail::percent_encoded(prefix, "");
      auto answer = detail::list_answer::parse(client_->page(page), page.shown());
      // Directory buckets, whose names end in "--x-s3", are not sorted by key.
      const bool goes_on = is_directory_ || all.empty() || answer.objects.empty() ||
                           all.back().key < answer.objects.front().key;
      empty_pages = answer.objects.empty() ? empty_pages + 1 : 0;
      if (!goes_on || empty_pages > 1000 ||
          (!answer.next.empty() && !tokens.insert(answer.next).second)) {
        throw bad_response(page.shown(), 0, "the next page of a listing",
                           "a page that does not follow the previous pages");
      }
      next = std::move(answer.next);
      client_->expect_sizes(answer.objects);
      for (s3_object& object : answer.objects) all.push_back(std::move(object));
    } while (!next.empty());
    return all;
  }

  /// Returns the bucket URL.
  [[nodiscard]] std::string root() const { return client_->base().shown(); }
  /// Returns the current statistics.
  [[nodiscard]] http_stats stats() const { return client_->stats(); }

 private:
  s3_store(const detail::s3_place& place, const http_options& options, bool is_directory)
      : is_directory_(is_directory),
        client_(std::make_unique<const detail::http_client>(
            place.bucket, adapted(options, place),
            std::make_shared<const detail::s3_service>(place, options.verify_checksums))) {}

  // Disables redirects, because a signature is valid for a single host, and no other host may
  // receive the session token.
  [[nodiscard]] static http_options adapted(http_options options, const detail::s3_place& place) {
    options.max_redirects = 0;
    if (options.ca_file.empty()) options.ca_file = place.ca_file;
    return options;
  }

  bool is_directory_;
  std::unique_ptr<const detail::http_client> client_;
};

static_assert(batching_store<s3_store>);
static_assert(versioned_store<s3_store>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
