// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/http/detail/exchange.hpp>
#include <penstock_ext/store/remote_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How an attempt ended: with what was wanted, with an error that no attempt will mend, or, where
/// both are empty, with `success` false: it may be made again.
struct http_verdict {
  bool success = false;
  bool asks_otherwise = false;  ///< HEAD does not tell: ask for the first byte
  std::exception_ptr error = {};
  std::string reason = {};  ///< of what may be made again
  std::optional<std::chrono::milliseconds> retry_after = std::nullopt;
};

/// What a Retry-After line asks for: seconds, or a date.
[[nodiscard]] inline std::optional<std::chrono::milliseconds> retry_after(const std::string& text) {
  constexpr std::uint64_t most = 86'400;  // a day
  if (const auto seconds = whole_number(text)) {
    return std::chrono::seconds{static_cast<std::int64_t>((std::min)(*seconds, most))};
  }
  const std::time_t date = text.empty() ? -1 : ::curl_getdate(text.c_str(), nullptr);
  if (date == -1) return std::nullopt;
  const std::int64_t left = std::int64_t{date} - std::int64_t{std::time(nullptr)};
  return std::chrono::seconds{std::clamp<std::int64_t>(left, 0, std::int64_t{most})};
}

/// Whether a transfer that ended so may be made again: no for what is wrong with the request, with
/// certificates or with this libcurl.
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

/// libcurl's words for how a transfer ended.
[[nodiscard]] inline std::string words_of(const http_exchange& one, ::CURLcode code) {
  // Words about a URL may show all of it, and those about a proxy its password.
  const std::string_view said = one.curl_words.data();
  const bool is_secret = code == CURLE_URL_MALFORMAT || code == CURLE_COULDNT_RESOLVE_PROXY ||
                         said.starts_with("Unsupported proxy");
  return said.empty() || is_secret ? ::curl_easy_strerror(code) : std::string{said};
}

inline constexpr const char* new_store = ": make a new store for the object as it is now";
inline constexpr const char* several_dates =
    ", or set check_modified to false for a server that has several dates for one object";

/// The verdict on an answer with a status that is no success.
[[nodiscard]] inline http_verdict judge_status(const http_exchange& one,
                                               const http_service& service) {
  const int status = one.answer.status;
  const http_complaint said = service.complaint(one.answer, one.error_body);
  std::string found = "HTTP " + std::to_string(status);
  if (!said.words.empty()) found += ", " + said.words;
  http_verdict verdict;
  if (said.is_passing || status == 408 || status == 429 || status == 500 || status == 502 ||
      status == 503 || status == 504) {
    verdict.reason = found;
    verdict.retry_after = retry_after(one.answer.retry_after);
    return verdict;
  }
  const auto remedy = [&](const char* usual) {
    return found + ": " + (said.remedy.empty() ? usual : said.remedy);
  };
  // Some have no HEAD, some allow GET alone, and the reason of a refusal is in a body.
  if (one.wish == http_wish::header &&
      (status == 400 || status == 403 || status == 405 || status == 501)) {
    verdict.asks_otherwise = true;
  } else if (said.is_refusal || status == 401 || status == 403) {
    verdict.error = one.problem<access_denied>(
        one.wanted(), remedy("check the credentials, and what they may read"));
  } else if (said.is_absence || status == 404 || status == 410) {
    verdict.error =
        one.problem<object_missing>(one.wanted(), remedy("check the store and the object's name"));
  } else if (status == 412 && !one.unmodified_since.empty()) {
    verdict.error = one.problem<object_changed>(
        "an object with Last-Modified: " + one.unmodified_since + ", as in an answer before",
        found + ", " + one.version().words() + new_store + several_dates);
  } else if (status == 416) {
    const auto& range = one.answer.range;
    verdict.error = one.problem<file_truncated>(
        one.wanted(),
        range && range->total ? "an object of " + std::to_string(*range->total) + " bytes" : found);
  } else {
    verdict.error = one.problem<bad_response>(
        one.wanted(), remedy(status >= 300 && status < 400
                                 ? "a redirect that is not followed: name the place it leads to"
                                 : "the server does not do this"));
  }
  return verdict;
}

/// Whether a certificate that was refused has been trusted, and has other names than the URL's
/// host. libcurl has one code for both; its TLS libraries say which by words.
[[nodiscard]] inline bool is_for_another_host(const http_exchange& one) {
  const std::string_view said = one.curl_words.data();
  for (const char* const words : {"target host name", "does not match", "no alternative cert"}) {
    if (said.find(words) != std::string_view::npos) return true;
  }
  return false;
}

/// The verdict on an attempt that ended with `code`.
[[nodiscard]] inline http_verdict judge_exchange(http_exchange& one, ::CURLcode code,
                                                 const http_service& service) {
  http_verdict verdict;
  if (one.refusal) {
    verdict.error = std::exchange(one.refusal, nullptr);
    return verdict;
  }
  const bool ended_by_us = one.is_enough && code == CURLE_WRITE_ERROR;
  if (code != CURLE_OK && !ended_by_us) {
    if (may_pass(code)) {
      verdict.reason = words_of(one, code);
    } else if (code == CURLE_OUT_OF_MEMORY) {
      verdict.error = std::make_exception_ptr(std::bad_alloc{});
    } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
      verdict.error = one.problem<store_unreachable>(
          one.wanted(),
          words_of(one, code) +
              (is_for_another_host(one)
                   ? ": the certificate is sound and for another host: use a name in the URL that "
                     "the certificate has"
                   : ": name the file of the certificates in `ca_file`"));
    } else if (code == CURLE_TOO_MANY_REDIRECTS ||
               (code == CURLE_UNSUPPORTED_PROTOCOL && one.answer.status / 100 == 3)) {
      verdict.error = one.problem<bad_response>(
          one.wanted(), words_of(one, code) + ": name the place that the redirects lead to");
    } else {
      verdict.error = one.problem<store_unreachable>(one.wanted(), words_of(one, code));
    }
    return verdict;
  }
  const int status = one.answer.status;
  if (one.wish == http_wish::probe && status == 416 && one.answer.range &&
      one.answer.range->total == 0U) {
    *one.version_found = one.version();
    verdict.success = true;
    return verdict;
  }
  if (status != 200 && status != 206) return judge_status(one, service);

  const object_version said = one.version();
  if (one.wish == http_wish::range) {
    if (one.received == 0) verdict.error = one.wrong_range();
    const bool is_short = !verdict.error && one.received < one.size();
    if (is_short && status == 200 && one.answer.is_chunked) {
      // It has ended as it should: the object has no more bytes.
      verdict.error = one.problem<file_truncated>(
          one.wanted(), "an object of " + std::to_string(one.received) + " bytes");
    } else if (is_short) {
      verdict.reason = "a body of " + std::to_string(one.received) + " in place of " +
                       std::to_string(one.size()) + " bytes";
    } else if (!verdict.error && one.sum && !ended_by_us) {
      verdict.reason = one.sum->difference().value_or("");
    }
    if (verdict.error || !verdict.reason.empty()) return verdict;
  } else if (one.wish != http_wish::page) {
    if (!said.size) {
      if (one.wish == http_wish::header) {
        verdict.asks_otherwise = true;
      } else {
        verdict.error = one.problem<bad_response>("Content-Range with the object's size",
                                                  "an answer that does not say it");
      }
      return verdict;
    }
    *one.version_found = said;
  }
  verdict.success = true;
  return verdict;
}

/// The error for an object that is not the one that was `before`.
[[nodiscard]] inline std::exception_ptr difference(const http_exchange& one,
                                                   const object_version& before,
                                                   const object_version& now) {
  std::string found = now.words() + new_store;
  if (before.has_other_etag(now)) {
    found += ", or set check_etag to false for a server that has several";
  } else if (before.size == now.size || !before.size || !now.size) {
    found += several_dates;
  }
  return one.problem<object_changed>(before.words() + ", as in an answer before", std::move(found));
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
