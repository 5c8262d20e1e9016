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

/// How S3 wants to be asked, and what its errors mean. The range header is not signed, since a
/// proxy may change it.
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

/// The objects of a bucket of S3, or of a server that speaks its protocol: a `batching_store`, as
/// `http_store` is one. Needs libcurl: the CMake target `penstock::http`.
///
///     s3_store photos{"my-bucket", {.region = "eu-central-1"}};
///     for (const s3_object& shard : photos.list("train/")) ...
///
/// Requests are signed by AWS Signature Version 4. Credentials come from the options, from
/// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or from the profile of
/// ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE,
/// AWS_PROFILE), once, at construction; nothing shows them. Those of an instance or a container,
/// SSO and roles are not asked for.
///
/// Redirects are not followed: an error names the region that the server names. Else as
/// `http_store`, threads, lifetime and fork() too.
class s3_store {
 public:
  /// The bucket named `bucket`. Throws `option_error` for what can't work, `access_denied` where
  /// there are no credentials, `file_unreadable` and `file_format_error` for a profile that is
  /// needed and can't be read, and `std::system_error` where the system refuses a thread or a
  /// descriptor. Asks the server for nothing.
  explicit s3_store(std::string_view bucket, const s3_options& options = {})
      : s3_store(detail::place_of(bucket, options), options.http, bucket.ends_with("--x-s3")) {}

  /// The object's size in bytes.
  [[nodiscard]] std::uint64_t size_of(std::string_view key) const { return state_of(key).size; }

  /// The object's size and, in the words of the server, its version: its ETag, or for want of a
  /// strong one its Last-Modified too; see `versioned_store`.
  [[nodiscard]] object_state state_of(std::string_view key) const { return client_->state_of(key); }

  /// Reads one range; see `read_many`.
  void read(const byte_range& range) const { read_many({&range, 1}); }

  /// Reads all ranges, of any objects in any order: neighbours as one request, all requests at
  /// once. Throws for the first of them that fails for good.
  void read_many(std::span<const byte_range> ranges) const { client_->read_many(ranges); }

  /// The objects whose keys start with `prefix`, in the order of the server, which is that of their
  /// bytes; a thousand for each request. Throws as `read`, and `bad_response` for an answer that is
  /// no listing, none that goes on in this order (directory buckets have another one), or more than
  /// a thousand pages without a key.
  [[nodiscard]] std::vector<s3_object> list(std::string_view prefix = {}) const {
    const detail::http_target& bucket = client_->base();
    std::vector<s3_object> all;
    std::set<std::string> asked;
    std::string next;
    std::size_t empty_pages = 0;  // one after the other: a service may filter what it has found
    do {
      // Sorted by name, as the signature wants it.
      detail::http_target page{bucket.origin, bucket.path.empty() ? "/" : bucket.path, ""};
      if (!next.empty()) {
        page.query = "continuation-token=" + detail::percent_encoded(next, "") + '&';
      }
      page.query += "encoding-type=url&list-type=2&prefix=" + detail::percent_encoded(prefix, "");
      auto answer = detail::list_answer::parse(client_->page(page), page.shown());
      // Directory buckets, whose names end so, have an order of their own.
      const bool goes_on = is_directory_ || all.empty() || answer.objects.empty() ||
                           all.back().key < answer.objects.front().key;
      empty_pages = answer.objects.empty() ? empty_pages + 1 : 0;
      if (!goes_on || empty_pages > 1000 ||
          (!answer.next.empty() && !asked.insert(answer.next).second)) {
        throw bad_response(page.shown(), 0, "the next page of a listing",
                           "one that is not after those before");
      }
      next = std::move(answer.next);
      for (s3_object& object : answer.objects) all.push_back(std::move(object));
    } while (!next.empty());
    return all;
  }

  /// The bucket's URL.
  [[nodiscard]] std::string root() const { return client_->base().shown(); }
  /// What the store has done so far.
  [[nodiscard]] http_stats stats() const { return client_->stats(); }

 private:
  s3_store(const detail::s3_place& place, const http_options& options, bool is_directory)
      : is_directory_(is_directory),
        client_(std::make_unique<const detail::http_client>(
            place.bucket, without_redirects(options),
            std::make_shared<const detail::s3_service>(place, options.check_sums))) {}

  // A signature is for one host, and a session's token for nobody else.
  [[nodiscard]] static http_options without_redirects(http_options options) {
    options.most_redirects = 0;
    return options;
  }

  bool is_directory_;
  std::unique_ptr<const detail::http_client> client_;
};

static_assert(batching_store<s3_store>);
static_assert(versioned_store<s3_store>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
