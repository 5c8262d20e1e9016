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

/// Options of the requests of an `http_store`. Invalid values throw `option_error` at construction.
struct http_options {
  /// Maximum number of concurrent requests for all callers together, from 1 to 4096. Each request
  /// in flight uses its own connection. Further requests wait.
  std::size_t max_in_flight = 256;

  /// Ranges of the same object are merged into one request if the gap between them is at most this
  /// number of bytes. The bytes in the gap are received and discarded.
  std::uint64_t merge_gap = 65'536;

  /// Maximum size of a request in bytes. Ranges are merged up to this size, and longer ranges are
  /// split.
  std::uint64_t max_request_bytes = 8'388'608;

  /// Maximum number of attempts for a request. A request is retried after status 408, 429, 500,
  /// 502, 503 or 504. It is also retried after a failed or lost connection, a body that is short or
  /// has a wrong checksum, or a silence timeout.
  unsigned attempts = 5;

  /// Before attempt k + 1 the store waits for a random time of at most the smaller of `first_delay`
  /// * 2^(k - 1) and `max_delay`.
  std::chrono::milliseconds first_delay{100};
  /// Maximum delay before a retry. If a server requests a longer delay by Retry-After, the store
  /// waits for this delay.
  std::chrono::milliseconds max_delay{20'000};

  /// Timeout for establishing a connection.
  std::chrono::milliseconds connect_timeout{10'000};
  /// Maximum time during which an attempt receives no byte.
  std::chrono::milliseconds silence_timeout{30'000};
  /// Maximum time for a call with all its attempts, and for each page of a listing. After that the
  /// call throws `store_unreachable`.
  std::chrono::milliseconds deadline{600'000};

  /// Maximum number of redirects to follow. A store with an https URL never follows a redirect to
  /// http.
  unsigned max_redirects = 5;

  /// Header lines that are sent with each request, such as "Authorization: Bearer ...". Errors
  /// never contain them. If a redirect leads to another host, libcurl omits Authorization and
  /// Cookie, but sends all other lines.
  std::vector<std::string> headers = {};

  /// Detects a changed object by its ETag in addition to its size. Disable this for a server that
  /// returns several ETags for the same object.
  bool check_etag = true;

  /// Detects a changed object by Last-Modified if it has no strong ETag, and sends the date as
  /// If-Unmodified-Since. Disable this for a server that returns several dates for the same object.
  bool check_modified = true;

  /// Compares each body with the checksum that the server reports, and retries if they differ. The
  /// checksums are Content-Digest and, for whole objects, Repr-Digest, x-goog-hash and
  /// x-amz-checksum-..., which an `s3_store` requests. The store's thread computes the checksums. A
  /// CRC is fast, and SHA-256 takes several times as long.
  bool check_sums = true;

  /// File of the trusted certificates; "" uses the certificates of the system.
  std::string ca_file = {};

  /// Seed of the random delays.
  std::uint64_t seed = 0;
};

/// Counters of an `http_store` since its construction.
struct http_stats {
  std::uint64_t ranges = 0;         ///< Ranges requested by callers, without empty ranges.
  std::uint64_t requests = 0;       ///< Attempts started.
  std::uint64_t retries = 0;        ///< Attempts that repeated a failed attempt.
  std::uint64_t merged = 0;         ///< Ranges merged into the request of another range.
  std::uint64_t unversioned = 0;    ///< Parts of objects whose version was checked by size only.
  std::uint64_t bytes = 0;          ///< Bytes of bodies received, even if discarded.
  std::uint64_t connections = 0;    ///< Connections opened.
  std::uint64_t in_flight = 0;      ///< Requests in flight now.
  std::uint64_t max_in_flight = 0;  ///< Highest number of requests in flight.
  duration_stats first_byte;        ///< Time from the start of an attempt to the first byte.
};

namespace detail {

inline void require_option(bool holds, const char* option, const char* problem) {
  if (!holds) throw option_error(option, problem);
}

/// Throws `option_error` if an option is invalid.
inline void require_sound(const http_options& options) {
  using std::chrono::milliseconds;
  constexpr milliseconds max{std::chrono::hours{24 * 20}};  // libcurl counts in 31 bits
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

/// The credentials of S3 requests. Errors and logs of this library never contain them.
struct s3_credentials {
  std::string key_id;              ///< AWS_ACCESS_KEY_ID.
  std::string secret;              ///< AWS_SECRET_ACCESS_KEY.
  std::string session_token = {};  ///< AWS_SESSION_TOKEN, or "".
};

/// The form in which the URL of a request contains the bucket.
enum class s3_addressing {
  usual,         ///< `path` with an endpoint or a dotted bucket name, else `virtual_host`.
  virtual_host,  ///< https://bucket.s3.region.amazonaws.com/key
  path,          ///< https://endpoint/bucket/key
};

/// Options of an `s3_store`. Invalid values throw `option_error` at construction.
struct s3_options {
  /// The region of the bucket. If empty, the first of AWS_REGION, AWS_DEFAULT_REGION, the profile,
  /// and us-east-1.
  std::string region = {};

  /// The server, for MinIO, Ceph and similar: "http://127.0.0.1:9000". If empty, the first of
  /// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile, and AWS.
  std::string endpoint = {};

  /// The form of the bucket URL. `usual` uses `addressing_style` of the profile, if set.
  s3_addressing addressing = s3_addressing::usual;

  /// The credentials. If empty, the store uses those of the environment, or of the profile in
  /// ~/.aws/credentials and ~/.aws/config. The files are read once, at construction.
  std::optional<s3_credentials> credentials = std::nullopt;

  /// The profile in these files, which takes precedence over the environment. If empty, the first
  /// of AWS_DEFAULT_PROFILE, AWS_PROFILE, and "default".
  std::string profile = {};

  /// Sends requests without credentials and signature, as public buckets allow.
  bool anonymous = false;

  /// The options of the HTTP requests. `headers` and `max_redirects` have no effect here.
  http_options http = {};
};

/// An object that `s3_store::list` has found.
struct s3_object {
  std::string key;         ///< Name of the object in the store.
  std::uint64_t size = 0;  ///< Size in bytes.
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
