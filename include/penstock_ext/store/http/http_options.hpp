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

/// How an `http_store` asks. Bad values throw `option_error` at construction.
struct http_options {
  /// The most requests under way at once, each on a connection of its own, over all callers;
  /// at most 4096. More wait their turn.
  std::size_t most_in_flight = 256;

  /// Ranges of one object that are this near to each other, in bytes, are one request; what lies
  /// between them is received and dropped.
  std::uint64_t merge_gap = 65'536;

  /// The longest request in bytes. Ranges are merged up to it, and longer ones are split.
  std::uint64_t largest_request = 8'388'608;

  /// How often a request is made before its failure is an error: after 408, 429, 500, 502, 503,
  /// 504, connections that fail or are cut, bodies that are short or have another sum, and silence.
  unsigned attempts = 5;

  /// Before attempt k + 1 passes a random time below `first_delay` * 2^(k - 1) and `longest_delay`.
  std::chrono::milliseconds first_delay{100};
  /// The longest of these, and the longest that a server's Retry-After is heeded.
  std::chrono::milliseconds longest_delay{20'000};

  /// How long making a connection may take.
  std::chrono::milliseconds connect_timeout{10'000};
  /// How long an attempt may go without a byte.
  std::chrono::milliseconds silence_timeout{30'000};
  /// How long a call may take with all its attempts, and each page of a listing;
  /// `store_unreachable` after that.
  std::chrono::milliseconds deadline{600'000};

  /// How many redirects are followed. A store whose URL is https never follows one to http.
  unsigned most_redirects = 5;

  /// Lines such as "Authorization: Bearer ..." that go with each request. No error shows them.
  /// libcurl leaves out Authorization and Cookie where a redirect leads to another host, and no
  /// other line.
  std::vector<std::string> headers = {};

  /// Whether the ETag, besides the size, tells that an object has changed. Off for servers that
  /// give one object several.
  bool check_etag = true;

  /// Whether Last-Modified tells it where there is no strong ETag, and goes with requests as
  /// If-Unmodified-Since. Off for servers that give one object several.
  bool check_modified = true;

  /// Whether bodies are compared with the sum that the server names, and asked for again where they
  /// differ: Content-Digest, and for whole objects Repr-Digest, x-goog-hash and x-amz-checksum-...,
  /// which an `s3_store` asks for. Summed on the store's one thread: a CRC is quick, SHA-256 takes
  /// several times as long.
  bool check_sums = true;

  /// A file of certificates to trust in place of the system's; "" for those.
  std::string ca_file = {};

  /// The key of the random delays.
  std::uint64_t seed = 0;
};

/// What an `http_store` has done since its construction.
struct http_stats {
  std::uint64_t ranges = 0;          ///< that callers asked for, empty ones left out
  std::uint64_t requests = 0;        ///< attempts that were begun
  std::uint64_t retries = 0;         ///< those of them that repeated a failed one
  std::uint64_t merged = 0;          ///< ranges that came along in the request of another one
  std::uint64_t unversioned = 0;     ///< parts of objects of which only the size was compared
  std::uint64_t bytes = 0;           ///< of bodies received, dropped ones and errors' too
  std::uint64_t connections = 0;     ///< that were made
  std::uint64_t in_flight = 0;       ///< requests under way now
  std::uint64_t most_in_flight = 0;  ///< the most that there ever were
  duration_stats first_byte;  ///< from the start of an attempt to the first byte of its answer
};

namespace detail {

inline void require_option(bool holds, const char* option, const char* problem) {
  if (!holds) throw option_error(option, problem);
}

/// Throws `option_error` for what can't work.
inline void require_sound(const http_options& options) {
  using std::chrono::milliseconds;
  constexpr milliseconds most{std::chrono::hours{24 * 20}};  // libcurl counts in 31 bits
  const auto require_time = [&](milliseconds time, const char* option) {
    require_option(time > milliseconds{0} && time <= most, option,
                   "must be above 0 and at most 20 days");
  };
  require_option(options.most_in_flight >= 1 && options.most_in_flight <= 4096, "most_in_flight",
                 "must be in 1 to 4096");
  require_option(options.largest_request >= 1, "largest_request", "must be at least 1");
  require_option(options.attempts >= 1 && options.attempts <= 1000, "attempts",
                 "must be in 1 to 1000");
  require_time(options.first_delay, "first_delay");
  require_time(options.longest_delay, "longest_delay");
  require_time(options.connect_timeout, "connect_timeout");
  require_time(options.silence_timeout, "silence_timeout");
  require_time(options.deadline, "deadline");
  require_option(options.most_redirects <= 50, "most_redirects", "must be at most 50");
  for (const std::string& line : options.headers) {
    require_option(line.find_first_of(std::string_view{"\r\n\0", 3}) == std::string::npos &&
                       line.find(':') != std::string::npos && line.find(':') != 0,
                   "headers", "each must be one line, \"Name: value\"");
  }
}

}  // namespace detail

/// The credentials of a request to S3. No error and no log of this library shows any of it.
struct s3_credentials {
  std::string key_id;              ///< AWS_ACCESS_KEY_ID
  std::string secret;              ///< AWS_SECRET_ACCESS_KEY
  std::string session_token = {};  ///< AWS_SESSION_TOKEN; "" where there is none
};

/// Where the host of a bucket's requests comes from.
enum class s3_addressing {
  usual,  ///< `path` with an endpoint or a bucket with a dot in its name, else `virtual_host`
  virtual_host,  ///< https://bucket.s3.region.amazonaws.com/key
  path,          ///< https://endpoint/bucket/key
};

/// How an `s3_store` asks. Bad values throw `option_error` at construction.
struct s3_options {
  /// The bucket's region; "": of AWS_REGION, AWS_DEFAULT_REGION, the profile, or us-east-1.
  std::string region = {};

  /// The server, for MinIO, Ceph and the like: "http://127.0.0.1:9000"; "": of AWS_ENDPOINT_URL_S3
  /// or AWS_ENDPOINT_URL, or AWS.
  std::string endpoint = {};

  /// How the bucket is named in a request.
  s3_addressing addressing = s3_addressing::usual;

  /// Empty: those of the environment, or of the profile in ~/.aws/credentials and
  /// ~/.aws/config, which are read once, at construction.
  std::optional<s3_credentials> credentials = std::nullopt;

  /// The profile of these files, in preference to the environment; "": of AWS_PROFILE, or default.
  std::string profile = {};

  /// Asks without credentials and a signature, as public buckets allow.
  bool anonymous = false;

  /// How requests are made. `headers` and `most_redirects` have no meaning here.
  http_options http = {};
};

/// An object that `s3_store::list` has found.
struct s3_object {
  std::string key;         ///< its name in the store
  std::uint64_t size = 0;  ///< in bytes
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
