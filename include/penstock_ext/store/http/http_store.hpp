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

/// Objects below a URL, read by ranges over HTTP/1.1, with TLS or without: a `batching_store`.
/// Needs libcurl: the CMake target `penstock::http`.
///
///     http_store files{"https://data.example.org/imagenet"};
///     files.read({"train-000.tar", 4096, room});
///
/// One thread of the store does all requests, up to `most_in_flight` of them at once, over
/// connections that are kept; callers wait for theirs. Requests that fail in a way that passes are
/// repeated after a random time. Certificates are checked; a proxy is taken from the environment,
/// as curl does.
///
/// Each answer is checked: status, Content-Range, length, and size, ETag and Last-Modified against
/// those of answers before. Errors are of `penstock_ext/store/byte_store.hpp`, and
/// `file_truncated` for a range beyond the object's end; they name the URL without its query. After
/// an exception nothing is written to the caller's memory any more.
///
/// Movable, not copyable. Members are called from several threads at once. The destructor ends the
/// thread; no call may be under way then. In a child made by fork() each call throws
/// `std::logic_error`. The constructor calls `curl_global_init`, which libcurl counts and locks.
class http_store {
 public:
  /// Objects are `base_url` + '/' + their names, percent-encoded; a query in it goes with each
  /// request and is taken for secret. Throws `option_error` for a URL or options that can't work,
  /// and `std::system_error` where the system refuses a thread or a descriptor. Asks the server for
  /// nothing.
  explicit http_store(std::string_view base_url, const http_options& options = {})
      : client_(std::make_unique<const detail::http_client>(
            detail::parse_store_url(base_url, "base_url"), options,
            std::make_shared<const detail::http_service>(options.headers))) {}

  /// The object's size in bytes: by HEAD or, where that does not tell, by the first byte's
  /// Content-Range.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return state_of(object).size;
  }

  /// The object's size and, in the words of the server, its version: its ETag, or for want of a
  /// strong one its Last-Modified too; see `versioned_store`.
  [[nodiscard]] object_state state_of(std::string_view object) const {
    return client_->state_of(object);
  }

  /// Reads one range; see `read_many`.
  void read(const byte_range& range) const { read_many({&range, 1}); }

  /// Reads all ranges, of any objects in any order: neighbours as one request, all requests at
  /// once. Throws for the first of them that fails for good.
  void read_many(std::span<const byte_range> ranges) const { client_->read_many(ranges); }

  /// The URL below which the objects are, without its query.
  [[nodiscard]] std::string root() const { return client_->base().shown(); }
  /// What the store has done so far.
  [[nodiscard]] http_stats stats() const { return client_->stats(); }

 private:
  std::unique_ptr<const detail::http_client> client_;
};

static_assert(batching_store<http_store>);
static_assert(versioned_store<http_store>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
