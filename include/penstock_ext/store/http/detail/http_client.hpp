// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/order/random.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/signals/support/signals_blocked.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/http_call.hpp>
#include <penstock_ext/store/http/detail/http_request.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Formats the deadline of a call for messages.
[[nodiscard]] inline std::string within(std::chrono::milliseconds limit) {
  return " within the call's deadline of " + std::to_string(limit.count()) + " ms";
}

/// Computes retry delays by exponential backoff with full jitter, so that requests that failed
/// together are not retried together. Source: Brooker, "Exponential Backoff And Jitter", AWS
/// Architecture Blog, 2015.
class backoff {
 public:
  using milliseconds = std::chrono::milliseconds;

  backoff(milliseconds first, milliseconds longest, std::uint64_t seed) noexcept
      : first_((std::min)(first, longest)), longest_(longest), seed_(seed) {}

  /// Returns the delay after a request's failure number `failures`, counted from 1. `requested` is
  /// the delay requested by the server. Each call draws a new random number.
  [[nodiscard]] milliseconds next(unsigned failures, std::optional<milliseconds> requested) {
    milliseconds max = first_;
    for (unsigned i = 1; i < failures && max < longest_; ++i) max *= 2;
    max = (std::min)(max, longest_);
    sample_generator gen{{.seed = seed_}, draws_++};
    const milliseconds drawn{uniform(gen, std::int64_t{0}, std::int64_t{max.count()})};
    if (!requested) return drawn;
    const milliseconds min = std::clamp(*requested, milliseconds{0}, longest_);
    return (std::min)(min + drawn, longest_);
  }

 private:
  milliseconds first_;
  milliseconds longest_;
  std::uint64_t seed_;
  std::uint64_t draws_ = 0;
};

/// Counters that the reactor updates and any thread may read.
class http_meters {
 public:
  /// The reactor calls this for each call to count new ranges and ranges merged into the request of
  /// another range.
  void ask(std::size_t ranges, std::size_t merged) noexcept {
    ranges_.add(ranges);
    merged_.add(merged);
  }

  /// The reactor calls this at the start of an attempt. `in_flight` includes the new attempt.
  void begin(bool is_retry, std::size_t in_flight) noexcept {
    requests_.add(1);
    if (is_retry) retries_.add(1);
    in_flight_.set(in_flight);
    if (in_flight > max_in_flight_.value()) max_in_flight_.set(in_flight);
  }

  /// The reactor calls this to count a part of an object whose version is known by size only.
  void take_unversioned() noexcept { unversioned_.add(1); }

  /// The reactor calls this when an attempt has finished or was canceled. `in_flight` excludes that
  /// attempt.
  void end(const http_request& one, std::size_t in_flight) noexcept {
    in_flight_.set(in_flight);
    long connections = 0;
    ::curl_off_t microseconds = 0;
    ::curl_easy_getinfo(one.easy.get(), CURLINFO_NUM_CONNECTS, &connections);
    ::curl_easy_getinfo(one.easy.get(), CURLINFO_STARTTRANSFER_TIME_T, &microseconds);
    connections_.add(static_cast<std::uint64_t>(connections));
    bytes_.add(one.received);
    if (microseconds > 0) first_byte_.add(static_cast<std::uint64_t>(microseconds));
  }

  /// Returns the current counters. Any thread may call this.
  [[nodiscard]] http_stats snapshot() const {
    http_stats stats{.ranges = ranges_.value(),
                     .requests = requests_.value(),
                     .retries = retries_.value(),
                     .merged = merged_.value(),
                     .unversioned = unversioned_.value(),
                     .bytes = bytes_.value(),
                     .connections = connections_.value(),
                     .in_flight = in_flight_.value(),
                     .max_in_flight = max_in_flight_.value(),
                     .first_byte = {}};
    first_byte_.add_to(stats.first_byte);
    stats.first_byte.nanoseconds_per_tick = 1000;
    return stats;
  }

 private:
  tally ranges_;
  tally requests_;
  tally retries_;
  tally merged_;
  tally unversioned_;
  tally bytes_;
  tally connections_;
  tally in_flight_;
  tally max_in_flight_;
  histogram first_byte_;
};

/// The attempts in flight, and a pool of connections for later attempts. Not thread-safe, except
/// for `wake`.
class http_transfers {
 public:
  /// Allocates memory for up to `max` attempts. Throws `std::system_error` if no descriptor is
  /// available for `wake`.
  explicit http_transfers(std::size_t max) : max_(max), multi_(::curl_multi_init()) {
    if (!multi_) throw std::bad_alloc();
    // Without a free descriptor, libcurl creates a handle that cannot be woken.
    if (::curl_multi_wakeup(multi_.get()) != CURLM_OK) {
      throw std::system_error(std::make_error_code(std::errc::too_many_files_open),
                              "penstock: no file descriptor is left for a store over HTTP: raise "
                              "the limit (ulimit -n)");
    }
    ::curl_multi_setopt(multi_.get(), CURLMOPT_MAXCONNECTS, static_cast<long>(max));
    active_.reserve(max);
    idle_.reserve(max);
  }
  http_transfers(http_transfers&&) = delete;
  ~http_transfers() {
    while (!active_.empty()) static_cast<void>(end(active_.size() - 1));
  }

  /// Returns the number of attempts in flight.
  [[nodiscard]] std::size_t size() const noexcept { return active_.size(); }
  /// Returns true if another attempt can start.
  [[nodiscard]] bool has_room() const noexcept { return active_.size() < max_; }
  /// Returns attempt `i`. Indices change when attempts end.
  [[nodiscard]] http_request& operator[](std::size_t i) noexcept { return *active_[i]; }

  /// Starts an attempt for `one`. `has_room` must be true. If `http_request::prepare` throws,
  /// destroys `one` and rethrows.
  void start(request_ptr one, const http_service& service) {
    if (idle_.empty()) {
      one->easy.reset(::curl_easy_init());
      if (!one->easy) throw std::bad_alloc();
    } else {
      one->easy = std::move(idle_.back());
      idle_.pop_back();
    }
    one->prepare(service);
    if (::curl_multi_add_handle(multi_.get(), one->easy.get()) != CURLM_OK) throw std::bad_alloc();
    active_.push_back(std::move(one));  // cannot throw, because capacity was reserved
  }

  /// Removes attempt `i`, finished or not. The handle of a failed attempt is not reused, because a
  /// reset does not clear its whole state. Connections are independent of the handle and are
  /// reused.
  request_ptr end(std::size_t i, bool has_succeeded = false) noexcept {
    request_ptr one = std::move(active_[i]);
    active_[i] = std::move(active_.back());
    active_.pop_back();
    ::curl_multi_remove_handle(multi_.get(), one->easy.get());
    if (has_succeeded) {
      ::curl_easy_reset(one->easy.get());
      // This cannot throw, because capacity was reserved for all attempts.
      idle_.push_back(std::move(one->easy));
    }
    one->easy.reset();
    return one;
  }

  /// Cancels the unfinished attempt `i`.
  request_ptr cut(std::size_t i, http_meters& meters) noexcept {
    meters.end(*active_[i], active_.size() - 1);
    return end(i);
  }

  /// Transfers available bytes without blocking, and calls `finished(request, code)` for each
  /// attempt that has ended.
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
      finished(end(static_cast<std::size_t>(place - active_.begin()), code == CURLE_OK), code);
    }
  }

  /// Sleeps until a socket is ready, `wake` is called, or `max` has passed.
  void sleep(std::chrono::milliseconds max) noexcept {
    const auto left = std::clamp<std::chrono::milliseconds::rep>(max.count(), 0, 3'600'000);
    ::curl_multi_poll(multi_.get(), nullptr, 0, static_cast<int>(left), nullptr);
  }

  /// Ends the current or next sleep. Any thread may call this.
  void wake() noexcept { ::curl_multi_wakeup(multi_.get()); }

 private:
  struct free_curl_multi {
    void operator()(CURLM* multi) const noexcept { ::curl_multi_cleanup(multi); }
  };

  std::size_t max_;
  std::unique_ptr<CURLM, free_curl_multi> multi_;
  std::vector<request_ptr> active_;
  std::vector<curl_easy> idle_;
};

/// The thread that performs the requests of a store. Only this thread uses libcurl handles and
/// submitted requests. The thread sleeps until a socket is ready, a request is submitted, a call is
/// over, a retry is due, or a silence timeout expires.
class http_reactor {
 public:
  using clock = std::chrono::steady_clock;

  /// Starts the thread. Throws `std::system_error` if the system cannot create a thread or a
  /// descriptor.
  http_reactor(const http_options& options, std::shared_ptr<const http_service> service)
      : options_(options),
        service_(std::move(service)),
        backoff_(options.first_delay, options.max_delay, options.seed),
        transfers_(options.max_in_flight) {
    // The thread must not receive the program's signals. SIGPIPE, which the TLS library may raise,
    // must not be delivered to any thread.
    const signals_blocked while_it_starts;
    thread_ = std::thread{[this] { run(); }};
  }
  http_reactor(http_reactor&&) = delete;
  ~http_reactor() {
    {
      const std::lock_guard lock{mutex_};
      is_ending_ = true;
    }
    wake();
    thread_.join();
  }

  /// Submits requests in order, and leaves null pointers in `requests`. Any thread may call this.
  void submit(std::vector<request_ptr>& requests) {
    {
      const std::lock_guard lock{mutex_};
      inbox_.reserve(inbox_.size() + requests.size());
      for (auto& one : requests) inbox_.push_back(std::move(one));
    }
    wake();
  }

  /// Makes the reactor compare the sizes of `objects` with later responses. Any thread may call
  /// this.
  void expect_sizes(std::span<const s3_object> objects) {
    const std::lock_guard lock{mutex_};
    for (const s3_object& one : objects) listed_sizes_[name_hash{}(one.key)] = one.size;
  }

  /// Wakes the reactor thread because a call is over. Any thread may call this.
  void wake() noexcept { transfers_.wake(); }

  /// Returns the current counters. Any thread may call this.
  [[nodiscard]] http_stats stats() const { return meters_.snapshot(); }

 private:
  struct delayed_request {
    clock::time_point due;
    request_ptr one;
  };

  void run() noexcept {
    while (take_inbox()) {
      // Precedes the timeout checks, because received bytes may be waiting for this thread.
      transfers_.advance(
          meters_, [this](request_ptr one, ::CURLcode code) { finish(std::move(one), code); });
      const auto now = clock::now();
      drop_unwanted(now);
      take_delayed(now);
      const bool has_new = start_ready();
      transfers_.sleep(has_new ? std::chrono::milliseconds{0} : max_sleep());
    }
  }

  // Returns false if the reactor is ending.
  [[nodiscard]] bool take_inbox() noexcept {
    std::vector<request_ptr> taken;
    {
      const std::lock_guard lock{mutex_};
      if (is_ending_) return false;
      taken.swap(inbox_);
    }
    for (request_ptr& one : taken) {
      if (const planned_request& range = one->range; range.parts > 0) {
        // The ranges of a call are counted with its first request.
        meters_.ask(range.first_part == 0 ? one->call->plan().ranges : 0, range.parts - 1);
      }
      guarded(*one, [&] { ready_.push_back(std::move(one)); });
    }
    return true;
  }

  // Cancels attempts whose call is over or whose server is silent.
  void drop_unwanted(clock::time_point now) noexcept {
    for (std::size_t i = transfers_.size(); i-- > 0;) {
      if (transfers_[i].call->was_over()) {
        static_cast<void>(transfers_.cut(i, meters_));
      } else if (now - transfers_[i].last_byte >= options_.silence_timeout) {
        repeat(transfers_.cut(i, meters_),
               "silence of the server for the time of `silence_timeout`");
      }
    }
  }

  void take_delayed(clock::time_point now) noexcept {
    const auto due =
        std::stable_partition(delayed_.begin(), delayed_.end(), [&](const delayed_request& later) {
          return later.due > now && !later.one->call->was_over();
        });
    for (auto at = due; at != delayed_.end(); ++at) {
      guarded(*at->one, [&] { ready_.push_front(std::move(at->one)); });
    }
    delayed_.erase(due, delayed_.end());
  }

  // Returns true if an attempt has started.
  [[nodiscard]] bool start_ready() noexcept {
    bool has_any = false;
    while (!ready_.empty() && transfers_.has_room()) {
      request_ptr one = std::move(ready_.front());
      ready_.pop_front();
      if (one->call->was_over()) continue;
      const bool is_retry = one->failures != 0;
      guarded(*one, [&] {
        one->unmodified_since = condition_of(*one);
        transfers_.start(std::move(one), *service_);
        meters_.begin(is_retry, transfers_.size());
        has_any = true;
      });
    }
    return has_any;
  }

  void finish(request_ptr one, ::CURLcode code) noexcept {
    guarded(*one, [&] {
      attempt_result result = one->judge(code, *service_);
      if (result.success || result.error) {
        // An object that has become shorter may no longer contain the range.
        if (auto problem = changed(*one, result.success)) result.error = std::move(problem);
      }
      if (result.retry_with_get) {
        one->kind = request_kind::probe;
        ready_.push_front(std::move(one));
      } else if (result.error) {
        one->call->fail(std::move(result.error));
      } else if (!result.success) {
        repeat(std::move(one), result.reason, result.retry_after);
      } else {
        if (one->is_unversioned(one->version())) meters_.take_unversioned();
        if (one->answered_end() < one->range.end) {  // the server may send the remainder on request
          one->range.begin = one->answered_end();
          one->failures = 0;
          ready_.push_front(std::move(one));
        } else {
          one->call->finish_one();
        }
      }
    });
  }

  // Returns an error if the object differs from earlier responses. If `counts` is true, also
  // records the properties in this response for later comparisons.
  [[nodiscard]] std::exception_ptr changed(const http_request& one, bool counts) {
    const int status = one.answer.status;
    const bool has_version = status == 200 || status == 206 || status == 416;
    if (one.kind == request_kind::page || !has_version) return {};
    const object_version found = one.version();
    const auto [at, is_new] = versions_.try_emplace(one.object);
    object_version& known = at->second;
    if (is_new) known.size = listed_size(one.object);
    if (counts ? known.agrees(found) : !known.differs(found)) return {};
    return one.difference(known, found);
  }

  // Returns the listed size of an object, or nothing if no listing contained the object.
  [[nodiscard]] std::optional<std::uint64_t> listed_size(std::string_view object) {
    const std::lock_guard lock{mutex_};
    const auto at = listed_sizes_.find(name_hash{}(object));
    return at == listed_sizes_.end() ? std::nullopt : std::optional{at->second};
  }

  // Returns the If-Unmodified-Since date for an object without a strong ETag, or "" if no date is
  // known.
  [[nodiscard]] std::string condition_of(const http_request& one) {
    if (one.kind != request_kind::range || !options_.check_modified) return {};
    const auto known = versions_.find(one.object);
    if (known == versions_.end() || known->second.has_strong_etag()) return {};
    // The text is from a server and is sent in a header, so only a valid date is accepted.
    const std::string& date = known->second.modified;
    const bool is_date =
        std::all_of(date.begin(), date.end(), [](char c) { return c >= ' ' && c <= '~'; }) &&
        !date.empty() && ::curl_getdate(date.c_str(), nullptr) != -1;
    return is_date ? date : std::string{};
  }

  void repeat(request_ptr one, std::string_view reason,
              std::optional<std::chrono::milliseconds> requested = std::nullopt) noexcept {
    guarded(*one, [&] {
      const bool is_last = ++one->failures >= options_.attempts;
      const std::string found = std::string{reason} + ", attempt " + std::to_string(one->failures) +
                                " of " + std::to_string(options_.attempts);
      if (is_last) {
        one->call->fail(one->problem<store_unreachable>(one->wanted(), found));
        return;
      }
      one->call->record(one->problem<store_unreachable>(one->wanted() + within(options_.deadline),
                                                        found + ", the last failed attempt"));
      const auto due = clock::now() + backoff_.next(one->failures, requested);
      delayed_.push_back({due, std::move(one)});
    });
  }

  // Runs `work`. If it throws, the exception becomes the error of the request's call.
  template <class Work>
  void guarded(const http_request& one, const Work& work) noexcept {
    const std::shared_ptr<http_call> call = one.call;
    try {
      work();
    } catch (...) {
      call->fail(std::current_exception());
    }
  }

  // Returns the time until the next retry or silence timeout.
  [[nodiscard]] std::chrono::milliseconds max_sleep() noexcept {
    const auto now = clock::now();
    auto until = now + std::chrono::hours{1};
    for (const delayed_request& later : delayed_) until = (std::min)(until, later.due);
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
      until = (std::min)(until, transfers_[i].last_byte + options_.silence_timeout);
    }
    return std::chrono::ceil<std::chrono::milliseconds>(until - now);
  }

  const http_options options_;
  const std::shared_ptr<const http_service> service_;
  std::mutex mutex_;
  std::vector<request_ptr> inbox_;  // guarded by mutex_
  // Guarded by mutex_. The keys are name hashes, because a listing may have millions of names.
  std::unordered_map<std::size_t, std::uint64_t> listed_sizes_;
  bool is_ending_ = false;  // guarded by mutex_
  http_meters meters_;
  // Only the reactor thread uses the members below.
  backoff backoff_;
  std::unordered_map<std::string, object_version> versions_;  // requested objects
  http_transfers transfers_;
  std::deque<request_ptr> ready_;
  std::vector<delayed_request> delayed_;
  std::thread thread_;
};

/// The common part of HTTP stores: calls that wait for requests to objects below the URL `base`.
/// Thread-safe.
class http_client {
 public:
  /// Starts the reactor. Throws `option_error` if an option is invalid, and `std::system_error` if
  /// the system cannot create a thread or a descriptor.
  http_client(http_target base, const http_options& options,
              std::shared_ptr<const http_service> service)
      : base_(std::move(base)), options_(options), takes_any_name_(service->takes_any_name()) {
    require_sound(options);
    reactor_ = std::make_unique<http_reactor>(options, std::move(service));
  }
  http_client(http_client&&) = delete;
  ~http_client() {
    // A child created by fork() does not have the thread, and the connections belong to the parent.
    if (!is_in_child()) return;
    static_cast<void>(reactor_.release());
    static_cast<void>(library_.release());
  }

  /// Returns the base URL of the objects.
  [[nodiscard]] const http_target& base() const noexcept { return base_; }

  /// Reads all `ranges`.
  void read_many(std::span<const byte_range> ranges) const {
    request_plan plan =
        plan_requests(ranges, options_.merge_gap, options_.max_request_bytes,
                      [&](std::string_view object) { return target_of(object).shown(); });
    if (plan.requests.empty()) return;
    std::vector<http_target> targets;
    targets.reserve(plan.objects.size());
    for (const std::string& object : plan.objects) targets.push_back(target_of(object));
    static_cast<void>(run(std::move(plan), request_kind::range, targets));
  }

  /// Returns the size and version of `object`.
  [[nodiscard]] object_state state_of(std::string_view object) const {
    const http_target target = target_of(object);
    const auto call = run(single_plan(object), request_kind::header, {&target, 1});
    return {call->version.size.value_or(0), call->version.name()};
  }

  /// Returns the whole response body of `target`, at most 64 MiB.
  [[nodiscard]] std::string page(const http_target& target) const {
    return std::move(run(single_plan(""), request_kind::page, {&target, 1})->page);
  }

  /// Makes the reactor compare the listed sizes of `objects` with later responses.
  void expect_sizes(std::span<const s3_object> objects) const { reactor_->expect_sizes(objects); }

  /// Returns the current counters.
  [[nodiscard]] http_stats stats() const { return reactor_->stats(); }

 private:
  [[nodiscard]] http_target target_of(std::string_view object) const {
    return object_target(base_, object, takes_any_name_);
  }

  [[nodiscard]] bool is_in_child() const noexcept { return ::getpid() != process_; }

  // Returns a plan with a single request that reads no range, for example for a listing page or an
  // object size.
  [[nodiscard]] static request_plan single_plan(std::string_view object) {
    request_plan plan;
    plan.objects.emplace_back(object);
    plan.requests.push_back({0, 0, 1, 0, 0});
    return plan;
  }

  // Runs a call with `plan`, whose objects are at `targets`. Returns the call when it is done.
  [[nodiscard]] std::shared_ptr<http_call> run(request_plan plan, request_kind kind,
                                               std::span<const http_target> targets) const {
    if (is_in_child()) {
      throw std::logic_error(
          "penstock: the thread of a store over HTTP is in process " + std::to_string(process_) +
          ", the parent of this process by fork(): make a separate store in this process");
    }
    const auto call = std::make_shared<http_call>(std::move(plan));
    std::vector<request_ptr> requests;
    for (const planned_request& range : call->plan().requests) {
      auto& one = *requests.emplace_back(std::make_unique<http_request>());
      one.call = call;
      one.target = targets[range.object];
      one.object = call->plan().objects[range.object];
      one.options = &options_;
      one.kind = kind;
      one.range = range;
    }
    const deadline limit = deadline_in(options_.deadline);
    reactor_->submit(requests);
    bool is_done = false;
    try {
      is_done = call->wait_until(limit);
    } catch (...) {
      reactor_->wake();  // so that the reactor ends the call's other requests
      throw;
    }
    if (is_done) return call;
    reactor_->wake();
    throw store_unreachable(targets.front().shown(), call->plan().requests.front().begin,
                            "an answer" + within(options_.deadline),
                            "none: the network is slow, or `deadline` is too short");
  }

  const ::pid_t process_ = ::getpid();
  const http_target base_;
  const http_options options_;
  const bool takes_any_name_;
  std::unique_ptr<const curl_library> library_ = std::make_unique<const curl_library>();
  std::unique_ptr<http_reactor> reactor_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
