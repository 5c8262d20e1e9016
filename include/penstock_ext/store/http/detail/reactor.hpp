// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/http/detail/attempts.hpp>
#include <penstock_ext/store/http/detail/exchange.hpp>
#include <penstock_ext/store/http/detail/http_meters.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/detail/object_version.hpp>
#include <penstock_ext/store/http/http_options.hpp>
#include <penstock_ext/store/remote_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How long to wait before a request is repeated: exponential backoff with full jitter, so that
/// many that failed together do not come back together. Source: Brooker, "Exponential Backoff And
/// Jitter", AWS Architecture Blog, 2015.
class backoff {
 public:
  using milliseconds = std::chrono::milliseconds;

  backoff(milliseconds first, milliseconds longest, std::uint64_t seed) noexcept
      : first_((std::min)(first, longest)), longest_(longest), seed_(seed) {}

  /// The wait after the failure number `failures`, from 1 on, of some request; `asked` is what the
  /// server would have. Each call draws anew.
  [[nodiscard]] milliseconds next(unsigned failures, std::optional<milliseconds> asked) {
    milliseconds most = first_;
    for (unsigned i = 1; i < failures && most < longest_; ++i) most *= 2;
    most = (std::min)(most, longest_);
    sample_generator gen{{.seed = seed_}, draws_++};
    const milliseconds drawn{uniform(gen, std::int64_t{0}, std::int64_t{most.count()})};
    if (!asked) return drawn;
    const milliseconds least = std::clamp(*asked, milliseconds{0}, longest_);
    return (std::min)(least + drawn, longest_);
  }

 private:
  milliseconds first_;
  milliseconds longest_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
};

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

/// The thread that does the requests of a store: it alone uses libcurl's handles, and each exchange
/// after `submit`. It sleeps until a socket is ready, an exchange is submitted, a call is over, a
/// wait before a repetition ends, or a server has been silent for too long.
class http_reactor {
 public:
  using clock = std::chrono::steady_clock;

  /// Starts the thread. Throws `std::system_error` where the system refuses one.
  http_reactor(const http_options& options, std::shared_ptr<const http_service> service)
      : options_(options),
        service_(std::move(service)),
        backoff_(options.first_delay, options.longest_delay, options.seed),
        attempts_(options.most_in_flight) {
    // A program's signals are not for this thread; SIGPIPE, which a TLS library may raise, is for
    // nobody.
    ::sigset_t all;
    ::sigset_t former;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &former);
    try {
      thread_ = std::thread{[this] { run(); }};
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }
  http_reactor(const http_reactor&) = delete;
  http_reactor& operator=(const http_reactor&) = delete;
  ~http_reactor() {
    {
      const std::lock_guard lock{mutex_};
      is_ending_ = true;
    }
    wake();
    thread_.join();
  }

  /// Hands exchanges over, in this order; none is left in `exchanges`. From any thread.
  void submit(std::vector<exchange_ptr>& exchanges) {
    {
      const std::lock_guard lock{mutex_};
      inbox_.reserve(inbox_.size() + exchanges.size());
      for (auto& one : exchanges) inbox_.push_back(std::move(one));
    }
    wake();
  }

  /// Has the thread look around: a call is over. From any thread.
  void wake() noexcept { attempts_.wake(); }

  /// What has been done so far. From any thread.
  [[nodiscard]] http_stats stats() const { return meters_.snapshot(); }

 private:
  struct delayed_exchange {
    clock::time_point due;
    exchange_ptr one;
  };

  void run() noexcept {
    while (take_inbox()) {
      // Before silence is judged: bytes may have waited for this thread, not it for them.
      attempts_.advance(
          meters_, [this](exchange_ptr one, ::CURLcode code) { finish(std::move(one), code); });
      const auto now = clock::now();
      drop_unwanted(now);
      take_delayed(now);
      const bool has_new = start_ready();
      attempts_.sleep(has_new ? std::chrono::milliseconds{0} : longest_sleep());
    }
  }

  // False at the end.
  [[nodiscard]] bool take_inbox() noexcept {
    std::vector<exchange_ptr> taken;
    {
      const std::lock_guard lock{mutex_};
      if (is_ending_) return false;
      taken.swap(inbox_);
    }
    for (exchange_ptr& one : taken) {
      if (const planned_request& range = one->range; range.parts > 0) {
        // A call's ranges count with its first request.
        meters_.ask(range.first_part == 0 ? one->call->plan().ranges : 0, range.parts - 1);
      }
      guarded(*one, [&] { ready_.push_back(std::move(one)); });
    }
    return true;
  }

  // Ends what nobody waits for any more, and attempts whose server is silent.
  void drop_unwanted(clock::time_point now) noexcept {
    for (std::size_t i = attempts_.size(); i-- > 0;) {
      if (attempts_[i].call->was_over()) {
        static_cast<void>(attempts_.cut(i, meters_));
      } else if (now - attempts_[i].last_byte >= options_.silence_timeout) {
        repeat(attempts_.cut(i, meters_),
               "silence of the server for the time of `silence_timeout`");
      }
    }
  }

  void take_delayed(clock::time_point now) noexcept {
    for (std::size_t i = 0; i < delayed_.size();) {
      http_exchange& again = *delayed_[i].one;
      if (delayed_[i].due > now && !again.call->was_over()) {
        ++i;
        continue;
      }
      exchange_ptr one = std::move(delayed_[i].one);
      delayed_.erase(delayed_.begin() + static_cast<std::ptrdiff_t>(i));
      guarded(again, [&] { ready_.push_front(std::move(one)); });
    }
  }

  // Whether any has started.
  [[nodiscard]] bool start_ready() noexcept {
    bool has_any = false;
    while (!ready_.empty() && attempts_.has_room()) {
      exchange_ptr one = std::move(ready_.front());
      ready_.pop_front();
      if (one->call->was_over()) continue;
      const bool is_retry = one->failures != 0;
      guarded(*one, [&] {
        one->unmodified_since = condition_of(*one);
        attempts_.start(std::move(one), options_, *service_);
        meters_.begin(is_retry, attempts_.size());
        has_any = true;
      });
    }
    return has_any;
  }

  void finish(exchange_ptr one, ::CURLcode code) noexcept {
    guarded(*one, [&] {
      http_verdict verdict = judge_exchange(*one, code, *service_);
      if (verdict.asks_otherwise) {
        one->wish = http_wish::probe;
        ready_.push_front(std::move(one));
      } else if (verdict.error) {
        // An object that is shorter now no longer has the range.
        auto problem = said_to_be_another(*one);
        one->call->fail(problem ? std::move(problem) : std::move(verdict.error));
      } else if (!verdict.success) {
        repeat(std::move(one), verdict.reason, verdict.retry_after);
      } else if (auto problem = changed(*one)) {
        one->call->fail(std::move(problem));
      } else {
        if (one->is_unversioned(one->version())) meters_.take_unversioned();
        one->call->finish_one();
      }
    });
  }

  // Where the object is another one than earlier answers told of.
  [[nodiscard]] std::exception_ptr changed(const http_exchange& one) {
    if (one.wish == http_wish::page) return {};
    const object_version said = one.version();
    object_version& in_call = one.call->version(one.range.object);
    if (!in_call.agrees(said)) return difference(one, in_call, said);
    object_version& known = versions_.of(one.object);
    if (!known.agrees(said)) return difference(one, known, said);
    return {};
  }

  // Checks the object version of a failed answer, whose body is discarded.
  [[nodiscard]] std::exception_ptr said_to_be_another(const http_exchange& one) {
    const int status = one.answer.status;
    if (one.wish == http_wish::page || (status != 200 && status != 206 && status != 416)) return {};
    const object_version said = one.version();
    const object_version& in_call = one.call->version(one.range.object);
    if (in_call.differs(said)) return difference(one, in_call, said);
    const object_version* const known = versions_.find(one.object);
    return known != nullptr && known->differs(said) ? difference(one, *known, said) : nullptr;
  }

  // The date after which an object without a strong ETag must not have changed; "" where none is
  // known.
  [[nodiscard]] std::string condition_of(const http_exchange& one) {
    if (one.wish != http_wish::range || !one.checks_modified) return {};
    const object_version* known = &one.call->version(one.range.object);
    if (known->modified.empty()) known = versions_.find(one.object);
    if (known == nullptr || known->has_strong_etag()) return {};
    // What came from a server goes into a header: a date and nothing else.
    const std::string& date = known->modified;
    const bool is_date =
        std::all_of(date.begin(), date.end(), [](char c) { return c >= ' ' && c <= '~'; }) &&
        !date.empty() && ::curl_getdate(date.c_str(), nullptr) != -1;
    return is_date ? date : std::string{};
  }

  void repeat(exchange_ptr one, const std::string& reason,
              std::optional<std::chrono::milliseconds> asked = std::nullopt) noexcept {
    guarded(*one, [&] {
      if (++one->failures >= options_.attempts) {
        one->call->fail(one->problem<store_unreachable>(
            one->wanted(), reason + ", attempt " + std::to_string(one->failures) + " of " +
                               std::to_string(options_.attempts)));
        return;
      }
      const auto due = clock::now() + backoff_.next(one->failures, asked);
      delayed_.push_back({due, std::move(one)});
    });
  }

  // What fails in the work for an exchange is the error of its call.
  template <class Work>
  void guarded(const http_exchange& one, const Work& work) noexcept {
    const std::shared_ptr<http_call> call = one.call;
    try {
      work();
    } catch (...) {
      call->fail(std::current_exception());
    }
  }

  // Until the next repetition, or until a server has been silent for too long.
  [[nodiscard]] std::chrono::milliseconds longest_sleep() noexcept {
    const auto now = clock::now();
    auto until = now + std::chrono::hours{1};
    for (const delayed_exchange& later : delayed_) until = (std::min)(until, later.due);
    for (std::size_t i = 0; i < attempts_.size(); ++i) {
      until = (std::min)(until, attempts_[i].last_byte + options_.silence_timeout);
    }
    return std::chrono::ceil<std::chrono::milliseconds>(until - now);
  }

  const http_options options_;
  const std::shared_ptr<const http_service> service_;
  std::mutex mutex_;
  std::vector<exchange_ptr> inbox_;  // by mutex_
  bool is_ending_ = false;           // by mutex_
  http_meters meters_;
  // From here on the thread's own.
  backoff backoff_;
  version_table versions_;
  http_attempts attempts_;
  std::deque<exchange_ptr> ready_;
  std::vector<delayed_exchange> delayed_;
  std::thread thread_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
