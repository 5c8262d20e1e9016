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
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/load/detail/recovery.hpp>
#include <penstock/load/options.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/exit_handler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The current read of one thread, which is recorded by that thread and observed by a `read_watch`.
class alignas(cache_line) read_progress {
 public:
  /// A read in progress. `turn` distinguishes it from earlier reads of the same thread.
  struct observed_read {
    std::uint64_t turn;
    failure where;
  };

  /// Records whether the dataset reads each sample in a separate call (`is_exact`).
  void prepare(bool is_exact) noexcept { is_exact_ = is_exact; }

  /// Assigns all following reads to this batch. Called by the reading thread.
  void enter_batch(std::uint64_t epoch, std::uint64_t batch) noexcept {
    const std::lock_guard lock{mutex_};
    epoch_ = epoch;
    batch_ = batch;
  }

  /// Records that a read of `samples` starts. The first sample is at `position` in the batch.
  /// `place` contains the index of the current sample in `samples`. `samples` and `place` must
  /// remain valid until `end`. Called by the reading thread.
  void begin(std::uint64_t position, std::span<const std::uint64_t> samples,
             const std::atomic<std::size_t>& place) noexcept {
    const std::lock_guard lock{mutex_};
    ++turn_;
    is_busy_ = true;
    position_ = position;
    samples_ = samples;
    place_ = &place;
  }
  /// Records the start of a call that precedes the reads of this batch. `stage` is "order" for the
  /// order of the epoch, or "lengths" for the lengths of the samples. Called by the reading thread.
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
  /// Records that the read or the call has returned or thrown. Called by the reading thread.
  void end() noexcept {
    const std::lock_guard lock{mutex_};
    is_busy_ = false;
    is_given_up_ = false;
  }

  /// Returns the read or call in progress, or `std::nullopt` between two reads.
  [[nodiscard]] std::optional<observed_read> observe() const {
    const std::lock_guard lock{mutex_};
    if (!is_busy_) return std::nullopt;
    if (place_ == nullptr) return observed_read{turn_, {stage_, epoch_, batch_}};
    // Until the read has started, `place` contains a position in the previous chunk, which may have
    // been longer.
    const std::size_t noted = place_->load(std::memory_order_relaxed);
    const std::size_t at = noted < samples_.size() ? noted : 0;
    return observed_read{turn_,
                         {"read", epoch_, batch_, position_ + at, samples_[at],
                          is_exact_ || at != 0 || samples_.size() == 1}};
  }

  /// Marks the read of `turn` as given up, so that no thread waits for it. Returns false if the
  /// read has just returned.
  bool give_up(std::uint64_t turn) noexcept {
    const std::lock_guard lock{mutex_};
    return is_given_up_ = is_busy_ && turn_ == turn;
  }
  /// Returns true if a read that was given up has not returned yet.
  [[nodiscard]] bool is_given_up() const noexcept {
    const std::lock_guard lock{mutex_};
    return is_given_up_;
  }

 private:
  mutable std::mutex
      mutex_;  // locked 3 times per chunk by the reader, and 4 times per time limit by the watch
  std::uint64_t turn_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t batch_ = 0;
  std::uint64_t position_ = 0;
  // True between `begin` or `begin_stage` and `end`.
  bool is_busy_ = false;
  std::span<const std::uint64_t> samples_;           // owned by the reader; valid during a read
  const std::atomic<std::size_t>* place_ = nullptr;  // null during a call of `stage_`
  std::string_view stage_;
  bool is_exact_ = false;
  bool is_given_up_ = false;
};

/// Records a read, or a call before the reads of a batch, in `progress` for the lifetime of this
/// object. Does nothing if `progress` is null.
class read_scope {
 public:
  /// Calls `read_progress::begin`.
  read_scope(read_progress* progress, std::uint64_t position,
             std::span<const std::uint64_t> samples, const std::atomic<std::size_t>& place) noexcept
      : progress_(progress) {
    if (progress_ != nullptr) progress_->begin(position, samples, place);
  }
  /// Calls `read_progress::begin_stage`.
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

/// The settings of a `read_watch` (see `loader_options`).
struct watch_settings {
  /// Time after which a hanging read is reported, or 0 for never.
  std::chrono::milliseconds warning{0};
  /// Time after which a hanging read is given up, or 0 for never.
  std::chrono::milliseconds timeout{0};
  /// Receives the reports. If empty, each report is a line on stderr.
  std::function<void(const stall_report&)> report = {};
};

/// A thread that periodically observes all readers, reports hanging reads, and gives up a read that
/// exceeds the timeout. The thread measures time with its own clock, because readers record only
/// that a read starts, without a time.
class read_watch {
 public:
  using origins = std::function<sample_origin(std::uint64_t)>;
  using fail_function = std::function<void(std::exception_ptr, const failure&)>;

  /// Creates a watch for `readers` readers, at least one. `settings` must set at least one limit.
  /// `is_exact` is passed to `read_progress::prepare`. `origin` returns the origin of a sample, is
  /// called on the watch thread, and must not throw.
  read_watch(watch_settings settings, std::size_t readers, bool is_exact, origins origin = {})
      : warning_(settings.warning),
        timeout_(settings.timeout),
        report_(std::move(settings.report)),
        origin_(std::move(origin)),
        readers_(readers),
        known_(readers) {
    for (read_progress& reader : readers_) reader.prepare(is_exact);
  }
  read_watch(read_watch&&) = delete;
  ~read_watch() { stop(); }

  /// Returns the object in which a reader records its reads.
  [[nodiscard]] read_progress* progress_of(std::size_t reader) noexcept {
    return &readers_[reader];
  }

  /// Starts the thread. The thread calls `fail(exception_ptr, failure)` if a read exceeds the
  /// timeout or the user's report function throws. `fail` must not throw.
  void start(fail_function fail) {
    thread_ = std::thread{[this, fail = std::move(fail)] {
      std::unique_lock lock{mutex_};
      while (!wake_.wait_for(lock, period(), [this] { return is_over_; })) {
        lock.unlock();
        // Counts at most two periods between two observations, so that a stopped process or a slow
        // report is not mistaken for a hanging read.
        const auto now = clock::now();
        const auto step =
            std::min<clock::duration>(2 * period(), now - std::exchange(looked_, now));
        for (std::size_t reader = 0; reader < readers_.size(); ++reader) check(reader, step, fail);
        lock.lock();
      }
    }};
  }

  /// Ends the thread. If the watch thread calls this, because a report called `exit()`, the thread
  /// is detached.
  void stop() noexcept {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
    }
    wake_.notify_all();
    join_unless_caller(thread_);
  }

  /// Returns true if the calling thread is the watch thread, which happens only in a report
  /// function.
  [[nodiscard]] bool is_in_report() const noexcept {
    return thread_.get_id() == std::this_thread::get_id();
  }

  /// Returns true if the current read of `reader` was given up.
  [[nodiscard]] bool is_given_up(std::size_t reader) const noexcept {
    return readers_[reader].is_given_up();
  }

  /// Reports the given-up reads that a destructor waits for. Called after `stop`.
  void report_blocked() noexcept {
    for (std::size_t reader = 0; reader < readers_.size(); ++reader) {
      const auto found = observe(reader);
      if (!found || !readers_[reader].is_given_up()) continue;
      try {
        report({found->where, reader, elapsed(reader), true});
      } catch (...) {  // The user's report function threw, but a destructor cannot rethrow.
      }
    }
  }

 private:
  using clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;

  struct known_read {
    std::uint64_t turn = 0;
    std::uint64_t position = 0;
    clock::duration unchanged_for{0};
    milliseconds next_report{0};
  };

  /// Returns the time between two observations, which is a quarter of the shorter limit. A hang is
  /// therefore detected at most half of that limit late.
  [[nodiscard]] milliseconds period() const noexcept {
    const milliseconds limit = warning_.count() == 0   ? timeout_
                               : timeout_.count() == 0 ? warning_
                                                       : (std::min)(warning_, timeout_);
    return std::clamp(limit / 4, milliseconds{1}, milliseconds{1000});
  }

  [[nodiscard]] milliseconds elapsed(std::size_t reader) const noexcept {
    return std::chrono::duration_cast<milliseconds>(known_[reader].unchanged_for);
  }

  [[nodiscard]] std::optional<read_progress::observed_read> observe(std::size_t reader) const {
    auto found = readers_[reader].observe();
    if (found && origin_ && found->where.stage == "read") {
      found->where.origin = origin_(found->where.sample);
    }
    return found;
  }

  void check(std::size_t reader, clock::duration step, const fail_function& fail) {
    const auto found = observe(reader);
    known_read& known = known_[reader];
    if (!found) {
      known.turn = 0;  // no read has turn 0
      return;
    }
    if (known.turn != found->turn || known.position != found->where.position) {
      known = {found->turn, found->where.position, clock::duration{0}, warning_};
      return;
    }
    known.unchanged_for += step;
    const stall_report stalled{found->where, reader, elapsed(reader)};
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

  /// Returns a `read_timeout`, or a `std::bad_alloc` if its message cannot be allocated.
  static std::exception_ptr timeout_of(const stall_report& stalled) noexcept {
    try {
      return std::make_exception_ptr(read_timeout{stalled});
    } catch (...) {
      return std::current_exception();
    }
  }

  void report(const stall_report& stalled) const {
    if (report_) {
      report_(stalled);
    } else {
      std::fprintf(stderr, "%s\n", stalled.str().c_str());
    }
  }

  milliseconds warning_;
  milliseconds timeout_;
  std::function<void(const stall_report&)> report_;
  origins origin_;
  std::vector<read_progress> readers_;
  std::vector<known_read> known_;            // reads at the last observation
  clock::time_point looked_ = clock::now();  // time of the last observation

  std::mutex mutex_;  // guards `is_over_`
  bool is_over_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

/// A table of the functions that implement `faults.stall_warning` and `faults.timeout`. Only
/// programs that set one of these options reference the table, and therefore contain the functions.
struct stall_watching {
  /// Creates a `read_watch` (see its constructor).
  std::shared_ptr<read_watch> (*make)(watch_settings, std::size_t readers, bool is_exact,
                                      read_watch::origins);
  /// Pointers to member functions of `read_watch`.
  read_progress* (read_watch::*progress_of)(std::size_t reader) noexcept;
  void (read_watch::*start)(read_watch::fail_function);
  void (read_watch::*stop)() noexcept;
  void (read_watch::*report_blocked)() noexcept;
  bool (read_watch::*is_in_report)() const noexcept;
  bool (read_watch::*is_given_up)(std::size_t reader) const noexcept;

  static const stall_watching code;
};

/// Creates a `read_watch` (see `stall_watching::make`).
[[nodiscard]] inline std::shared_ptr<read_watch> make_watch(watch_settings settings,
                                                            std::size_t readers, bool is_exact,
                                                            read_watch::origins origin) {
  return std::make_shared<read_watch>(std::move(settings), readers, is_exact, std::move(origin));
}

inline constexpr stall_watching stall_watching::code{&make_watch,
                                                     &read_watch::progress_of,
                                                     &read_watch::start,
                                                     &read_watch::stop,
                                                     &read_watch::report_blocked,
                                                     &read_watch::is_in_report,
                                                     &read_watch::is_given_up};

/// The properties of a dataset that are needed to report errors of its reads.
struct supervised_data {
  std::uint64_t size = 0;
  /// Sizes of the source datasets (see `base_sizes_of`).
  std::vector<std::uint64_t> base_sizes = {};
  bool names_failed_sample = false;  ///< true if each sample is read by a separate call
  /// Returns the origin of a sample. Called on any thread. Must not throw.
  std::function<sample_origin(std::uint64_t)> origin = {};
};

/// A `read_watch` and its code, or nothing.
class optional_watch {
 public:
  /// Creates the watch specified by `faults` for `readers` readers, or nothing if `faults` does not
  /// set a limit.
  optional_watch(const loader_fault_options& faults, const supervised_data& data,
                 std::size_t readers) {
    const auto* const warns = faults.stall_warning.watching();
    code_ = warns != nullptr ? warns : faults.timeout.watching();
    if (code_ == nullptr) return;
    watch_ = code_->make({faults.stall_warning.time(), faults.timeout.time(), faults.on_stall},
                         readers, data.names_failed_sample, data.origin);
  }

  [[nodiscard]] bool is_on() const noexcept { return code_ != nullptr; }
  [[nodiscard]] read_progress* progress_of(std::size_t reader) noexcept {
    return is_on() ? std::invoke(code_->progress_of, *watch_, reader) : nullptr;
  }
  void start(read_watch::fail_function fail) {
    if (is_on()) std::invoke(code_->start, *watch_, std::move(fail));
  }
  void stop() noexcept {
    if (is_on()) std::invoke(code_->stop, *watch_);
  }
  void report_blocked() noexcept {
    if (is_on()) std::invoke(code_->report_blocked, *watch_);
  }
  [[nodiscard]] bool is_in_report() const noexcept {
    return is_on() && std::invoke(code_->is_in_report, *watch_);
  }
  [[nodiscard]] bool is_given_up(std::size_t reader) const noexcept {
    return is_on() && std::invoke(code_->is_given_up, *watch_, reader);
  }

 private:
  const stall_watching* code_ = nullptr;
  std::shared_ptr<read_watch> watch_;
};

/// The number of readers and batches in a `read_supervisor`.
struct guarded_reads {
  std::size_t readers = 1;  ///< number of reading threads, which are the workers or the consumer
  std::size_t batches = 0;  ///< number of batches that are being read or leased at a time
  std::size_t batch_size = 0;
};

/// Handles read exceptions according to the `error_policy`, detects hanging reads, and reports
/// both. For each batch, the opener calls `begin_batch`, the `retrying_reader`s read, the worker
/// that completes the batch calls `end_batch`, and the consumer calls `judge`.
class read_supervisor {
 public:
  read_supervisor(const loader_fault_options& faults, const supervised_data& data,
                  const guarded_reads& reads)
      : recovering_(recovering_of(faults.on_error)),
        watch_(faults, data, reads.readers),
        names_failed_sample_(data.names_failed_sample),
        origin_(data.origin) {
    if (recovering_ == nullptr) return;
    recovery_ = recovering_->make(faults.on_error, data.size, reads.batches, reads.batch_size,
                                  data.base_sizes);
  }

  /// Makes this object also record replaced and skipped samples in `lists`.
  void list_to(sample_lists& lists) noexcept {
    if (recovery_ != nullptr) std::invoke(recovering_->list_to, *recovery_, lists);
  }

  /// Starts the watch for hanging reads. The watch thread calls `fail(exception_ptr, failure)` if a
  /// read exceeds the timeout or the user's report function throws. `fail` must not throw.
  void start(read_watch::fail_function fail) { watch_.start(std::move(fail)); }
  /// Ends the watch thread. If `waits` is true, reports the given-up reads once more, because a
  /// destructor waits for them.
  void stop(bool waits) noexcept {
    watch_.stop();
    if (waits) watch_.report_blocked();
  }
  /// Returns true if the calling thread is the watch thread.
  [[nodiscard]] bool is_in_report() const noexcept { return watch_.is_in_report(); }
  /// Returns true if a watch exists, whose thread runs once it is started.
  [[nodiscard]] bool has_thread() const noexcept { return watch_.is_on(); }

  /// Resets the counts of `slot`, which is bound to a new batch. Called by the opener.
  void begin_batch(std::uint32_t slot) noexcept {
    if (recovery_ != nullptr) std::invoke(recovering_->begin_batch, *recovery_, slot);
  }

  /// Completes the batch in `slot` after all its chunks were read. Closes the gaps of skipped
  /// samples in memory, and updates `info`.
  void end_batch(std::uint32_t slot, std::byte* slab, const slot_layout& layout,
                 batch_info& info) noexcept {
    if (recovery_ != nullptr)
      std::invoke(recovering_->end_batch, *recovery_, slot, slab, layout, info);
  }

  /// Checks the limits of the policy before the consumer receives the batch in `slot` or the error
  /// in `failed`. If this batch exceeds a limit, sets `failed`. Called by the consumer.
  void judge(std::uint32_t slot, const batch_info& info, failed_batch& failed) noexcept {
    if (failed || recovery_ != nullptr) [[unlikely]]
      judge_closely(slot, info, failed);
  }

  /// Returns the counts for the limits (see `loader_core::judged`).
  [[nodiscard]] judged_samples judged() const noexcept {
    return recovery_ != nullptr ? std::invoke(recovering_->judged, *recovery_) : judged_samples{};
  }
  void judge_from(const judged_samples& judged) noexcept {
    if (recovery_ != nullptr) std::invoke(recovering_->judge_from, *recovery_, judged);
  }

  /// Makes threads that wait for a retry check whether their range is over. Any thread may call
  /// this.
  void interrupt() noexcept {
    if (recovery_ != nullptr) std::invoke(recovering_->interrupt, *recovery_);
  }

  /// Returns true if the current read of `reader` hangs and was given up.
  [[nodiscard]] bool is_given_up(std::size_t reader) const noexcept {
    return watch_.is_given_up(reader);
  }

  /// Returns the failures so far. Empty with the default policy. Any thread may call this.
  [[nodiscard]] failure_report report() const {
    return recovery_ != nullptr ? std::invoke(recovering_->report, *recovery_) : failure_report{};
  }

  /// Returns the origin of a sample. Any thread may call this.
  [[nodiscard]] sample_origin origin(std::uint64_t sample) const noexcept {
    return origin_(sample);
  }
  /// Returns true if a failed chunk always identifies the failed sample.
  [[nodiscard]] bool names_failed_sample() const noexcept { return names_failed_sample_; }

  /// Returns the record of failed samples for a `retrying_reader`, or null with the default policy.
  [[nodiscard]] detail::recovery* recovery() noexcept { return recovery_.get(); }
  [[nodiscard]] const detail::recovering* recovering() const noexcept { return recovering_; }
  /// Returns the object in which a `retrying_reader` records its reads, or null without a watch.
  [[nodiscard]] read_progress* progress_of(std::size_t reader) noexcept {
    return watch_.progress_of(reader);
  }

 private:
  [[gnu::noinline]] void judge_closely(std::uint32_t slot, const batch_info& info,
                                       failed_batch& failed) noexcept {
    if (!failed) {
      failure where;
      failed.error = std::invoke(recovering_->check_limits, *recovery_, slot, info, where);
      if (!failed) return;
      failed.place = where;
    }
    if (failed.place->stage == "read") failed.place->origin = origin(failed.place->sample);
  }

  const detail::recovering* recovering_;
  std::shared_ptr<detail::recovery> recovery_;  // null with the default policy, like `recovering_`
  optional_watch watch_;
  bool names_failed_sample_;
  std::function<sample_origin(std::uint64_t)> origin_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
