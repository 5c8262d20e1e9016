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
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/detail/cache_line.hpp>
#include <penstock/core/error.hpp>
#include <penstock/faults/stalled_read.hpp>
#include <penstock/load/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What one thread reads at the moment, for the eyes of a `read_watch`.
class alignas(detail::cache_line) read_mark {
 public:
  /// A read that is under way, and what tells it from the one before.
  struct sight {
    std::uint64_t turn;
    failure where;
  };

  /// `is_exact` where each sample is read by a call of its own.
  void prepare(bool is_exact) noexcept { is_exact_ = is_exact; }

  /// The reading thread: what it begins from now on belongs to this batch.
  void enter_batch(std::uint64_t epoch, std::uint64_t index) noexcept {
    const std::lock_guard lock{mutex_};
    epoch_ = epoch;
    batch_ = index;
  }

  /// The reading thread: begins to read `samples`, the first of them at `position` of the batch, and is
  /// at the one that `progress` names. Neither changes its owner or its place before `end`.
  void begin(std::uint64_t position, std::span<const std::uint64_t> samples,
             const std::atomic<std::size_t>& progress) noexcept {
    const std::lock_guard lock{mutex_};
    ++turn_;
    is_busy_ = true;
    position_ = position;
    samples_ = samples;
    progress_ = &progress;
  }
  /// The same thread: begins to ask for the order of the epoch that this batch is of.
  void begin_order(std::uint64_t epoch, std::uint64_t index) noexcept {
    const std::lock_guard lock{mutex_};
    ++turn_;
    is_busy_ = true;
    epoch_ = epoch;
    batch_ = index;
    position_ = 0;
    progress_ = nullptr;
  }
  /// The reading thread: the read, or the order, has returned, or thrown.
  void end() noexcept {
    const std::lock_guard lock{mutex_};
    is_busy_ = false;
    is_given_up_ = false;
  }

  /// What is read, or ordered, now; nothing in between.
  [[nodiscard]] std::optional<sight> look() const {
    const std::lock_guard lock{mutex_};
    if (!is_busy_) return std::nullopt;
    if (progress_ == nullptr) return sight{turn_, {"order", epoch_, batch_}};
    // Until the read has begun this is the place in the run before, which may have been longer.
    const std::size_t noted = progress_->load(std::memory_order_relaxed);
    const std::size_t at = noted < samples_.size() ? noted : 0;
    return sight{turn_,
                 {"read", epoch_, batch_, position_ + at, samples_[at],
                  is_exact_ || at != 0 || samples_.size() == 1}};
  }

  /// Nobody waits any more for the read of `turn`; false when it has just returned.
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
  mutable std::mutex mutex_;  // taken three times a run by the reader, now and then by the watch
  std::uint64_t turn_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t batch_ = 0;
  std::uint64_t position_ = 0;
  bool is_busy_ = false;                    // between a begin and its end
  std::span<const std::uint64_t> samples_;  // as the reader holds them, while there is a read
  const std::atomic<std::size_t>* progress_ = nullptr;  // null while there is an order
  bool is_exact_ = false;
  bool is_given_up_ = false;
};

/// Marks a read as under way for as long as it lives; does nothing without a mark.
class marked_read {
 public:
  marked_read(read_mark* mark, std::uint64_t position, std::span<const std::uint64_t> samples,
              const std::atomic<std::size_t>& progress) noexcept
      : mark_(mark) {
    if (mark_ != nullptr) mark_->begin(position, samples, progress);
  }
  marked_read(marked_read&&) = delete;
  ~marked_read() {
    if (mark_ != nullptr) mark_->end();
  }

 private:
  read_mark* mark_;
};

/// The same for the order of an epoch.
class marked_order {
 public:
  marked_order(read_mark* mark, std::uint64_t epoch, std::uint64_t batch) noexcept : mark_(mark) {
    if (mark_ != nullptr) mark_->begin_order(epoch, batch);
  }
  marked_order(marked_order&&) = delete;
  ~marked_order() {
    if (mark_ != nullptr) mark_->end();
  }

 private:
  read_mark* mark_;
};

/// A thread that looks at all readers now and then: says which read hangs, and gives up one that hangs
/// beyond the timeout. Its own clock tells how long: readers note what they read, and no times. There
/// is no thread, and there are no marks, unless the options ask for a warning or a timeout.
class read_watch {
 public:
  using origins = std::function<sample_origin(std::uint64_t)>;

  /// For `options.workers` readers, or the one on the consumer's thread; see `read_mark::prepare`.
  /// `origin` says where a sample comes from; it is called on the watch's thread and must not
  /// throw.
  read_watch(const loader_options& options, bool is_exact, origins origin = {})
      : warning_(options.stall_warning),
        timeout_(options.timeout),
        report_(options.on_stall),
        origin_(std::move(origin)),
        marks_(is_on() ? (std::max)(options.workers, std::size_t{1}) : 0),
        known_(marks_.size()) {
    for (read_mark& mark : marks_) mark.prepare(is_exact);
  }
  read_watch(read_watch&&) = delete;
  ~read_watch() { stop(); }

  /// Whether there is anything to watch, and so a thread once it has started.
  [[nodiscard]] bool is_on() const noexcept { return warning_.count() > 0 || timeout_.count() > 0; }

  /// The mark of a reader; null where nothing is watched.
  [[nodiscard]] read_mark* mark_of(std::size_t reader) noexcept {
    return is_on() ? &marks_[reader] : nullptr;
  }

  /// Begins to look. `fail(exception_ptr, failure)` is called, on the watch's thread, when a read hangs
  /// beyond the timeout and when the user's report throws; it must not throw.
  template <class Fail>
  void start(Fail fail) {
    if (!is_on()) return;
    thread_ = std::thread{[this, fail] {
      std::unique_lock lock{mutex_};
      while (!wake_.wait_for(lock, period(), [this] { return is_over_; })) {
        lock.unlock();
        // A step counts as two periods at most: a process that was stopped, or a report that took its
        // time, is no read that hangs.
        const auto now = clock::now();
        const auto step =
            std::min<clock::duration>(2 * period(), now - std::exchange(looked_, now));
        for (std::size_t reader = 0; reader < marks_.size(); ++reader) look_at(reader, step, fail);
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
    return is_on() && marks_[reader].is_given_up();
  }

  /// Behind `stop`: reports the reads that were given up and that a destructor has to wait for.
  void report_blocked() noexcept {
    for (std::size_t reader = 0; reader < marks_.size(); ++reader) {
      const auto sight = look(reader);
      if (!sight || !marks_[reader].is_given_up()) continue;
      try {
        report({sight->where, reader, elapsed(reader), true});
      } catch (...) {  // the user's: a destructor has nobody to tell
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

  /// A quarter of the shorter limit: a hang is seen late by at most half of it.
  [[nodiscard]] milliseconds period() const noexcept {
    const milliseconds limit = warning_.count() == 0   ? timeout_
                               : timeout_.count() == 0 ? warning_
                                                       : (std::min)(warning_, timeout_);
    return std::clamp(limit / 4, milliseconds{1}, milliseconds{1000});
  }

  [[nodiscard]] milliseconds elapsed(std::size_t reader) const noexcept {
    return std::chrono::duration_cast<milliseconds>(known_[reader].seen);
  }

  [[nodiscard]] std::optional<read_mark::sight> look(std::size_t reader) const {
    auto sight = marks_[reader].look();
    if (sight && origin_ && sight->where.stage == "read") {
      sight->where.origin = origin_(sight->where.sample);
    }
    return sight;
  }

  template <class Fail>
  void look_at(std::size_t reader, clock::duration step, const Fail& fail) {
    const auto sight = look(reader);
    known_read& known = known_[reader];
    if (!sight) {
      known.turn = 0;  // no read's
      return;
    }
    if (known.turn != sight->turn || known.position != sight->where.position) {
      known = {sight->turn, sight->where.position, clock::duration{0}, warning_};
      return;
    }
    known.seen += step;
    const stalled_read stalled{sight->where, reader, elapsed(reader)};
    if (warning_.count() > 0 && stalled.elapsed >= known.next_report) {
      known.next_report = 2 * stalled.elapsed;
      try {
        report(stalled);
      } catch (...) {
        fail(std::current_exception(), sight->where);
      }
    }
    if (timeout_.count() > 0 && stalled.elapsed >= timeout_ &&
        marks_[reader].give_up(sight->turn)) {
      fail(timeout_of(stalled), sight->where);
    }
  }

  /// Without memory for the message, what says that.
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
  std::vector<read_mark> marks_;   // by reader; empty where nothing is watched
  std::vector<known_read> known_;  // of the watch's thread: what it saw when it last looked,
  clock::time_point looked_ = clock::now();  // and when that was

  std::mutex mutex_;  // guards the next
  bool is_over_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
