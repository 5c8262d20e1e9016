// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/detail/recovery.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What one thread reads at the moment. Written by that thread, observed by a `read_watch`.
class alignas(cache_line) read_progress {
 public:
  /// A read that is under way, and the number that tells it from the one before.
  struct observed_read {
    std::uint64_t turn;
    failure where;
  };

  /// `is_exact` where each sample is read by a call of its own.
  void prepare(bool is_exact) noexcept { is_exact_ = is_exact; }

  /// Reading thread: the reads from now on belong to this batch.
  void enter_batch(std::uint64_t epoch, std::uint64_t batch) noexcept {
    const std::lock_guard lock{mutex_};
    epoch_ = epoch;
    batch_ = batch;
  }

  /// Reading thread: starts to read `samples`, the first of them at `position` of the batch, and is
  /// at the one whose place `place` holds. `samples` and `place` must stay where they are until
  /// `end`.
  void begin(std::uint64_t position, std::span<const std::uint64_t> samples,
             const std::atomic<std::size_t>& place) noexcept {
    const std::lock_guard lock{mutex_};
    ++turn_;
    is_busy_ = true;
    position_ = position;
    samples_ = samples;
    place_ = &place;
  }
  /// Reading thread: starts to ask for something else that this batch needs: "order", that of its
  /// epoch, or "lengths", those of its samples.
  void begin_stage(std::string_view stage, std::uint64_t epoch, std::uint64_t batch) noexcept {
    const std::lock_guard lock{mutex_};
    ++turn_;
    is_busy_ = true;
    stage_ = stage;
    epoch_ = epoch;
    batch_ = batch;
    position_ = 0;
    place_ = nullptr;
  }
  /// Reading thread: what began has returned or thrown.
  void end() noexcept {
    const std::lock_guard lock{mutex_};
    is_busy_ = false;
    is_given_up_ = false;
  }

  /// What is read, or asked for, now; `std::nullopt` between two reads.
  [[nodiscard]] std::optional<observed_read> observe() const {
    const std::lock_guard lock{mutex_};
    if (!is_busy_) return std::nullopt;
    if (place_ == nullptr) return observed_read{turn_, {stage_, epoch_, batch_}};
    // Until the read has started this is the place in the chunk before, which may have been longer.
    const std::size_t noted = place_->load(std::memory_order_relaxed);
    const std::size_t at = noted < samples_.size() ? noted : 0;
    return observed_read{turn_,
                         {"read", epoch_, batch_, position_ + at, samples_[at],
                          is_exact_ || at != 0 || samples_.size() == 1}};
  }

  /// Nothing waits any more for the read of `turn`; false when it has just returned.
  bool give_up(std::uint64_t turn) noexcept {
    const std::lock_guard lock{mutex_};
    return is_given_up_ = is_busy_ && turn_ == turn;
  }
  /// Whether a read that was given up still hangs.
  [[nodiscard]] bool is_given_up() const noexcept {
    const std::lock_guard lock{mutex_};
    return is_given_up_;
  }

 private:
  mutable std::mutex
      mutex_;  // taken three times a chunk by the reader, four times a limit by the watch
  std::uint64_t turn_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t batch_ = 0;
  std::uint64_t position_ = 0;
  bool is_busy_ = false;                    // between a begin and its end
  std::span<const std::uint64_t> samples_;  // as the reader holds them, while there is a read
  const std::atomic<std::size_t>* place_ = nullptr;  // null while there is another stage:
  std::string_view stage_;
  bool is_exact_ = false;
  bool is_given_up_ = false;
};

/// A read, or a stage before the reads of a batch, that is shown in `progress` for as long as this
/// object lives; null: nothing is shown.
class read_scope {
 public:
  /// See `read_progress::begin`.
  read_scope(read_progress* progress, std::uint64_t position,
             std::span<const std::uint64_t> samples, const std::atomic<std::size_t>& place) noexcept
      : progress_(progress) {
    if (progress_ != nullptr) progress_->begin(position, samples, place);
  }
  /// See `read_progress::begin_stage`.
  read_scope(read_progress* progress, std::string_view stage, std::uint64_t epoch,
             std::uint64_t batch) noexcept
      : progress_(progress) {
    if (progress_ != nullptr) progress_->begin_stage(stage, epoch, batch);
  }
  read_scope(read_scope&&) = delete;
  ~read_scope() {
    if (progress_ != nullptr) progress_->end();
  }

 private:
  read_progress* progress_;
};

/// What a `read_watch` does with a read that hangs, see `loader_options`.
struct watch_settings {
  std::chrono::milliseconds warning{0};  ///< reported after that time; 0: never
  std::chrono::milliseconds timeout{0};  ///< given up after that time; 0: never
  /// Gets the reports; empty: they are lines on stderr.
  std::function<void(const stalled_read&)> report = {};
};

/// A thread that observes all readers periodically, reports reads that hang, and gives up one that
/// hangs beyond the timeout. Its own clock tells how long: readers note what they read, but no
/// times. There is no thread, and readers note nothing, unless the settings ask for a warning or a
/// timeout.
class read_watch {
 public:
  using origins = std::function<sample_origin(std::uint64_t)>;

  /// For so many readers, at least one; `is_exact` as for `read_progress::prepare`. `origin` says
  /// where a sample comes from; it is called on the watch's thread and must not throw.
  read_watch(watch_settings settings, std::size_t readers, bool is_exact, origins origin = {})
      : warning_(settings.warning),
        timeout_(settings.timeout),
        report_(std::move(settings.report)),
        origin_(std::move(origin)),
        readers_(is_on() ? readers : 0),
        known_(readers_.size()) {
    for (read_progress& reader : readers_) reader.prepare(is_exact);
  }
  read_watch(read_watch&&) = delete;
  ~read_watch() { stop(); }

  /// Whether there is anything to watch, and so a thread once it has started.
  [[nodiscard]] bool is_on() const noexcept { return warning_.count() > 0 || timeout_.count() > 0; }

  /// Where a reader notes what it reads; null where nothing is watched.
  [[nodiscard]] read_progress* progress_of(std::size_t reader) noexcept {
    return is_on() ? &readers_[reader] : nullptr;
  }

  /// Starts the thread. `fail(exception_ptr, failure)` is called on it when a read hangs beyond the
  /// timeout and when the user's report throws; it must not throw.
  template <class Fail>
  void start(Fail fail) {
    if (!is_on()) return;
    thread_ = std::thread{[this, fail] {
      std::unique_lock lock{mutex_};
      while (!wake_.wait_for(lock, period(), [this] { return is_over_; })) {
        lock.unlock();
        // A step counts as two periods at most: a process that was stopped, or a report that took
        // its time, is no read that hangs.
        const auto now = clock::now();
        const auto step =
            std::min<clock::duration>(2 * period(), now - std::exchange(looked_, now));
        for (std::size_t reader = 0; reader < readers_.size(); ++reader) check(reader, step, fail);
        lock.lock();
      }
    }};
  }

  /// Ends the thread. Not from a report.
  void stop() noexcept {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  /// Whether a reader's present read was given up.
  [[nodiscard]] bool is_given_up(std::size_t reader) const noexcept {
    return is_on() && readers_[reader].is_given_up();
  }

  /// After `stop`: reports the reads that were given up and that a destructor has to wait for.
  void report_blocked() noexcept {
    for (std::size_t reader = 0; reader < readers_.size(); ++reader) {
      const auto found = observe(reader);
      if (!found || !readers_[reader].is_given_up()) continue;
      try {
        report({found->where, reader, elapsed(reader), true});
      } catch (...) {  // the user's report: a destructor can tell nobody
      }
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;

  struct known_read {
    std::uint64_t turn = 0;
    std::uint64_t position = 0;
    clock::duration seen{0};
    milliseconds next_report{0};
  };

  /// A quarter of the shorter limit: a hang is seen late by at most half of that limit.
  [[nodiscard]] milliseconds period() const noexcept {
    const milliseconds limit = warning_.count() == 0   ? timeout_
                               : timeout_.count() == 0 ? warning_
                                                       : (std::min)(warning_, timeout_);
    return std::clamp(limit / 4, milliseconds{1}, milliseconds{1000});
  }

  [[nodiscard]] milliseconds elapsed(std::size_t reader) const noexcept {
    return std::chrono::duration_cast<milliseconds>(known_[reader].seen);
  }

  [[nodiscard]] std::optional<read_progress::observed_read> observe(std::size_t reader) const {
    auto found = readers_[reader].observe();
    if (found && origin_ && found->where.stage == "read") {
      found->where.origin = origin_(found->where.sample);
    }
    return found;
  }

  template <class Fail>
  void check(std::size_t reader, clock::duration step, const Fail& fail) {
    const auto found = observe(reader);
    known_read& known = known_[reader];
    if (!found) {
      known.turn = 0;  // no read's
      return;
    }
    if (known.turn != found->turn || known.position != found->where.position) {
      known = {found->turn, found->where.position, clock::duration{0}, warning_};
      return;
    }
    known.seen += step;
    const stalled_read stalled{found->where, reader, elapsed(reader)};
    if (warning_.count() > 0 && stalled.elapsed >= known.next_report) {
      known.next_report = 2 * stalled.elapsed;
      try {
        report(stalled);
      } catch (...) {
        fail(std::current_exception(), found->where);
      }
    }
    if (timeout_.count() > 0 && stalled.elapsed >= timeout_ &&
        readers_[reader].give_up(found->turn)) {
      fail(timeout_of(stalled), found->where);
    }
  }

  /// A `read_timeout`; without memory for its message a `std::bad_alloc`.
  static std::exception_ptr timeout_of(const stalled_read& stalled) noexcept {
    try {
      return std::make_exception_ptr(read_timeout{stalled});
    } catch (...) {
      return std::current_exception();
    }
  }

  void report(const stalled_read& stalled) const {
    if (report_) {
      report_(stalled);
    } else {
      std::fprintf(stderr, "%s\n", stalled.str().c_str());
    }
  }

  milliseconds warning_;
  milliseconds timeout_;
  std::function<void(const stalled_read&)> report_;
  origins origin_;
  std::vector<read_progress> readers_;  // empty where nothing is watched
  std::vector<known_read> known_;       // of the watch's thread: what it saw when it last looked
  clock::time_point looked_ = clock::now();  // and when that was

  std::mutex mutex_;  // guards the next
  bool is_over_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

/// What has to be known of a dataset to say what went wrong with a read of it.
struct guarded_data {
  std::uint64_t size = 0;
  std::vector<std::uint64_t> base_sizes = {};  ///< see `base_sizes_of`
  bool names_failed_sample = false;            ///< each sample is read by a call of its own
  /// Where a sample comes from. Called on any thread; must not throw.
  std::function<sample_origin(std::uint64_t)> origin = {};
};

/// How much is read at once.
struct guarded_reads {
  std::size_t readers = 1;  ///< reading threads, the consumer's counted where there is no other
  std::size_t batches = 0;  ///< batches that are read or held at a time
  std::size_t batch_size = 0;
};

/// All that can go wrong with a read: exceptions and what the `error_policy` makes of them, reads
/// that hang, and the report of both. A batch's way: `begin_batch` by the opener, reads through the
/// `guarded_reader`s, `end_batch` by the worker that completes it, `judge` by the consumer.
class read_guard {
 public:
  read_guard(const error_policy& policy, watch_settings watch, const guarded_data& data,
             const guarded_reads& reads)
      : recovery_(policy, data.size, reads.batches, reads.batch_size, data.base_sizes),
        watch_(std::move(watch), reads.readers, data.names_failed_sample, data.origin),
        names_failed_sample_(data.names_failed_sample),
        origin_(data.origin) {}

  /// What is read in place of bad samples, and what is left out, goes into `lists` too.
  void list_to(sample_lists& lists) noexcept { recovery_.list_to(lists); }

  /// Starts to watch for reads that hang. `fail(exception_ptr, failure)` is called on the watch's
  /// thread when one hangs beyond the timeout or the user's report throws; it must not throw.
  template <class Fail>
  void start(Fail fail) {
    watch_.start(std::move(fail));
  }
  /// Ends the watch's thread. With `waits` the reads that were given up are reported once more: a
  /// destructor waits for them.
  void stop(bool waits) noexcept {
    watch_.stop();
    if (waits) watch_.report_blocked();
  }
  /// Whether there is a watch's thread once it has started.
  [[nodiscard]] bool has_thread() const noexcept { return watch_.is_on(); }

  /// Opener: a slot is bound to a new batch.
  void begin_batch(std::uint32_t slot) noexcept { recovery_.begin_batch(slot); }

  /// All chunks of the batch in `slot` are read: samples after a skipped one move up in its memory,
  /// and `info` counts them.
  void end_batch(std::uint32_t slot, std::byte* slab, const slot_layout& layout,
                 batch_info& info) noexcept {
    recovery_.end_batch(slot, slab, layout, info);
  }

  /// Consumer: it is to get the batch in `slot`, or what `failed` has. Where the policy's limits
  /// are passed with this batch, that is in `failed` then.
  void judge(std::uint32_t slot, const batch_info& info, failed_batch& failed) noexcept {
    if (failed || recovery_.is_on()) [[unlikely]]
      judge_closely(slot, info, failed);
  }

  /// Has waits for a retry ask again whether their range is over. From any thread.
  void interrupt() noexcept { recovery_.interrupt(); }

  /// Whether the present read of a reader hangs and was given up.
  [[nodiscard]] bool is_given_up(std::size_t reader) const noexcept {
    return watch_.is_given_up(reader);
  }

  /// What happened so far; empty with a plain policy. From any thread.
  [[nodiscard]] failure_report report() const { return recovery_.report(); }

  /// Where a sample comes from. From any thread.
  [[nodiscard]] sample_origin origin(std::uint64_t sample) const noexcept {
    return origin_(sample);
  }
  /// Whether a chunk that fails is sure to name the sample.
  [[nodiscard]] bool names_failed_sample() const noexcept { return names_failed_sample_; }

  /// For a `guarded_reader`: what to do with an exception.
  [[nodiscard]] detail::recovery& recovery() noexcept { return recovery_; }
  /// For a `guarded_reader`: where it notes what it reads; null where nothing is watched.
  [[nodiscard]] read_progress* progress_of(std::size_t reader) noexcept {
    return watch_.progress_of(reader);
  }

 private:
  [[gnu::noinline]] void judge_closely(std::uint32_t slot, const batch_info& info,
                                       failed_batch& failed) noexcept {
    if (!failed) {
      failure where;
      failed.error = recovery_.check_limits(slot, info, where);
      if (!failed) return;
      failed.place = where;
    }
    if (failed.place->stage == "read") failed.place->origin = origin(failed.place->sample);
  }

  detail::recovery recovery_;
  read_watch watch_;
  bool names_failed_sample_;
  std::function<sample_origin(std::uint64_t)> origin_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
