// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/http_call.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/http_options.hpp>

#if LIBCURL_VERSION_NUM < 0x075500
#error "penstock::http needs libcurl 7.85 or newer"
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Owns a reference to libcurl's global state, which libcurl counts. The count is thread-safe since
/// libcurl 7.84 if the compiler has atomics (feature "threadsafe" in `curl --version`). Without
/// this feature, a program must call `curl_global_init` before it starts its first thread.
class curl_library {
 public:
  curl_library() {
    if (::curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      throw error("curl_global_init failed: libcurl or its TLS library cannot be used here");
    }
  }
  curl_library(curl_library&&) = delete;
  ~curl_library() { ::curl_global_cleanup(); }
};

struct free_curl_easy {
  void operator()(CURL* easy) const noexcept { ::curl_easy_cleanup(easy); }
};
struct free_curl_list {
  void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
};

/// A libcurl handle for one transfer at a time.
using curl_easy = std::unique_ptr<CURL, free_curl_easy>;
/// The headers of a request.
using curl_list = std::unique_ptr<curl_slist, free_curl_list>;

/// Appends a header.
inline void append(curl_list& list, const std::string& line) {
  curl_slist* const longer = ::curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  static_cast<void>(list.release());
  list.reset(longer);
}

/// Sets an option. Throws `error` if libcurl was built without the option.
template <class Value>
void set(CURL* easy, ::CURLoption option, const Value& value) {
  const ::CURLcode code = ::curl_easy_setopt(easy, option, value);
  if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLE_OK) {
    throw error("libcurl rejects option " + std::to_string(static_cast<int>(option)) + ": " +
                ::curl_easy_strerror(code));
  }
}

/// Sets an optional option. Ignores failures.
template <class Value>
void set_if_taken(CURL* easy, ::CURLoption option, const Value& value) noexcept {
  static_cast<void>(::curl_easy_setopt(easy, option, value));
}

/// The result of an attempt: success, a permanent failure with `error`, or a failure that may be
/// retried, in which case `success` is false and `error` is empty.
struct attempt_result {
  bool success = false;
  /// True if HEAD returned no result, so that the first byte must be requested.
  bool retry_with_get = false;
  std::exception_ptr error = {};
  std::string reason = {};  ///< reason for a failure that may be retried
  std::optional<std::chrono::milliseconds> retry_after = std::nullopt;
};

/// Parses a Retry-After value, which is a number of seconds or a date.
[[nodiscard]] inline std::optional<std::chrono::milliseconds> retry_after(const std::string& text) {
  constexpr std::uint64_t max = 86'400;  // one day
  if (const auto seconds = whole_number(text)) {
    return std::chrono::seconds{static_cast<std::int64_t>((std::min)(*seconds, max))};
  }
  const std::time_t date = text.empty() ? -1 : ::curl_getdate(text.c_str(), nullptr);
  if (date == -1) return std::nullopt;
  const std::int64_t left = std::int64_t{date} - std::int64_t{std::time(nullptr)};
  return std::chrono::seconds{std::clamp<std::int64_t>(left, 0, std::int64_t{max})};
}

/// Returns true if a transfer with this result may be retried. Returns false for problems with the
/// request, the certificates or libcurl itself.
[[nodiscard]] inline bool may_pass(::CURLcode code) noexcept {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2_STREAM:
    case CURLE_NO_CONNECTION_AVAILABLE:
    case CURLE_AGAIN:
      return true;
    default:
      return false;
  }
}

enum class request_kind {
  range,   ///< reads object bytes for the parts of a plan
  header,  ///< queries the object size with HEAD
  /// Queries the size in Content-Range by requesting the first byte, if HEAD returned none.
  probe,
  page,  ///< reads a whole body, such as a listing page
};

/// A request with all its attempts: the target, the received data, and the evaluation of each
/// attempt. After a request is submitted, only the reactor accesses it.
class http_request {
 public:
  static constexpr std::size_t max_page = std::size_t{64} << 20U;
  static constexpr std::size_t max_error = 8192;

  std::shared_ptr<http_call> call;
  http_target target;
  std::string object;  ///< object name in the store
  const http_options* options = nullptr;
  request_kind kind = request_kind::range;
  planned_request range = {};

  unsigned failures = 0;
  std::string unmodified_since = {};  ///< date that is sent with the next attempt, or ""

  // The members below are the state of the current attempt.
  curl_easy easy = {};
  curl_list lines = {};
  http_answer answer = {};
  std::uint64_t received = 0;                  ///< size of the body so far in bytes
  std::optional<body_checksum> checksum = {};  ///< running checksum, if the server reported one
  std::string error_body = {};                 ///< start of an error body
  std::exception_ptr rejection = {};           ///< reason why the body was rejected
  bool is_enough = false;  ///< true if the attempt was ended because the remaining body
                           ///< is not needed
  std::chrono::steady_clock::time_point last_byte = {};
  std::array<char, CURL_ERROR_SIZE> curl_words = {};

  [[nodiscard]] std::uint64_t size() const noexcept { return range.end - range.begin; }

  /// Returns the object offset at which the body of this response ends. A server may send only the
  /// first bytes of a range (RFC 9110, 14.2).
  [[nodiscard]] std::uint64_t answered_end() const noexcept {
    const bool is_part = kind == request_kind::range && answer.status == 206 && answer.range;
    return is_part ? (std::min)(range.end, answer.range->end) : range.end;
  }
  [[nodiscard]] const char* method() const noexcept {
    return kind == request_kind::header ? "HEAD" : "GET";
  }

  /// Returns an error of type `E` about the object.
  template <class E>
  [[nodiscard]] std::exception_ptr problem(std::string expected, std::string found) const {
    return std::make_exception_ptr(
        E(target.shown(), range.begin, std::move(expected), std::move(found)));
  }

  /// Formats the request for messages.
  [[nodiscard]] std::string wanted() const {
    if (kind == request_kind::page) return "a listing";
    if (kind != request_kind::range) return "the size of the object";
    return "bytes " + std::to_string(range.begin) + " to " + std::to_string(range.end);
  }

  /// Prepares the request and its new or reset handle for the next attempt.
  void prepare(const http_service& service) {
    answer = {};
    received = 0;
    checksum.reset();
    error_body.clear();
    rejection = {};
    is_enough = false;
    curl_words[0] = '\0';
    last_byte = std::chrono::steady_clock::now();
    call->page.clear();
    CURL* const handle = easy.get();
    set(handle, CURLOPT_URL, target.url().c_str());
    set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    set(handle, CURLOPT_REDIR_PROTOCOLS_STR, target.is_secure() ? "https" : "http,https");
    set(handle, CURLOPT_FOLLOWLOCATION, options->max_redirects == 0 ? 0L : 1L);
    set(handle, CURLOPT_MAXREDIRS, static_cast<long>(options->max_redirects));
    set(handle, CURLOPT_SSL_VERIFYPEER, 1L);
    set(handle, CURLOPT_SSL_VERIFYHOST, 2L);
    if (!options->ca_file.empty()) {
      set(handle, CURLOPT_CAINFO, options->ca_file.c_str());
      // Without a certificate directory, only `ca_file` is used.
      set(handle, CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    }
    // Many concurrent requests are fast on separate connections, and a lost connection affects only
    // one request.
    set(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(handle, CURLOPT_NOSIGNAL, 1L);
    set(handle, CURLOPT_PATH_AS_IS, 1L);
    set_if_taken(handle, CURLOPT_TCP_KEEPALIVE, 1L);
    set_if_taken(handle, CURLOPT_BUFFERSIZE, 128L * 1024);
    set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options->connect_timeout.count()));
    set_if_taken(handle, CURLOPT_USERAGENT, "penstock");
    set(handle, CURLOPT_ERRORBUFFER, curl_words.data());
    set(handle, CURLOPT_WRITEFUNCTION, &taken<&http_request::take_piece>);
    set(handle, CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(handle, CURLOPT_HEADERFUNCTION, &taken<&http_request::take_line>);
    set(handle, CURLOPT_HEADERDATA, static_cast<void*>(this));
    if (kind == request_kind::header) {
      set(handle, CURLOPT_NOBODY, 1L);
    } else if (kind != request_kind::page) {
      const std::string bytes = std::to_string(range.begin) + '-' + std::to_string(range.end - 1);
      set(handle, CURLOPT_RANGE, bytes.c_str());
    }
    lines.reset();
    for (const std::string& line : service.headers(method(), target)) append(lines, line);
    if (!unmodified_since.empty()) append(lines, "If-Unmodified-Since: " + unmodified_since);
    if (lines) set(handle, CURLOPT_HTTPHEADER, lines.get());
  }

  /// Returns the result of an attempt that libcurl ended with `code`.
  [[nodiscard]] attempt_result judge(::CURLcode code, const http_service& service) {
    if (rejection) return {.error = std::exchange(rejection, nullptr)};
    const bool ended_by_us = is_enough && code == CURLE_WRITE_ERROR;
    if (code != CURLE_OK && !ended_by_us) return judge_code(code);
    const int status = answer.status;
    // An object that HEAD reports as empty has no first byte.
    if (kind == request_kind::probe && status == 416 && !answer.range && call->version.size == 0U) {
      return {.success = true};
    }
    const bool is_probe_of_nothing =
        kind == request_kind::probe && status == 416 && answer.range && answer.range->total == 0U;
    if (status != 200 && status != 206 && !is_probe_of_nothing) return judge_status(service);
    if (!answer.contradiction.empty()) {
      return {.error = problem<bad_response>("one " + answer.contradiction,
                                             "two different ones: the server contradicts itself")};
    }
    if (kind == request_kind::range) return judge_range(ended_by_us);
    if (kind == request_kind::page) return {.success = true};
    const object_version current = version();
    const bool is_header = kind == request_kind::header;
    const std::optional<std::uint64_t> of_header = std::exchange(call->version, current).size;
    // Many servers report a size of 0 for every object if no body follows.
    if (is_header && current.size.value_or(0) == 0) return {.retry_with_get = true};
    if (of_header && current.size && *of_header != *current.size) {
      return {
          .error = problem<bad_response>(
              "one size of the object",
              std::to_string(*of_header) + " bytes by HEAD and " + std::to_string(*current.size) +
                  " bytes by GET: the server contradicts itself, or the object was just written")};
    }
    if (current.size) return {.success = true};
    return {.error = problem<bad_response>("Content-Range with the object's size",
                                           "a response without it")};
  }

  /// Returns the error for an object that changed from `before` to `now`.
  [[nodiscard]] std::exception_ptr difference(const object_version& before,
                                              const object_version& now) const {
    std::string found = now.words() + new_store;
    if (before.has_other_etag(now)) {
      found += ", or set check_etag to false for a server that has several";
    } else if (before.size == now.size || !before.size || !now.size) {
      found += several_dates;
    }
    return problem<object_changed>(before.words() + ", as in an earlier response",
                                   std::move(found));
  }

  /// Returns libcurl's description of the transfer result.
  [[nodiscard]] std::string words_of(::CURLcode code) const {
    // A message about a URL may contain the whole URL, and a message about a proxy may contain its
    // password.
    const std::string_view text = curl_words.data();
    const bool is_secret = code == CURLE_URL_MALFORMAT || code == CURLE_COULDNT_RESOLVE_PROXY ||
                           text.starts_with("Unsupported proxy");
    return text.empty() || is_secret ? ::curl_easy_strerror(code) : std::string{text};
  }

  /// Returns true if the response is a part of an object whose version is known by size only.
  [[nodiscard]] bool is_unversioned(const object_version& found) const noexcept {
    return kind == request_kind::range && found.etag.empty() && found.modified.empty() &&
           !(found.size && size() == *found.size);
  }

  /// Returns the object version in this response.
  [[nodiscard]] object_version version() const {
    object_version found;
    if (answer.status == 206 || answer.status == 416) {
      if (answer.range) found.size = answer.range->total;
    } else if (answer.status == 200 && kind != request_kind::page) {
      found.size = answer.length;
    }
    found.is_of_get = answer.status / 100 == 2 && kind != request_kind::header;
    if (options->check_etag) found.etag = object_version::kept(answer.etag);
    if (options->check_modified) found.modified = object_version::kept(answer.modified);
    return found;
  }

 private:
  static constexpr const char* new_store = ": make a new store for the object as it is now";
  static constexpr const char* several_dates =
      ", or set check_modified to false for a server that has several dates for one object";

  // libcurl's callback for a header line or a piece of the body. If `Take` returns false or throws,
  // returns a different size, which ends the attempt.
  template <bool (http_request::*Take)(std::string_view)>
  static std::size_t taken(char* text, std::size_t one, std::size_t count, void* request) noexcept {
    auto& taking = *static_cast<http_request*>(request);
    const std::size_t size = one * count;
    try {
      taking.last_byte = std::chrono::steady_clock::now();
      return (taking.*Take)({text, size}) ? size : size + 1;
    } catch (...) {
      taking.rejection = std::current_exception();
      return size + 1;
    }
  }

  [[nodiscard]] bool take_line(std::string_view text) {
    answer.add_line(text);
    return true;
  }

  [[nodiscard]] bool take_piece(std::string_view text) {
    const std::uint64_t position = received;
    received += text.size();
    if (answer.status != 200 && answer.status != 206) {
      error_body.append(text.substr(0, max_error - error_body.size()));
      is_enough = error_body.size() == max_error;
      return !is_enough;
    }
    if (kind == request_kind::page) {
      if (call->page.size() + text.size() > max_page) {
        rejection = problem<bad_response>("a listing of at most 64 MiB", "a longer one");
        return false;
      }
      call->page.append(text);
      return true;
    }
    if (kind != request_kind::range) {
      // A server without range support sends the whole object.
      is_enough = true;
      return answer.status == 206 && received <= 1;
    }
    if (position == 0) rejection = wrong_range();
    if (!rejection && received > answered_end() - range.begin) {
      rejection = problem<bad_response>(wanted(), "a body that continues after them");
    }
    if (rejection) return false;
    if (position == 0 && options->verify_checksums) {
      if (auto digest = answer.digest_of_body()) checksum.emplace(std::move(*digest));
    }
    const auto bytes = std::as_bytes(std::span{text});
    if (checksum) checksum->add(bytes);
    if (call->deliver(range, range.begin + position, bytes)) return true;
    is_enough = true;
    return false;
  }

  // Returns the error for an object that ends before the requested range.
  [[nodiscard]] std::exception_ptr shorter_object(std::uint64_t bytes) const {
    return problem<file_truncated>(wanted(), "an object of " + std::to_string(bytes) + " bytes");
  }

  // Returns an error if the body of this response is not the requested range, otherwise null.
  [[nodiscard]] std::exception_ptr wrong_range() const {
    if (answer.status == 206) {
      if (!answer.range || answer.range->begin == answer.range->end) {
        return problem<bad_response>(
            "a Content-Range for " + wanted(),
            answer.has_range ? "one that cannot be parsed" : "206 Partial Content without one");
      }
      const content_range& sent = *answer.range;
      if (sent.total && *sent.total < range.end) {
        return shorter_object(*sent.total);
      }
      if (sent.begin != range.begin || sent.end > range.end) {
        return problem<bad_response>(wanted(), "Content-Range: bytes " +
                                                   std::to_string(sent.begin) + " to " +
                                                   std::to_string(sent.end));
      }
      return {};
    }
    // The server sent the whole object, which is correct only if the whole object was requested.
    if (range.begin == 0 && answer.length.value_or(range.end) == range.end) return {};
    if (answer.length && *answer.length < range.end) {
      return shorter_object(*answer.length);
    }
    return problem<bad_response>(
        wanted(),
        answer.is_transformed()
            ? "the whole object, decompressed in transit: store it without Content-Encoding, or "
              "accept the stored encoding with `headers`"
            : "the whole object: the server does not support range requests, which are required");
  }

  // Evaluates an attempt that ended with a libcurl error.
  [[nodiscard]] attempt_result judge_code(::CURLcode code) const {
    if (code == CURLE_OUT_OF_MEMORY) return {.error = std::make_exception_ptr(std::bad_alloc{})};
    std::string words = words_of(code);
    if (may_pass(code)) return {.reason = std::move(words)};
    if (code == CURLE_TOO_MANY_REDIRECTS ||
        (code == CURLE_UNSUPPORTED_PROTOCOL && answer.status / 100 == 3)) {
      return {.error = problem<bad_response>(wanted(),
                                             words + ": use the URL to which the redirects lead")};
    }
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
      words += is_for_another_host() ? ": the certificate is valid, but for another host: use a "
                                       "host name of the certificate in the URL"
                                     : ": set `ca_file` to the file of the CA certificates";
    }
    return {.error = problem<store_unreachable>(wanted(), std::move(words))};
  }

  // Evaluates a response that contains object bytes.
  [[nodiscard]] attempt_result judge_range(bool ended_by_us) {
    if (received == 0) {
      if (auto wrong = wrong_range()) return {.error = std::move(wrong)};
    }
    const std::uint64_t expected = answered_end() - range.begin;
    if (received < expected) {
      // A chunked body that ended correctly contains all bytes of the object.
      if (answer.status == 200 && answer.is_chunked) return {.error = shorter_object(received)};
      return {.reason = "a body of " + std::to_string(received) + " in place of " +
                        std::to_string(expected) + " bytes"};
    }
    if (checksum && !ended_by_us) {
      if (auto difference = checksum->difference()) return {.reason = *std::move(difference)};
    }
    return {.success = true};
  }

  // Evaluates a response with a failure status.
  [[nodiscard]] attempt_result judge_status(const http_service& service) const {
    const int status = answer.status;
    const service_error reported = service.error_of(answer, error_body);
    std::string found = "HTTP " + std::to_string(status);
    if (!reported.code.empty()) found += ", " + reported.code;
    if (reported.is_transient || status == 408 || status == 429 || status == 500 || status == 502 ||
        status == 503 || status == 504) {
      return {.reason = std::move(found), .retry_after = retry_after(answer.retry_after)};
    }
    const auto remedy = [&](const char* usual) {
      return found + ": " + (reported.remedy.empty() ? usual : reported.remedy);
    };
    // Some servers do not support HEAD or allow only GET. Also, only a GET response has a body,
    // which explains the failure.
    if (kind == request_kind::header &&
        (status == 400 || status == 403 || status == 405 || status == 501)) {
      return {.retry_with_get = true};
    }
    if (reported.is_denied || status == 401 || status == 403) {
      return {.error = problem<access_denied>(
                  wanted(), remedy("check the credentials and their permissions"))};
    }
    if (reported.is_missing || status == 404 || status == 410) {
      return {.error = problem<object_missing>(wanted(),
                                               remedy("check the store and the object's name"))};
    }
    if (status == 412 && !unmodified_since.empty()) {
      return {
          .error = problem<object_changed>(
              "an object with Last-Modified: " + unmodified_since + ", as in an earlier response",
              found + ", " + version().words() + new_store + several_dates)};
    }
    if (status == 416 && answer.range && answer.range->total) {
      return {.error = shorter_object(*answer.range->total)};
    }
    if (status == 416) return {.error = problem<file_truncated>(wanted(), found)};
    return {
        .error = problem<bad_response>(
            wanted(), remedy(status >= 300 && status < 400
                                 ? "a redirect that is not followed: use the URL to which it leads"
                                 : "the server does not support this request"))};
  }

  // Returns true if a rejected certificate is trusted but issued for a different host. libcurl has
  // the same code for both problems, so only the message of its TLS library distinguishes them.
  [[nodiscard]] bool is_for_another_host() const {
    const std::string_view text = curl_words.data();
    for (const char* const words : {"target host name", "does not match", "no alternative cert"}) {
      if (text.find(words) != std::string_view::npos) return true;
    }
    return false;
  }
};

/// A request that the reactor owns or will own.
using request_ptr = std::unique_ptr<http_request>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
