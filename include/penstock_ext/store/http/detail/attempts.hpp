// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/http/detail/curl_handles.hpp>
#include <penstock_ext/store/http/detail/exchange.hpp>
#include <penstock_ext/store/http/detail/http_meters.hpp>
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

/// An exchange on its way through the reactor.
using exchange_ptr = std::unique_ptr<http_exchange>;

/// The attempts that are under way, at most so many, and the connections that they leave for the
/// next ones. One thread uses it, but for `wake`.
class http_attempts {
 public:
  /// Takes the memory for `most` of them.
  explicit http_attempts(std::size_t most) : most_(most), multi_(::curl_multi_init()) {
    if (!multi_) throw std::bad_alloc();
    ::curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, static_cast<long>(most));
    active_.reserve(most);
    idle_.reserve(most);
  }
  http_attempts(const http_attempts&) = delete;
  http_attempts& operator=(const http_attempts&) = delete;
  ~http_attempts() {
    while (!active_.empty()) static_cast<void>(end(active_.size() - 1));
  }

  /// How many there are.
  [[nodiscard]] std::size_t size() const noexcept { return active_.size(); }
  /// Whether one more may start.
  [[nodiscard]] bool has_room() const noexcept { return active_.size() < most_; }
  /// Number `i` of them; their order changes.
  [[nodiscard]] http_exchange& operator[](std::size_t i) noexcept { return *active_[i]; }

  /// Starts an attempt for `one`, where there is room. Throws what `prepare` throws; `one` is lost
  /// then.
  void start(exchange_ptr one, const http_options& options, const http_service& service) {
    if (idle_.empty()) idle_.push_back(new_curl_easy());
    one->easy = std::move(idle_.back());
    idle_.pop_back();
    prepare(*one, options, service);
    if (::curl_multi_add_handle(multi_.get(), one->easy.get()) != CURLM_OK) throw std::bad_alloc();
    active_.push_back(std::move(one));  // reserved
  }

  /// Ends the attempt number `i`, finished or not; the place goes to another one.
  exchange_ptr end(std::size_t i) noexcept {
    exchange_ptr one = std::move(active_[i]);
    active_[i] = std::move(active_.back());
    active_.pop_back();
    ::curl_multi_remove_handle(multi_.get(), one->easy.get());
    ::curl_easy_reset(one->easy.get());     // forgets where the exchange is, not the connection
    idle_.push_back(std::move(one->easy));  // reserved: as many as ever were active
    return one;
  }

  /// Ends the attempt number `i`, which has not ended by itself.
  exchange_ptr cut(std::size_t i, http_meters& meters) noexcept {
    meters.end(*active_[i], active_.size() - 1);
    return end(i);
  }

  /// Moves bytes, without a wait, and calls `finished(exchange, code)` for each attempt that has
  /// ended.
  template <class Finished>
  void advance(http_meters& meters, const Finished& finished) noexcept {
    int running = 0;
    ::curl_multi_perform(multi_.get(), &running);
    int left = 0;
    while (const ::CURLMsg* const message = ::curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const ::CURLcode code = message->data.result;
      const auto place = std::find_if(active_.begin(), active_.end(), [&](const auto& one) {
        return one->easy.get() == message->easy_handle;
      });
      meters.end(**place, active_.size() - 1);
      finished(end(static_cast<std::size_t>(place - active_.begin())), code);
    }
  }

  /// Sleeps until a socket is ready, `wake` is called or `most` has passed.
  void sleep(std::chrono::milliseconds most) noexcept {
    const auto left = std::clamp<std::chrono::milliseconds::rep>(most.count(), 0, 3'600'000);
    ::curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(left), nullptr);
  }

  /// Ends this sleep, or the next one. From any thread.
  void wake() noexcept { ::curl_multi_wakeup(multi_.get()); }

 private:
  struct free_curl_multi {
    void operator()(CURLM* multi) const noexcept { ::curl_multi_cleanup(multi); }
  };

  std::size_t most_;
  std::unique_ptr<CURLM, free_curl_multi> multi_;
  std::vector<exchange_ptr> active_;
  std::vector<curl_easy> idle_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
