// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/http_client.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A `batching_store` of objects below a URL, read with range requests over HTTP/1.1, with or
/// without TLS. Requires libcurl (CMake target `penstock::http`).
///
///     http_store files{"https://data.example.org/imagenet"};
///     files.read({"train-000.tar", 4096, room});
///
/// A single reactor thread performs all requests over persistent connections, with up to
/// `max_in_flight` requests in flight. Callers block until their requests have finished. Requests
/// with transient failures are retried after a random delay. Certificates are verified. As in curl,
/// environment variables specify the proxy.
///
/// The store checks each response: the status, Content-Range, the length, and the size, ETag and
/// Last-Modified against earlier responses. The error types are in
/// `penstock_ext/store/byte_store.hpp`. A range beyond the end of the object causes
/// `file_truncated`. Error messages contain the URL without its query. After an exception, the
/// store no longer writes to the caller's memory.
///
/// Movable, not copyable. Several threads may call all members concurrently. The destructor ends
/// the thread. No call may be in progress when the destructor starts. In a child created by fork(),
/// each call throws `std::logic_error`. The constructor calls `curl_global_init`.
class http_store {
 public:
  /// Creates a store. The URL of an object is `base_url` + '/' + its percent-encoded name. A query
  /// in `base_url` is sent with each request and treated as secret. Throws `option_error` if the
  /// URL or an option is invalid. Throws `std::system_error` if the system cannot create a thread
  /// or a descriptor. Does not send a request.
  explicit http_store(std::string_view base_url, const http_options& options = {})
      : client_(std::make_unique<const detail::http_client>(
            detail::parse_store_url(base_url, "base_url"), options,
            std::make_shared<const detail::http_service>(options.headers))) {}

  /// Returns the object size in bytes from a HEAD request. If HEAD returns no size or 0, requests
  /// the first byte and uses the size in Content-Range.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return state_of(object).size;
  }

  /// Returns the object size, and the version reported by the server (see `versioned_store`). The
  /// version is the ETag. If the ETag is not strong, the version also contains Last-Modified.
  [[nodiscard]] object_state state_of(std::string_view object) const {
    return client_->state_of(object);
  }

  /// Reads one range (see `read_many`).
  void read(const byte_range& range) const { read_many({&range, 1}); }

  /// Reads all ranges, from any objects in any order. Adjacent ranges share a request, and all
  /// requests run concurrently. Throws the error of the first request that fails permanently.
  void read_many(std::span<const byte_range> ranges) const { client_->read_many(ranges); }

  /// Returns the base URL without its query.
  [[nodiscard]] std::string root() const { return client_->base().shown(); }
  /// Returns the current statistics.
  [[nodiscard]] http_stats stats() const { return client_->stats(); }

 private:
  std::unique_ptr<const detail::http_client> client_;
};

static_assert(batching_store<http_store>);
static_assert(versioned_store<http_store>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
