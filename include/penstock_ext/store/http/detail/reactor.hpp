// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/http/detail/attempts.hpp>
#include <penstock_ext/store/http/detail/backoff.hpp>
#include <penstock_ext/store/http/detail/exchange.hpp>
#include <penstock_ext/store/http/detail/http_meters.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/detail/object_version.hpp>
#include <penstock_ext/store/http/detail/verdict.hpp>
#include <penstock_ext/store/http/http_options.hpp>
#include <penstock_ext/store/remote_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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

  // The same for an answer that has failed, of which nothing is taken.
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
