// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/memory/support/slot_ring.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock_ext/intake/support/consumer_signal.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown by an `intake`, one of its slots, or a `batcher` if a call is invalid, because the caller
/// does not own the slot, the slot has no room for these samples or lengths, or the number of
/// lengths is wrong. The call had no effect.
class [[gnu::visibility("default")]] intake_error : public error {
 public:
  using error::error;
};

/// The result of `acquire` for a producer if an `intake` has no free slot.
enum class when_full : unsigned char {
  wait,         ///< `acquire` waits until a slot is free (backpressure)
  reject,       ///< `acquire` returns no slot, and the producer decides what to do
  drop_oldest,  ///< the slot of the oldest batch that no consumer has taken, which is dropped
  drop_new,     ///< `acquire` returns no slot, and the new batch counts as dropped
};

/// A non-owning list of ragged lengths, sample by sample, in field order. For one sample with one
/// ragged field, pass `{n}`. The list must outlive the call that it is passed to.
class length_list {
 public:
  /// Creates an empty list.
  constexpr length_list() noexcept = default;
  /// References a list in braces.
  constexpr length_list(std::initializer_list<std::uint64_t> list) noexcept {
    all_ = {std::data(list), list.size()};
  }
  /// References an array or a vector.
  template <std::convertible_to<std::span<const std::uint64_t>> List>
    requires(!std::same_as<List, length_list>)
  constexpr length_list(const List& list) noexcept : all_(list) {}  // NOLINT: implicit

  /// Returns the lengths.
  [[nodiscard]] constexpr std::span<const std::uint64_t> all() const noexcept { return all_; }

 private:
  std::span<const std::uint64_t> all_;
};

/// Describes a batch that a producer has written to a slot of an `intake`.
struct commit_info {
  std::size_t samples = 1;   ///< number of samples, from 1 to `intake_options::samples`
  length_list lengths = {};  ///< the length of each ragged field, for each sample
  std::uint64_t tag = 0;     ///< a value for the consumer, returned by `tag()` of the batch
  /// The time at which the age of the batch is 0. The default is the time of the commit.
  std::chrono::steady_clock::time_point timestamp = {};
};

/// The statistics of an `intake`, in batches. While no call is in progress, `committed` is the sum
/// of `delivered`, `waiting` and `dropped`. However, `dropped` also counts the batches that
/// `when_full::drop_new` drops before they are written, which `committed` does not include.
struct intake_stats {
  std::uint64_t committed = 0;  ///< batches that producers have committed
  std::uint64_t delivered = 0;  ///< batches that consumers have received
  std::uint64_t dropped = 0;    ///< batches that no consumer receives
  std::uint64_t rejected = 0;   ///< `acquire` calls that `when_full::reject` has rejected
  std::uint64_t waiting = 0;    ///< committed batches that no consumer has taken yet
  wait_stats waits = {};        ///< waits of producers for a slot
  duration_stats age = {};      ///< age of batches when a consumer takes them
};

/// The host memory of an `intake` or a `batcher`, which is allocated at construction.
struct intake_footprint {
  std::size_t slot_count = 0;  ///< number of slots
  std::size_t slot_bytes = 0;  ///< size of each slot in bytes (see `batch_layout`)
  std::size_t bytes = 0;       ///< size of all slots in bytes
  bool pinned = false;         ///< true if the memory is page-locked
  /// Number of bytes of `intake_options::memory` in huge pages (see `registered_memory`).
  std::size_t huge_page_bytes = 0;
};

namespace detail {

/// The owner of an `intake` slot.
enum class slot_owner : unsigned char {
  ring,      ///< free, or lost
  producer,  ///< acquired by a thread that writes it
  driver,    ///< detached from its lease and owned by a driver
  consumer,  ///< committed, or taken by a consumer
};

/// The type and behavior of an `intake_board`.
struct board_traits {
  const char* name = "intake";         ///< name of the public class, for errors
  when_full policy = when_full::wait;  ///< the action without a free slot
  std::size_t reserved = 0;            ///< number of slots reserved for urgent batches
  /// True if batches that are being written at the close are delivered.
  bool awaits_writers = false;
  std::chrono::nanoseconds spin{0};  ///< passed to `consumer_signal`
};

/// Page-locked memory of `count` slots for batches of `layout`, reserved from a budget.
template <device Device>
struct pinned_slots {
  memory_reservation granted;
  slab<Device> memory;

  /// Allocates the slots. `lower` names the options that reduce the size, for error messages.
  /// Throws `pinned_budget_exceeded`, `out_of_memory`, and errors from the device.
  pinned_slots(const Device& device, std::size_t slot_bytes, std::size_t count,
               const std::optional<memory_budget>& budget, const char* lower)
      : granted(budget ? budget->reserve({.slot_count = count,
                                          .min = count,
                                          .slot_bytes = slot_bytes,
                                          .lower = lower,
                                          .raise = "budget"})
                       : memory_reservation{}),
        memory(device, bytes_of_slots(memory_kind::pinned, slot_bytes, count), memory_kind::pinned,
               slot_bytes) {}
};

/// Closes a board when a stop is requested.
template <class Board>
struct close_board {
  Board* board;
  void operator()() const noexcept { board->close(false); }
};

/// Manages the slots of an `intake` or a `batcher`, and decides when a thread may use a slot.
///
/// A single mutex guards all members. Invariant: a slot has one owner, which has exclusive access
/// to its memory and its `frame`, and the owner changes only under the mutex. A thread that holds
/// the mutex does not write batches or run user code, and calls the device only to query an event.
/// No wake-up is lost, because conditions are checked and changed under the mutex, and
/// notifications follow the change. A free slot wakes all producers, because producers that wait
/// for the end of a copy poll. A committed batch wakes one consumer, because only one consumer
/// takes it.
///
/// No consumer sleeps beyond `due_`, because a wait ends at `due_`, and an earlier `due_` wakes all
/// consumers.
template <record_type Record, device Device>
class intake_board : public slot_ring<Device> {
  using base = slot_ring<Device>;

 public:
  using slot_number = typename base::slot_number;
  using stream_ref = typename Device::stream_ref;
  static constexpr deadline forever = (deadline::max)();

  /// Creates `count` slots for batches of `layout` in `memory`. Propagates errors from the device.
  intake_board(const Device& device, const batch_layout<Record>& layout, slab<Device> memory,
               std::size_t count, const board_traits& traits, memory_reservation granted)
      : base(device, layout, std::move(memory), count, std::move(granted)),
        traits_(traits),
        changed_(traits.spin) {
    frames_.reserve(count);
    ready_.reserve(count);
    free_.reserve(count);
    for (slot_number slot = 0; slot < count; ++slot) {
      frames_.push_back({device.make_event(event_wait::by_host)});
      free_.push_back(slot);
    }
  }
  /// Waits for producer work on slots that no consumer has waited for.
  ~intake_board() override {
    for (const frame& one : frames_) {
      if (one.writing != nullptr && !synchronize_before_free(base::device(), *one.writing))
        base::lose();
    }
  }

  [[nodiscard]] const batch_layout<Record>& layout() const noexcept {
    return base::layout().template as<Record>();
  }
  [[nodiscard]] intake_footprint footprint() const noexcept {
    return {base::count(), layout().bytes(), base::bytes(), base::pinned(),
            base::huge_page_bytes()};
  }

  /// Acquires a slot to write, according to the policy. Waits until `end` at the latest. Only an
  /// urgent batch may use a reserved slot. Returns `std::nullopt` if the policy provides no slot,
  /// on timeout, and after `close`. Throws `leases_exhausted` if all slots are lost, and errors
  /// from the device.
  [[nodiscard]] std::optional<slot_number> acquire(deadline end, bool is_urgent = true) {
    require_own();
    const when_full policy = traits_.policy;
    std::unique_lock lock{mutex_};
    std::optional<slot_number> slot = take_free(is_urgent);
    if (slot || is_closed_) return slot;
    if (policy == when_full::reject) ++stats_.rejected;
    if (policy == when_full::drop_new) count_dropped(1, ready_.size());
    if (policy == when_full::reject || policy == when_full::drop_new) return slot;
    const deadline begin = clock::now();
    deadline now = begin;
    if (now < end) ++stats_.waits.count;
    for (; !slot && !is_closed_ && now < end; now = clock::now()) {
      // No thread wakes when a copy or producer work ends, so this thread polls if it waits only
      // for that.
      const bool polls = free_.size() > kept_free(is_urgent) ||
                         (policy == when_full::drop_oldest && !ready_.empty());
      if (!polls && end == forever) {
        room_.wait(lock);
      } else {
        room_.wait_until(lock, polls ? (std::min)(end, now + look_again) : end);
      }
      slot = take_free(is_urgent);
    }
    stats_.waits.time += now - begin;
    return slot;
  }

  /// Transfers the slot of a lease to a driver.
  void detach(slot_number slot) noexcept {
    const std::lock_guard lock{mutex_};
    frames_[slot].owner = slot_owner::driver;
  }
  /// Takes a slot back from a driver. Throws `intake_error` unless the driver owns the slot.
  [[nodiscard]] slot_number claim(std::uint64_t slot) {
    require_own();
    const std::lock_guard lock{mutex_};
    if (slot >= base::count() || frames_[slot].owner != slot_owner::driver) {
      throw intake_error(
          str_cat({"intake: buffer ", slot, " does not belong to a driver: ",
                   slot < base::count() ? "it was committed or released before, or never detached"
                                        : "there is no such buffer"}));
    }
    frames_[slot].owner = slot_owner::producer;
    return static_cast<slot_number>(slot);
  }

  /// Throws `intake_error` unless a slot has room for this batch.
  void require_room(const commit_info& what) const;

  /// Publishes the batch that the calling thread has written to `slot`. `require_room` must have
  /// checked `what`. Returns false if the batch is dropped, because the intake is closed.
  bool commit(slot_number slot, const commit_info& what) noexcept {
    if (is_in_child()) return false;
    place(slot, what);
    return publish(slot, {.size = what.samples, .valid_size = what.samples, .tag = what.tag},
                   what.timestamp, false);
  }
  /// Publishes a batch whose ragged offsets are written. An urgent batch is delivered before
  /// batches that are not urgent.
  bool publish(slot_number slot, const batch_info& info, deadline born, bool is_urgent) noexcept {
    frame& one = frames_[slot];
    one.info = info;
    one.born = born == deadline{} ? clock::now() : born;
    one.is_urgent = is_urgent;
    std::unique_lock lock{mutex_};
    ++stats_.committed;
    if (is_closed_ && !traits_.awaits_writers) {
      ++stats_.dropped;
      put_free(slot, false);
      return false;
    }
    one.owner = slot_owner::consumer;
    one.number = commits_++;
    one.info.dropped = std::exchange(dropped_at_end_, 0);
    const auto before =
        is_urgent ? std::ranges::find_if(ready_, [&](auto at) { return !frames_[at].is_urgent; })
                  : ready_.end();
    ready_.insert(before, slot);  // capacity is reserved
    if (traits_.policy == when_full::drop_oldest) room_.notify_all();
    end_writing(lock);
    return true;
  }
  /// Returns a slot that a producer has acquired but does not commit.
  void cancel(slot_number slot) noexcept {
    base::release(slot);
    std::unique_lock lock{mutex_};
    end_writing(lock);
  }
  /// Publishes a batch like `commit`, which work on `stream` of `producer` still writes. If
  /// recording the end of that work fails, waits for the stream, returns the slot, and throws the
  /// device error. If waiting fails too, the slot is lost.
  bool commit_after(slot_number slot, const commit_info& what, stream_ref stream,
                    const Device& producer) {
    frame& one = frames_[slot];
    auto* event = &one.written;
    const auto end = record_or_wait(
        [&] {
          if (!is_own(producer)) {
            event = &one.written_elsewhere.emplace(producer.make_event(event_wait::by_host));
          }
          producer.record(*event, stream);
        },
        [&] { return try_synchronize(producer, stream); });
    if (end.error) {
      end.is_lost ? base::lose() : base::release(slot);
      end.rethrow_error();
    }
    one.writing = event;
    return commit(slot, what);
  }

  /// Delivers `error` after the batches committed before it. Has no effect after `close`.
  void fail(std::exception_ptr error) {
    if (is_in_child()) return;
    std::unique_lock lock{mutex_};
    if (is_closed_) return;
    errors_.emplace_back(commits_, std::move(error));
    changed_.notify_one(lock);
  }

  /// Rejects all further batches. If `discards` is true, drops the batches that no consumer has
  /// taken.
  void close(bool discards) noexcept {
    if (is_in_child()) return;
    const std::lock_guard lock{mutex_};
    is_closed_ = true;
    if (discards) {
      errors_.clear();
      while (!ready_.empty()) drop(0);
    }
    room_.notify_all();
    changed_.notify_all();
  }

  /// Removes the oldest committed slot from the queue, and counts its batch as dropped. The caller
  /// must then cancel the slot, and the end of the loop waits for that. Returns `std::nullopt` if
  /// no slot is committed.
  [[nodiscard]] std::optional<slot_number> withdraw() noexcept {
    const std::lock_guard lock{mutex_};
    if (ready_.empty()) return std::nullopt;
    ++stats_.dropped;
    ++writing_;
    return take_ready();
  }
  /// Sets the time at which `next` calls `at_due`.
  void set_due(deadline due) noexcept {
    const std::lock_guard lock{mutex_};
    if (std::exchange(due_, due) > due) changed_.notify_all();
  }

  /// Returns the slot and info of the next batch. Returns `std::nullopt` at the end and, unless
  /// `waits` is true, if no batch is ready. Throws errors that producers reported. If no batch is
  /// ready at the time specified by `set_due`, calls `at_due`, which sets the next time.
  template <class AtDue>
  [[nodiscard]] std::optional<std::pair<slot_number, batch_info>> next(bool waits, AtDue at_due) {
    require_own();
    std::unique_lock lock{mutex_};
    for (;;) {
      if (!errors_.empty() &&
          (ready_.empty() || errors_.front().first <= frames_[ready_.front()].number)) {
        const std::exception_ptr error = std::move(errors_.front().second);
        errors_.erase(errors_.begin());
        std::rethrow_exception(error);
      }
      if (!ready_.empty()) return hand_out();
      if (due_ != forever && clock::now() >= due_) {
        due_ = forever;
        lock.unlock();
        at_due();
        lock.lock();
      } else if (!waits || has_ended()) {
        return std::nullopt;
      } else if (due_ == forever) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, due_);
      }
    }
  }

  /// Makes `stream` wait for the producer work on the batch that the caller holds in `slot`.
  void wait_until_written(slot_number slot, stream_ref stream) const override {
    if (const auto* writing = frames_[slot].writing) base::device().wait(stream, *writing);
  }
  /// Waits for the producer work on the batch that the caller holds in `slot`.
  void wait_until_written(slot_number slot) const {
    if (const auto* writing = frames_[slot].writing) base::device().synchronize(*writing);
  }

  /// Counts a delivered batch that has reached no consumer as dropped. The feed that took the batch
  /// reports the drop to its consumer.
  void count_undelivered() noexcept {
    if (is_in_child()) return;
    const std::lock_guard lock{mutex_};
    --stats_.delivered;
    ++stats_.dropped;
  }
  /// Ends a lease on the host. The caller then returns or commits the slot.
  void close_lease(slot_number, const batch_info&, lease_guard& guard) noexcept override {
    guard.end();
  }

  /// Returns true if this process is a child created by fork(). The child must not use or destroy
  /// the board, because other threads may have held the mutex at the time of the fork.
  [[nodiscard]] bool is_in_child() const noexcept override { return process_.is_in_child(); }
  /// Throws `std::logic_error` in a child created by fork().
  void require_own() const {
    process_.require(traits_.name, "make a separate one in this process");
  }
  /// Returns true if the intake is closed and, if `is_drained` is true, consumers have received all
  /// batches and errors.
  [[nodiscard]] bool is_closed(bool is_drained) const noexcept {
    if (is_in_child()) return true;
    const std::lock_guard lock{mutex_};
    return is_drained ? has_ended() && ready_.empty() && errors_.empty() : is_closed_;
  }
  [[nodiscard]] intake_stats stats() const noexcept {
    if (is_in_child()) return {};
    const std::lock_guard lock{mutex_};
    intake_stats all = stats_;
    all.waiting = ready_.size();
    return all;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds look_again{100};

  /// The batch in a slot.
  struct frame {
    typename Device::event_type written;  // marks the end of work on the intake's device
    // End of work on another device.
    std::optional<typename Device::event_type> written_elsewhere{};
    const typename Device::event_type* writing = nullptr;  // event of the last commit, or null
    batch_info info{};
    deadline born{};
    std::uint64_t number = 0;  // index of the commit
    bool is_copied = false;    // true if a copy from the slot may be in flight
    bool is_urgent = false;
    slot_owner owner = slot_owner::ring;
  };

  [[nodiscard]] bool is_own([[maybe_unused]] const Device& producer) const noexcept {
    if constexpr (std::equality_comparable<Device>) {
      return producer == base::device();
    } else {
      return true;
    }
  }
  /// Returns true if no producer work writes the slot.
  [[nodiscard]] bool is_written(slot_number slot) const {
    const auto* writing = frames_[slot].writing;
    return writing == nullptr || base::device().is_complete(*writing);
  }
  /// Returns the number of free slots that this acquisition must leave for urgent batches: 0 if it
  /// is itself urgent. Unless all slots are lost, at least one usable slot is not reserved, so any
  /// batch can acquire it.
  [[nodiscard]] std::size_t kept_free(bool is_urgent) const noexcept {
    const std::size_t usable = base::count() - base::lost();
    return is_urgent || usable == 0 ? 0 : (std::min)(traits_.reserved, usable - 1);
  }
  /// Acquires a slot that no work uses, which is a free slot that is not reserved, or the oldest
  /// committed slot if the policy allows it.
  std::optional<slot_number> take_free(bool is_urgent) {
    if (is_closed_) return std::nullopt;
    if (base::lost() == base::count()) throw_slots_lost();
    const auto is_unused = [&](slot_number one) {
      return (!frames_[one].is_copied || base::is_copied(one)) && is_written(one);
    };
    const auto first = std::ranges::find_if(free_, is_unused);
    const std::size_t kept = kept_free(is_urgent);
    const bool may_take =
        kept == 0 || static_cast<std::size_t>(std::ranges::count_if(free_, is_unused)) > kept;
    if (first != free_.end() && may_take) {
      const slot_number slot = *first;
      free_.erase(first);
      frames_[slot].owner = slot_owner::producer;
      frames_[slot].writing = nullptr;
      if (traits_.awaits_writers) ++writing_;
      base::allow(slot);
      return slot;
    }
    if (traits_.policy != when_full::drop_oldest) return std::nullopt;
    for (std::size_t at = 0; at < ready_.size(); ++at) {
      if (!is_written(ready_[at])) continue;
      drop(at);
      return take_free(is_urgent);
    }
    return std::nullopt;
  }
  /// Drops the committed batch at index `at` of the queue.
  void drop(std::size_t at) noexcept {
    const slot_number slot = ready_[at];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
    count_dropped(1 + frames_[slot].info.dropped, at);
    put_free(slot, false);
  }
  /// Counts a dropped batch. The next batch, which is at index `at` of the queue or is committed
  /// later, reports the drop together with earlier drops, `batches` in total.
  void count_dropped(std::uint64_t batches, std::size_t at) noexcept {
    (at < ready_.size() ? frames_[ready_[at]].info.dropped : dropped_at_end_) += batches;
    ++stats_.dropped;
  }
  [[nodiscard]] bool has_ended() const noexcept { return is_closed_ && writing_ == 0; }
  /// Notifies a consumer of a slot that is written. The last slot after the close notifies all
  /// consumers.
  void end_writing(std::unique_lock<std::mutex>& lock) noexcept {
    if (traits_.awaits_writers) --writing_;
    if (is_closed_) changed_.notify_all();
    changed_.notify_one(lock);
  }
  slot_number take_ready() noexcept {
    const slot_number slot = ready_.front();
    ready_.erase(ready_.begin());
    return slot;
  }
  std::pair<slot_number, batch_info> hand_out() noexcept {
    const slot_number slot = take_ready();
    frame& out = frames_[slot];
    out.info.batch = numbers_++;
    ++stats_.delivered;
    const auto age = (std::max)(clock::now() - out.born, clock::duration{0});
    const auto ticks = static_cast<std::uint64_t>(std::chrono::nanoseconds{age}.count());
    ++stats_.age.counts[log_buckets::of(ticks)];
    stats_.age.total_ticks += ticks;
    stats_.age.longest_ticks = (std::max)(stats_.age.longest_ticks, ticks);
    return {slot, out.info};
  }
  void add_free(slot_number slot, bool is_copied) noexcept override {
    const std::lock_guard lock{mutex_};
    put_free(slot, is_copied);
  }
  void put_free(slot_number slot, bool is_copied) noexcept {
    frames_[slot].owner = slot_owner::ring;
    frames_[slot].is_copied = is_copied;
    free_.push_back(slot);  // capacity is reserved
    room_.notify_all();
  }
  /// Wakes waiting producers, because no slot will become free, or fewer slots are reserved.
  void wake_after_loss(bool) noexcept override {
    const std::lock_guard lock{mutex_};
    room_.notify_all();
  }
  [[noreturn, gnu::cold]] void throw_slots_lost() const {
    throw leases_exhausted(
        str_cat({traits_.name, ": all ", base::lost(),
                 " slots are lost: the device failed to record when the work on them ends. Do not "
                 "end a lease while its stream is being captured, and make a new ",
                 traits_.name}));
  }
  /// Writes the offsets of the ragged fields.
  void place([[maybe_unused]] slot_number slot, [[maybe_unused]] const commit_info& what) noexcept {
    if constexpr (Record::ragged_fields != 0) {
      const batch_view<Record> all{base::data(slot), layout(), 0, what.samples};
      for (std::size_t at = 0; at < what.samples; ++at) {
        sample_lengths<Record> lengths;
        std::ranges::copy(lengths_of(what, at), lengths.begin());
        static_cast<void>(place_sample(all, at, lengths));  // already checked by `require_room`
      }
    }
  }
  [[nodiscard]] static std::span<const std::uint64_t> lengths_of(const commit_info& what,
                                                                 std::size_t sample) noexcept {
    return what.lengths.all().subspan(sample * Record::ragged_fields, Record::ragged_fields);
  }

  fork_guard process_{true};
  board_traits traits_;
  mutable std::mutex mutex_;        // guards all members below, except frames with an owner
  std::condition_variable room_;    // wakes producers
  consumer_signal<> changed_;       // wakes consumers
  std::vector<frame> frames_;       // indexed by slot
  std::vector<slot_number> free_;   // in the order of their return
  std::vector<slot_number> ready_;  // committed but not taken, in the order of delivery
  // The errors in order, each with the index of the commit that it precedes.
  std::vector<std::pair<std::uint64_t, std::exception_ptr>> errors_;
  std::uint64_t commits_ = 0;
  std::uint64_t numbers_ = 0;         // number of batches delivered
  std::uint64_t dropped_at_end_ = 0;  // number of batches dropped after the last batch of `ready_`
  // Number of slots being written, if the end of the loop waits for them.
  std::size_t writing_ = 0;
  deadline due_ = forever;  // time of the next call to `at_due`
  bool is_closed_ = false;
  intake_stats stats_;
};

template <record_type Record, device Device>
void intake_board<Record, Device>::require_room(const commit_info& what) const {
  const auto reject = [this](std::initializer_list<str_cat_arg> problem) {
    throw intake_error(str_cat({traits_.name, ": ", str_cat(problem)}));
  };
  if (what.samples < 1 || what.samples > layout().batch_size()) {
    reject({what.samples, " samples, and a slot has room for 1 to ", layout().batch_size()});
  }
  const std::size_t given = what.lengths.all().size();
  if (given != what.samples * Record::ragged_fields) {
    reject({given, " lengths for ", what.samples, " samples with ", Record::ragged_fields,
            " ragged fields each"});
  }
  for_each_ragged<Record>([&]<std::size_t Index>() {
    const std::uint64_t longest = layout().extents().template at<Index>().longest;
    std::uint64_t left = layout().template capacity<Index>();
    for (std::size_t at = 0; at < what.samples; ++at) {
      const std::uint64_t length = lengths_of(what, at)[Record::template ragged_index<Index>()];
      if (length > longest || length > left) {
        reject({"field \"", Record::template field_at<Index>::key.str(), "\": sample ", at, " has ",
                length, " values, and there is room for ", (std::min)(longest, left)});
      }
      left -= length;
    }
  });
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
