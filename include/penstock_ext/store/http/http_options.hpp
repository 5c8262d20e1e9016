// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/observe/stats.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// HTTP request options of an `http_store`. Invalid values cause `option_error` at construction.
struct http_options {
  /// Maximum number of concurrent requests for all callers, from 1 to 4096. Each request in flight
  /// uses its own connection. Further requests wait.
  std::size_t max_in_flight = 256;

  /// Maximum gap in bytes between ranges of an object that share a request. The bytes in the gap
  /// are received and discarded.
  std::uint64_t merge_gap = 65'536;

  /// Maximum request size in bytes. Ranges are merged up to this size, and longer ranges are split.
  std::uint64_t max_request_bytes = 8'388'608;

  /// Maximum number of attempts for a request. A request is retried after status 408, 429, 500,
  /// 502, 503 or 504, a failed or lost connection, a short body, a wrong checksum, or a silence
  /// timeout.
  unsigned attempts = 5;

  /// Initial backoff. Before attempt k + 1, the store waits for a random time of at most
  /// min(`first_delay` * 2^(k - 1), `max_delay`).
  std::chrono::milliseconds first_delay{100};
  /// Maximum backoff. Also limits the delay that a server requests with Retry-After.
  std::chrono::milliseconds max_delay{20'000};

  /// Timeout for establishing a connection.
  std::chrono::milliseconds connect_timeout{10'000};
  /// Maximum time without a received byte before an attempt fails.
  std::chrono::milliseconds silence_timeout{30'000};
  /// Maximum time for a call with all its attempts, and for each listing page. After that the call
  /// throws `store_unreachable`.
  std::chrono::milliseconds deadline{600'000};

  /// Maximum number of redirects. A store with an https URL never follows a redirect to http.
  unsigned max_redirects = 5;

  /// Headers that are sent with each request, such as "Authorization: Bearer ...". Errors never
  /// contain them. If a redirect leads to another host, libcurl omits Authorization and Cookie but
  /// sends all other headers.
  std::vector<std::string> headers = {};

  /// If true, detects changed objects by ETag in addition to size. Disable this for a server that
  /// returns several ETags for the same object.
  bool check_etag = true;

  /// If true, detects changed objects without a strong ETag by Last-Modified, and sends the date as
  /// If-Unmodified-Since. Disable this for a server that returns several dates for the same object.
  bool check_modified = true;

  /// If true, verifies each body with the checksum reported by the server, and retries after a
  /// mismatch. The checksums are Content-Digest and, for whole objects, Repr-Digest, x-goog-hash
  /// and x-amz-checksum-..., which an `s3_store` requests. The reactor thread computes the
  /// checksums. A CRC is fast, whereas SHA-256 takes several times as long.
  bool verify_checksums = true;

  /// File with trusted certificates. "" uses the system's certificates.
  std::string ca_file = {};

  /// Seed of random delays.
  std::uint64_t seed = 0;
};

/// Statistics of an `http_store` since its construction.
struct http_stats {
  std::uint64_t ranges = 0;    ///< Number of non-empty ranges requested by callers.
  std::uint64_t requests = 0;  ///< Number of attempts started.
  std::uint64_t retries = 0;   ///< Number of attempts that repeated a failed attempt.
  std::uint64_t merged = 0;    ///< Number of ranges merged into the request of another range.
  /// Number of object parts whose version was checked by size only.
  std::uint64_t unversioned = 0;
  /// Size of all received bodies in bytes, including discarded bytes.
  std::uint64_t bytes = 0;
  std::uint64_t connections = 0;    ///< Number of connections opened.
  std::uint64_t in_flight = 0;      ///< Current number of requests in flight.
  std::uint64_t max_in_flight = 0;  ///< Maximum number of requests in flight so far.
  duration_stats first_byte;        ///< Time from the start of an attempt to the first byte.
};

namespace detail {

inline void require_option(bool holds, const char* option, const char* problem) {
  if (!holds) throw option_error(option, problem);
}

/// Throws `option_error` if an option is invalid.
inline void require_sound(const http_options& options) {
  using std::chrono::milliseconds;
  // libcurl counts milliseconds in 31 bits.
  constexpr milliseconds max{std::chrono::hours{24 * 20}};
  const auto require_time = [&](milliseconds time, const char* option) {
    require_option(time > milliseconds{0} && time <= max, option,
                   "must be above 0 and at most 20 days");
  };
  require_option(options.max_in_flight >= 1 && options.max_in_flight <= 4096, "max_in_flight",
                 "must be from 1 to 4096");
  require_option(options.max_request_bytes >= 1, "max_request_bytes", "must be at least 1");
  require_option(options.attempts >= 1 && options.attempts <= 1000, "attempts",
                 "must be from 1 to 1000");
  require_time(options.first_delay, "first_delay");
  require_time(options.max_delay, "max_delay");
  require_time(options.connect_timeout, "connect_timeout");
  require_time(options.silence_timeout, "silence_timeout");
  require_time(options.deadline, "deadline");
  require_option(options.max_redirects <= 50, "max_redirects", "must be at most 50");
  for (const std::string& line : options.headers) {
    require_option(line.find_first_of(std::string_view{"\r\n\0", 3}) == std::string::npos &&
                       line.find(':') != std::string::npos && line.find(':') != 0,
                   "headers", "each must be one line, \"Name: value\"");
  }
}

}  // namespace detail

/// Credentials for S3 requests. Errors and logs of this library never contain them.
struct s3_credentials {
  std::string key_id;              ///< AWS_ACCESS_KEY_ID
  std::string secret;              ///< AWS_SECRET_ACCESS_KEY
  std::string session_token = {};  ///< AWS_SESSION_TOKEN, or ""
};

/// Forms of bucket URLs.
enum class s3_addressing {
  usual,         ///< `path` with an endpoint or a dotted bucket name, otherwise `virtual_host`
  virtual_host,  ///< https://bucket.s3.region.amazonaws.com/key
  path,          ///< https://endpoint/bucket/key
};

/// Options of an `s3_store`. Invalid values cause `option_error` at construction.
struct s3_options {
  /// Bucket region. If empty, the first of AWS_REGION, AWS_DEFAULT_REGION, the profile, and
  /// us-east-1.
  std::string region = {};

  /// Server URL for MinIO, Ceph and similar, for example "http://127.0.0.1:9000". If empty, the
  /// first of AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile, and AWS.
  std::string endpoint = {};

  /// Form of the bucket URL. `usual` uses the profile's `addressing_style` if set.
  s3_addressing addressing = s3_addressing::usual;

  /// Credentials. If empty, the store uses the credentials in the environment, or in the profile in
  /// ~/.aws/credentials and ~/.aws/config. The files are read once, at construction.
  std::optional<s3_credentials> credentials = std::nullopt;

  /// Profile in these files, which takes precedence over the environment. If empty, the first of
  /// AWS_DEFAULT_PROFILE, AWS_PROFILE, and "default".
  std::string profile = {};

  /// If true, sends requests without credentials and signature, for public buckets.
  bool anonymous = false;

  /// HTTP request options. `headers` and `max_redirects` have no effect here.
  http_options http = {};
};

/// An object found by `s3_store::list`.
struct s3_object {
  std::string key;         ///< object name in the store
  std::uint64_t size = 0;  ///< size in bytes
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
