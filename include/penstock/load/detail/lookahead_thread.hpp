// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/load/detail/plan.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/threads/float_mode.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Counts the bytes that were announced to a dataset and are not read yet, batch by batch, within a
/// bound. The lookahead thread sleeps on it. Batches have the numbers of the `schedule`. From any
/// thread; no user code runs under its lock.
class plan_ledger {
 public:
  /// At most `most` bytes at a time. Throws std::bad_alloc.
  explicit plan_ledger(std::uint64_t most) : most_(most) {}

  /// The bound.
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }
  /// The bytes that may be announced now; none after `end`.
  [[nodiscard]] std::uint64_t room() const {
    const std::lock_guard lock{mutex_};
    return ends_ ? 0 : most_ - bytes_;
  }
  /// The bytes that are not read yet.
  [[nodiscard]] std::uint64_t bytes() const {
    const std::lock_guard lock{mutex_};
    return bytes_;
  }

  /// Lookahead thread: notes that `bytes` of batch `number` are about to be announced. There is
  /// room for them, and the batch is the last one so far or a later one. False, and nothing is
  /// noted, once that batch is opened.
  [[nodiscard]] bool note_announced(std::uint64_t number, std::uint64_t bytes) {
    const std::lock_guard lock{mutex_};
    if (ends_ || number < opened_) return false;
    if (announced_.empty() || announced_.back().number != number) announced_.push_back({number, 0});
    announced_.back().bytes += bytes;
    bytes_ += bytes;
    return true;
  }
  /// Lookahead thread: another range begins with batch `number`; what was announced of it and of
  /// later ones is void.
  void void_from(std::uint64_t number) {
    const std::lock_guard lock{mutex_};
    while (!announced_.empty() && announced_.back().number >= number) {
      bytes_ -= announced_.back().bytes;
      announced_.pop_back();
    }
  }

  /// Opener: batch `number` is opened, from now on it is read.
  void note_opened(std::uint64_t number) noexcept {
    {
      const std::lock_guard lock{mutex_};
      opened_ = number + 1;
      has_moved_ = true;
    }
    changed_.notify_all();
  }
  /// A worker: batch `number` is read.
  void note_read(std::uint64_t number) noexcept {
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

  /// Lookahead thread: waits until something has moved since the last call; false after `end`.
  /// Between two calls it counts as announcing.
  [[nodiscard]] bool wait() {
    std::unique_lock lock{mutex_};
    is_announcing_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return ends_ || has_moved_; });
    has_moved_ = false;
    is_announcing_ = !ends_;
    return is_announcing_;
  }
  /// Ends the announcements, permanently.
  void end() noexcept {
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    changed_.notify_all();
  }
  /// After `end`: waits for the lookahead thread, at most `most`. Returns whether it has ended.
  [[nodiscard]] bool wait_until_silent(std::chrono::milliseconds most) {
    std::unique_lock lock{mutex_};
    return changed_.wait_until(lock, deadline_in(most), [this] { return !is_announcing_; });
  }

 private:
  struct announced {
    std::uint64_t number;
    std::uint64_t bytes;
  };

  const std::uint64_t most_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<announced> announced_;  // by number
  std::uint64_t bytes_ = 0;          // of `announced_`, at most `most_`
  std::uint64_t opened_ = 0;         // batches below it are opened
  bool has_moved_ = false;
  bool is_announcing_ = false;
  bool ends_ = false;
};

/// The channel for what is to be fetched before it is read: `prefetch_hint`.
struct prefetch_channel {
  static constexpr bool is_counted = true;       // in statistics
  static constexpr bool is_of_use_late = false;  // when the batch is read already
  template <class D>
  static std::uint64_t most(const D& data) {
    return prefetch_capacity_of(data);
  }
  template <class D>
  static void announce(const D& data, std::span<const std::uint64_t> indices) {
    give_prefetch_hint(data, indices);
  }
  template <class D>
  static void begin_range(const D&) {}
};

/// The channel for the order of later reads, by which caches evict: `access_plan`.
struct plan_channel {
  static constexpr bool is_counted = false;
  // Otherwise a read that was not planned would be taken for a later one that was.
  static constexpr bool is_of_use_late = true;
  template <class D>
  static std::uint64_t most(const D& data) {
    return plan_capacity_of(data);
  }
  template <class D>
  static void announce(const D& data, std::span<const std::uint64_t> indices) {
    extend_access_plan(data, indices);
  }
  template <class D>
  static void begin_range(const D& data) {
    extend_access_plan(data, {});
  }
};

/// Follows the schedule from the batch that is opened next to the end of the range, over the ends
/// of epochs, and announces the samples to a dataset through `Channel`, until the bytes announced
/// and not read reach the bound; batches that are read make room. No lock is held while the dataset
/// or the sampler runs.
template <class Channel, dataset Dataset, sampler Sampler>
class plan_follower {
 public:
  /// A sample whose size `data` does not know counts the mean of `read`, the bytes of the ragged
  /// batches read so far; before the first one, its bytes in a batch of `layout`. Refers to all
  /// arguments but `layout` and `options`.
  plan_follower(const Dataset& data, std::uint64_t size, const Sampler& order,
                const schedule& batches, const batch_layout<typename Dataset::record_type>& layout,
                const loader_options& options, loader_observer& observer, const mean_bytes& read)
      : data_(&data),
        size_(size),
        sampler_(&order),
        schedule_(&batches),
        sample_bytes_(std::max<std::size_t>(1, layout.sample_bytes())),
        read_(&read),
        seen_(&observer.of_lookahead()),
        ledger_(options.ahead.bytes == 0 ? 0
                                         : (std::min)(options.ahead.bytes, Channel::most(data))) {
    if (!Channel::is_counted) return;
    seen_->most_bytes.set(ledger_.most());
    seen_->source_bytes.set(Channel::most(data));
  }
  plan_follower(plan_follower&&) = delete;

  /// Whether the dataset takes announcements.
  [[nodiscard]] bool is_on() const noexcept { return ledger_.most() != 0; }
  /// The bytes announced and not read.
  [[nodiscard]] plan_ledger& ledger() noexcept { return ledger_; }

  /// Announces some samples of one batch. False if there is no room, or no batch to announce.
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
        if (bytes_of(some[0]) <= ledger_.most()) return false;  // until some are read
        move_on(batch, 1);                                      // it never fits
        return true;
      }
      const bool is_early = ledger_.note_announced(number_, bytes);
      if (!is_early && !Channel::is_of_use_late) return true;  // it was opened: to the next one
      if (Channel::is_counted) {
        seen_->samples.add(fits);
        seen_->bytes.add(bytes);
      }
      move_on(batch, fits);
      Channel::announce(*data_, some.first(fits));
    } catch (...) {
      seen_->failed.add(1);
      // It was not announced, because its sizes or memory were missing.
      if (number_ == number && place_ == place) skip_batch();
    }
    return true;
  }

 private:
  // Goes to where the range is, unless this is ahead of it.
  void follow(const schedule::coming& now) {
    if (now.next.range != range_) {
      ledger_.void_from(now.first);
      range_ = now.next.range;
      order_.reset();
      order_epoch_.reset();
      try {
        Channel::begin_range(*data_);
      } catch (...) {
        seen_->failed.add(1);
      }
      if (Channel::is_of_use_late) return go_to(now.first_at, now.first);
    } else if (number_ >= now.next.number) {
      return;
    } else {
      for (; number_ < now.next.number; skip_batch()) {
        if (Channel::is_of_use_late && has_order()) return;
        if (Channel::is_counted) seen_->late.add(batch_now().size - place_);
      }
    }
    go_to(now.next.at, now.next.number);
  }
  void go_to(const batch_position& at, std::uint64_t number) noexcept {
    at_ = at;
    number_ = number;
    place_ = 0;
  }

  // Whether the order of the present epoch is known. What the sampler throws comes to the consumer
  // by the opener, at its turn.
  bool has_order() {
    if (order_epoch_ == at_.epoch) return order_.has_value();
    order_.reset();
    order_epoch_ = at_.epoch;
    try {
      order_.emplace(sampler_->order(size_, at_.epoch));
    } catch (...) {
      seen_->failed.add(1);
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

  // How many of the samples, from the first on, there is room for, and their `bytes`.
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
  ahead_meter* seen_;
  plan_ledger ledger_;

  // Of the announcing thread.
  std::uint64_t range_ = 0;   // as the schedule counts them
  batch_position at_;         // of the batch to be announced next,
  std::uint64_t number_ = 0;  // its number,
  std::size_t place_ = 0;     // and the first of its samples not announced
  std::optional<order_of<Sampler>> order_;
  std::optional<std::uint64_t> order_epoch_;  // of which it is, or would be if it had not failed
  std::array<std::uint64_t, 64> indices_{};
};

/// Announces to a dataset which samples are read next: prefetch hints, and farther ahead the access
/// plan; see `loader_options::ahead`. One thread does so, without workers the consumer's. No worker
/// waits for it: a sample announced too late, or never, is read without the hint.
class look_ahead {
 public:
  look_ahead() = default;
  look_ahead(look_ahead&&) = delete;
  virtual ~look_ahead() = default;

  /// The body of the lookahead thread; returns after `end`.
  virtual void work() = 0;
  /// Ends it, permanently.
  virtual void end() noexcept = 0;
  /// After `end`: waits until the thread's call of the dataset or the sampler has returned, at most
  /// `most`. Returns whether it has.
  [[nodiscard]] virtual bool wait_until_silent(std::chrono::milliseconds most) = 0;

  /// Opener: the batch with this number is read from now on. Without workers this announces.
  virtual void note_opened(std::uint64_t number) noexcept = 0;
  /// A worker: the batch with this number is read.
  virtual void note_read(std::uint64_t number) noexcept = 0;
  /// A worker: the samples of a batch with ragged fields have so many bytes.
  virtual void note_values(std::uint64_t samples, std::uint64_t bytes) noexcept = 0;
};

/// The look-ahead of a loader over `Dataset` and `Sampler`.
template <dataset Dataset, sampler Sampler>
class lookahead_thread final : public look_ahead {
 public:
  /// See `plan_follower`.
  lookahead_thread(const Dataset& data, std::uint64_t size, const Sampler& order,
                   const schedule& batches,
                   const batch_layout<typename Dataset::record_type>& layout,
                   const loader_options& options, loader_observer& observer)
      : has_thread_(options.workers != 0),
        seen_(&observer.of_lookahead()),
        hints_(data, size, order, batches, layout, options, observer, read_),
        plan_(data, size, order, batches, layout, options, observer, read_) {}
  /// Whether the dataset takes announcements.
  [[nodiscard]] bool is_on() const noexcept { return hints_.is_on() || plan_.is_on(); }

  void work() override {
    flushed_denormals::keep_on();  // a sampler is to see what it sees on a worker
    while (hints_.ledger().wait()) announce();
  }
  void end() noexcept override {
    plan_.ledger().end();
    hints_.ledger().end();
  }
  [[nodiscard]] bool wait_until_silent(std::chrono::milliseconds most) override {
    return hints_.ledger().wait_until_silent(most);
  }

  void note_opened(std::uint64_t number) noexcept override {
    if (!is_on()) return;
    plan_.ledger().note_opened(number);
    hints_.ledger().note_opened(number);  // which wakes the thread
    if (!has_thread_) announce();
  }
  void note_read(std::uint64_t number) noexcept override {
    if (!is_on()) return;
    plan_.ledger().note_read(number);
    hints_.ledger().note_read(number);
  }
  void note_values(std::uint64_t samples, std::uint64_t bytes) noexcept override {
    if (is_on() && samples != 0) read_.add(bytes, samples);
  }

 private:
  static constexpr std::size_t most_inline = 64;  // calls of the dataset

  // Announces as much as there is room for, prefetch hints before plans: those are needed first.
  // Without a thread a batch waits for a bounded number of plan calls.
  void announce() noexcept {
    announce_hints();
    for (std::size_t i = 0; (has_thread_ || i < most_inline) && plan_.announce_some(); ++i)
      announce_hints();
    seen_->bytes_now.set(hints_.ledger().bytes());
  }
  void announce_hints() noexcept {
    while (hints_.announce_some()) {
    }
  }

  mean_bytes read_;  // of records with ragged fields
  bool has_thread_;
  ahead_meter* seen_;
  plan_follower<prefetch_channel, Dataset, Sampler> hints_;
  plan_follower<plan_channel, Dataset, Sampler> plan_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
