// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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
