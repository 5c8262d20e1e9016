// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/flush_to_zero.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Counts the bytes that were announced to a dataset but not read yet, per batch and up to a limit.
/// The lookahead thread sleeps on this object. Batches are numbered as in the `schedule`. Any
/// thread may use this object. User code does not run under the lock.
class plan_ledger {
 public:
  /// Allows at most `max` announced bytes at a time. Throws std::bad_alloc.
  explicit plan_ledger(std::uint64_t max) : max_(max) {}

  /// Returns the limit in bytes.
  [[nodiscard]] std::uint64_t max_bytes() const noexcept { return max_; }
  /// Returns the number of bytes that may be announced now, or 0 after `end`.
  [[nodiscard]] std::uint64_t room() const {
    const std::lock_guard lock{mutex_};
    return ends_ ? 0 : max_ - bytes_;
  }
  /// Returns the number of announced bytes that are not read yet.
  [[nodiscard]] std::uint64_t bytes() const {
    const std::lock_guard lock{mutex_};
    return bytes_;
  }

  /// Records that `bytes` of batch `number` are about to be announced. The bytes must fit in
  /// `room`, and `number` must not be less than in an earlier call. Does nothing and returns false
  /// if that batch is already opened. Called by the lookahead thread.
  [[nodiscard]] bool record_announced(std::uint64_t number, std::uint64_t bytes) {
    const std::lock_guard lock{mutex_};
    if (ends_ || number < opened_) return false;
    if (announced_.empty() || announced_.back().number != number) announced_.push_back({number, 0});
    announced_.back().bytes += bytes;
    bytes_ += bytes;
    return true;
  }
  /// Starts a range with batch `number`. Discards announcements for that batch and later batches.
  /// Called by the lookahead thread.
  void void_from(std::uint64_t number) {
    const std::lock_guard lock{mutex_};
    while (!announced_.empty() && announced_.back().number >= number) {
      bytes_ -= announced_.back().bytes;
      announced_.pop_back();
    }
  }

  /// Records that batch `number` is opened, so its samples are about to be read. Called by the
  /// opener.
  void record_opened(std::uint64_t number) noexcept {
    {
      const std::lock_guard lock{mutex_};
      opened_ = number + 1;
      has_moved_ = true;
    }
    changed_.notify_all();
  }
  /// Records that batch `number` has been read. Called by the workers.
  void record_read(std::uint64_t number) noexcept {
    {
      const std::lock_guard lock{mutex_};
      const auto found = std::lower_bound(
          announced_.begin(), announced_.end(), number,
          [](const announced& one, std::uint64_t wanted) { return one.number < wanted; });
      if (found == announced_.end() || found->number != number) return;
      bytes_ -= found->bytes;
      announced_.erase(found);
      has_moved_ = true;
    }
    changed_.notify_all();
  }

  /// Waits until a batch has been opened or read since the last call. Returns false after `end`.
  /// Called only by the lookahead thread. Between two calls, the thread counts as announcing.
  [[nodiscard]] bool wait() {
    std::unique_lock lock{mutex_};
    is_announcing_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return ends_ || has_moved_; });
    has_moved_ = false;
    is_announcing_ = !ends_;
    return is_announcing_;
  }
  /// Permanently ends the announcements.
  void end() noexcept {
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    changed_.notify_all();
  }
  /// Waits, after `end`, until the lookahead thread has finished its announcements, for up to
  /// `max`. Returns true if it has finished.
  [[nodiscard]] bool wait_until_silent(std::chrono::milliseconds max) {
    std::unique_lock lock{mutex_};
    return changed_.wait_until(lock, deadline_in(max), [this] { return !is_announcing_; });
  }

 private:
  struct announced {
    std::uint64_t number;
    std::uint64_t bytes;
  };

  const std::uint64_t max_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<announced> announced_;  // ordered by batch; short, because the bytes are limited
  std::uint64_t bytes_ = 0;           // sum over `announced_`, at most `max_`
  std::uint64_t opened_ = 0;          // batches below this number are opened
  bool has_moved_ = false;
  bool is_announcing_ = false;
  bool ends_ = false;
};

/// The channel for samples that the dataset should fetch before they are read (`prefetch_hint`).
struct prefetch_channel {
  static constexpr bool is_counted = true;  // true if the channel appears in the statistics
  // True if an announcement is still useful after its batch has been opened.
  static constexpr bool is_of_use_late = false;
  template <class D>
  static std::uint64_t capacity(const D& data) {
    return prefetch_capacity_of(data);
  }
  template <class D>
  static void announce(const D& data, std::span<const std::uint64_t> indices) {
    prefetch_hint(data, indices);
  }
  template <class D>
  static void begin_range(const D&) {}
};

/// The channel for the order of later reads, which caches use for eviction (`access_plan`).
struct plan_channel {
  static constexpr bool is_counted = false;
  // Plans also cover batches that are already open. Otherwise, a cache would mistake their reads
  // for planned later reads.
  static constexpr bool is_of_use_late = true;
  template <class D>
  static std::uint64_t capacity(const D& data) {
    return plan_capacity_of(data);
  }
  template <class D>
  static void announce(const D& data, std::span<const std::uint64_t> indices) {
    access_plan(data, indices);
  }
  template <class D>
  static void begin_range(const D& data) {
    access_plan(data, {});
  }
};

/// Follows the schedule from the next batch that is opened to the end of the range, across epochs.
/// Announces samples to a dataset through `Channel` until the number of announced but unread bytes
/// reaches the limit. Each batch that is read makes room. No lock is held while the dataset or the
/// sampler runs.
template <class Channel, dataset Dataset, sampler Sampler>
class plan_follower {
 public:
  /// References all arguments except `layout` and `options`. If the storage size of a sample is
  /// unknown, the follower uses the mean of `read`, which covers the ragged batches read so far.
  /// Before the first such batch, it uses the size of a sample in `layout`.
  plan_follower(const Dataset& data, std::uint64_t size, const Sampler& order,
                const schedule& batches, const batch_layout<typename Dataset::record_type>& layout,
                const loader_options& options, loader_observer& observer, const mean_bytes& read)
      : data_(&data),
        size_(size),
        sampler_(&order),
        schedule_(&batches),
        sample_bytes_(std::max<std::size_t>(1, layout.sample_bytes())),
        read_(&read),
        metrics_(&observer.of_lookahead()),
        ledger_(options.lookahead_bytes == 0
                    ? 0
                    : (std::min)(options.lookahead_bytes, Channel::capacity(data))) {
    if (!Channel::is_counted) return;
    metrics_->max_bytes.set(ledger_.max_bytes());
    metrics_->source_bytes.set(Channel::capacity(data));
  }
  plan_follower(plan_follower&&) = delete;

  /// Returns true if the dataset accepts announcements through this channel.
  [[nodiscard]] bool is_on() const noexcept { return ledger_.max_bytes() != 0; }
  /// Returns the ledger of announced bytes that are not read yet.
  [[nodiscard]] plan_ledger& ledger() noexcept { return ledger_; }

  /// Announces some samples of one batch. Returns false if the limit leaves no room, or if no batch
  /// needs an announcement.
  bool announce_some() noexcept {
    if (!is_on()) return false;
    const auto coming = schedule_->upcoming();
    if (!coming) return false;
    follow(*coming);
    const std::uint64_t room = ledger_.room();
    if (room == 0 || number_ >= coming->end || !has_order()) return false;
    const batch_info batch = batch_now();
    const auto [number, place] = std::pair{number_, place_};
    const auto some = std::span{indices_}.first((std::min)(indices_.size(), batch.size - place_));
    try {
      pick_samples(*order_, schedule_->plan(), batch, place_, some);
      std::uint64_t bytes = 0;
      const std::size_t fits = that_fit(some, room, bytes);
      if (fits == 0) {
        // No sample fits until some of the announced bytes have been read.
        if (bytes_of(some[0]) <= ledger_.max_bytes()) return false;
        move_on(batch, 1);  // skips a sample that never fits
        return true;
      }
      const bool is_early = ledger_.record_announced(number_, bytes);
      // The batch has already been opened, so `follow` continues with the next batch.
      if (!is_early && !Channel::is_of_use_late) return true;
      if (Channel::is_counted) {
        metrics_->samples.add(fits);
        metrics_->bytes.add(bytes);
      }
      move_on(batch, fits);
      Channel::announce(*data_, some.first(fits));
    } catch (...) {
      metrics_->failed.add(1);
      // The announcement failed, because sizes or memory could not be obtained.
      if (number_ == number && place_ == place) skip_batch();
    }
    return true;
  }

 private:
  // Advances to the next batch to be opened, unless the announcements are already ahead of that
  // batch.
  void follow(const schedule::coming& now) {
    if (now.next.range != range_) {
      ledger_.void_from(now.first);
      range_ = now.next.range;
      order_.reset();
      order_epoch_.reset();
      try {
        Channel::begin_range(*data_);
      } catch (...) {
        metrics_->failed.add(1);
      }
      if (Channel::is_of_use_late) return go_to(now.first_at, now.first);
    } else if (number_ >= now.next.number) {
      return;
    } else {
      for (; number_ < now.next.number; skip_batch()) {
        if (Channel::is_of_use_late && has_order()) return;
        if (Channel::is_counted) metrics_->late.add(batch_now().size - place_);
      }
    }
    go_to(now.next.at, now.next.number);
  }
  void go_to(const batch_position& at, std::uint64_t number) noexcept {
    at_ = at;
    number_ = number;
    place_ = 0;
  }

  // Returns true if the order of the current epoch is known. Discards an exception of the sampler,
  // because the consumer receives it through the opener.
  bool has_order() {
    if (order_epoch_ == at_.epoch) return order_.has_value();
    order_.reset();
    order_epoch_ = at_.epoch;
    try {
      order_.emplace(sampler_->order(size_, at_.epoch));
    } catch (...) {
      metrics_->failed.add(1);
    }
    return order_.has_value();
  }

  [[nodiscard]] batch_info batch_now() const noexcept {
    batch_info batch = schedule_->plan().at(at_);
    if (order_ && order_epoch_ == at_.epoch) cut_batch(*order_, batch);
    return batch;
  }
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t index) const {
    const std::uint64_t known = storage_size_of(*data_, index);
    if (known != 0) return known;
    const std::uint64_t mean = read_->value();
    return mean == 0 ? sample_bytes_ : mean;
  }

  // Returns the number of leading samples that fit in `room`, and sets `bytes` to their total size.
  std::size_t that_fit(std::span<const std::uint64_t> some, std::uint64_t room,
                       std::uint64_t& bytes) const {
    std::size_t fits = 0;
    for (; fits < some.size(); ++fits) {
      const std::uint64_t one = bytes_of(some[fits]);
      if (one > room - bytes) break;
      bytes += one;
    }
    return fits;
  }

  void move_on(const batch_info& batch, std::size_t samples) noexcept {
    place_ += samples;
    if (place_ == batch.size) skip_batch();
  }
  void skip_batch() noexcept {
    at_ = schedule_->plan().normal({at_.epoch, at_.batch + 1});
    ++number_;
    place_ = 0;
  }

  const Dataset* data_;
  std::uint64_t size_;
  const Sampler* sampler_;
  const schedule* schedule_;
  std::uint64_t sample_bytes_;
  const mean_bytes* read_;
  ahead_meter* metrics_;
  plan_ledger ledger_;

  // State of the announcing thread.
  std::uint64_t range_ = 0;   // index of the range in the schedule
  batch_position at_;         // position of the next batch to announce
  std::uint64_t number_ = 0;  // number of the batch at `at_`
  std::size_t place_ = 0;     // first sample of that batch to announce
  std::optional<order_of<Sampler>> order_;
  std::optional<std::uint64_t> order_epoch_;  // epoch of order_
  std::array<std::uint64_t, 64> indices_{};
};

/// Announces upcoming reads to a dataset, the next samples by prefetch hints and samples farther
/// ahead by the access plan (see `loader_options::lookahead_bytes`). Announcements are made on a
/// separate thread, or on the consumer thread without workers. Workers never wait for an
/// announcement. A sample whose announcement is late or missing is read without it.
class look_ahead {
 public:
  look_ahead() = default;
  look_ahead(look_ahead&&) = delete;
  virtual ~look_ahead() = default;

  /// Runs the lookahead thread. Returns after `end`.
  virtual void work() = 0;
  /// Permanently ends the announcements.
  virtual void end() noexcept = 0;
  /// Waits, after `end`, until the thread has returned from the dataset or the sampler, for up to
  /// `max`. Returns true if it has returned.
  [[nodiscard]] virtual bool wait_until_silent(std::chrono::milliseconds max) = 0;

  /// Records that workers start to read the batch with this number. Called by the opener. Without
  /// workers, this function makes the announcements.
  virtual void record_opened(std::uint64_t number) noexcept = 0;
  /// Records that the batch with this number has been read. Called by the workers.
  virtual void record_read(std::uint64_t number) noexcept = 0;
  /// Records the total size in bytes of the samples in a batch with ragged fields. Called by the
  /// workers.
  virtual void record_values(std::uint64_t samples, std::uint64_t bytes) noexcept = 0;
};

/// The lookahead of a loader over `Dataset` and `Sampler`.
template <dataset Dataset, sampler Sampler>
class lookahead_thread final : public look_ahead {
 public:
  /// Creates a `plan_follower` for each channel.
  lookahead_thread(const Dataset& data, std::uint64_t size, const Sampler& order,
                   const schedule& batches,
                   const batch_layout<typename Dataset::record_type>& layout,
                   const loader_options& options, loader_observer& observer)
      : has_thread_(options.workers != 0),
        metrics_(&observer.of_lookahead()),
        hints_(data, size, order, batches, layout, options, observer, read_),
        plan_(data, size, order, batches, layout, options, observer, read_) {}
  /// Returns true if the dataset accepts announcements through any channel.
  [[nodiscard]] bool is_on() const noexcept { return hints_.is_on() || plan_.is_on(); }

  void work() override {
    scoped_flush_to_zero::enable_permanently();  // A sampler runs in the same mode on all threads.
    while (hints_.ledger().wait()) announce();
  }
  void end() noexcept override {
    plan_.ledger().end();
    hints_.ledger().end();
  }
  [[nodiscard]] bool wait_until_silent(std::chrono::milliseconds max) override {
    return hints_.ledger().wait_until_silent(max);
  }

  void record_opened(std::uint64_t number) noexcept override {
    if (!is_on()) return;
    plan_.ledger().record_opened(number);
    hints_.ledger().record_opened(number);  // wakes the thread
    if (!has_thread_) announce();
  }
  void record_read(std::uint64_t number) noexcept override {
    if (!is_on()) return;
    plan_.ledger().record_read(number);
    hints_.ledger().record_read(number);
  }
  void record_values(std::uint64_t samples, std::uint64_t bytes) noexcept override {
    if (is_on() && samples != 0) read_.add(bytes, samples);
  }

 private:
  static constexpr std::size_t max_inline = 64;  // maximum number of plan calls per batch

  // Announces as many samples as there is room for. Prefetch hints precede plans, because hints are
  // needed first. Without a thread, the number of plan calls per batch is bounded.
  void announce() noexcept {
    announce_hints();
    for (std::size_t i = 0; (has_thread_ || i < max_inline) && plan_.announce_some(); ++i)
      announce_hints();
    metrics_->bytes_now.set(hints_.ledger().bytes());
  }
  void announce_hints() noexcept {
    while (hints_.announce_some()) {
    }
  }

  mean_bytes read_;  // mean size of records with ragged fields
  bool has_thread_;
  ahead_meter* metrics_;
  plan_follower<prefetch_channel, Dataset, Sampler> hints_;
  plan_follower<plan_channel, Dataset, Sampler> plan_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
