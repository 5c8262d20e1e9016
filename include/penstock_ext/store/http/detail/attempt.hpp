// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/http/detail/curl_handles.hpp>
#include <penstock_ext/store/http/detail/exchange.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// libcurl's call for a piece of a body. Another number than it was given ends the attempt.
inline std::size_t take_body(char* bytes, std::size_t one, std::size_t count,
                             void* exchange) noexcept {
  auto& taking = *static_cast<http_exchange*>(exchange);
  try {
    const std::size_t size = one * count;
    return taking.take({reinterpret_cast<const std::byte*>(bytes), size}) ? size : size + 1;
  } catch (...) {
    taking.refusal = std::current_exception();
    return one * count + 1;
  }
}

/// libcurl's call for a line of an answer's header.
inline std::size_t take_line(char* text, std::size_t one, std::size_t count,
                             void* exchange) noexcept {
  auto& taking = *static_cast<http_exchange*>(exchange);
  try {
    taking.last_byte = std::chrono::steady_clock::now();
    taking.answer.add_line({text, one * count});
    return one * count;
  } catch (...) {
    taking.refusal = std::current_exception();
    return one * count + 1;
  }
}

/// Readies `one` and its handle, which is as new, for an attempt.
inline void prepare(http_exchange& one, const http_options& options, const http_service& service) {
  one.begin();
  CURL* const easy = one.easy.get();
  set(easy, CURLOPT_URL, one.target.url().c_str());
  set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  set(easy, CURLOPT_REDIR_PROTOCOLS_STR, one.target.is_secure() ? "https" : "http,https");
  set(easy, CURLOPT_FOLLOWLOCATION, options.most_redirects == 0 ? 0L : 1L);
  set(easy, CURLOPT_MAXREDIRS, static_cast<long>(options.most_redirects));
  set(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  set(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  if (!options.ca_file.empty()) set(easy, CURLOPT_CAINFO, options.ca_file.c_str());
  // A connection for each request: that is what makes many requests fast, and one that is cut
  // costs one request.
  set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(easy, CURLOPT_NOSIGNAL, 1L);
  set(easy, CURLOPT_PATH_AS_IS, 1L);
  set(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  set(easy, CURLOPT_BUFFERSIZE, 128L * 1024);
  set(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set(easy, CURLOPT_USERAGENT, "penstock");
  set(easy, CURLOPT_ERRORBUFFER, one.curl_words.data());
  set(easy, CURLOPT_WRITEFUNCTION, &take_body);
  set(easy, CURLOPT_WRITEDATA, static_cast<void*>(&one));
  set(easy, CURLOPT_HEADERFUNCTION, &take_line);
  set(easy, CURLOPT_HEADERDATA, static_cast<void*>(&one));
  set(easy, CURLOPT_PRIVATE, static_cast<void*>(&one));
  if (one.wish == http_wish::header) {
    set(easy, CURLOPT_NOBODY, 1L);
  } else if (one.wish != http_wish::page) {
    const std::string range =
        std::to_string(one.range.begin) + '-' + std::to_string(one.range.end - 1);
    set(easy, CURLOPT_RANGE, range.c_str());
  }
  one.lines.reset();
  for (const std::string& line : service.headers(one.method(), one.target)) {
    append(one.lines, line);
  }
  if (!one.unmodified_since.empty()) {
    append(one.lines, "If-Unmodified-Since: " + one.unmodified_since);
  }
  if (one.lines) set(easy, CURLOPT_HTTPHEADER, one.lines.get());
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
