// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/memory/support/slot_ring.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock_ext/serve/detail/consumer_signal.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A `batcher` accepts no further requests: `close` was called, or its stop was requested.
class [[gnu::visibility("default")]] batcher_closed : public error {
 public:
  using error::error;
};

/// The reason why accepted requests of a `batcher` are not served.
enum class unserved {
  abandoned,       ///< the batcher was abandoned or destroyed before it handed them out
  not_handed_out,  ///< the feed that took their batch ended first, or could not copy it
};

/// The options of a `batcher`, whose constructor throws `option_error` for invalid values.
struct batcher_options {
  /// The maximum number of requests in a batch. Triton's `max_batch_size`, TorchServe's
  /// `batch_size`.
  std::size_t max_batch_size = 32;

  /// The maximum time that the first request of a batch waits for others. A batch is handed out
  /// when it is full, or when a thread requests a batch after this time. If 0, each call gets the
  /// requests that are already there. Triton's `max_queue_delay_microseconds`, TorchServe's
  /// `max_batch_delay`.
  std::chrono::nanoseconds fill = std::chrono::milliseconds{2};

  /// The time before the end of `fill` at which a waiting thread starts to spin. Sleeping threads
  /// wake up late: by 50 us if the core is awake, occasionally by a millisecond if it sleeps and is
  /// virtual. If 0, no thread spins. Otherwise one thread at a time spins, which costs up to this
  /// much processor time for each batch that is not full in time.
  std::chrono::nanoseconds spin{0};

  /// The number of slots for batches in host memory: for the batch being filled, ready batches, and
  /// batches being copied. `submit` waits while no slot is free.
  std::size_t depth = 4;

  /// Called with the tags of accepted requests that are not served, on the thread that detects it.
  /// That thread is the thread that calls `abandon`, a thread whose write ends later, or the feed's
  /// thread. Must not throw.
  std::function<void(std::span<const std::uint64_t>, unserved)> on_unserved = {};

  /// Closes the batcher when a stop is requested; requests submitted before are still served.
  std::stop_token stop = {};
};

/// Statistics of a `batcher`, in requests. While no call is in progress,
/// `accepted = handed_out + returned + waiting`.
struct batcher_stats {
  /// Requests that were written, so they will be served or returned.
  std::uint64_t accepted = 0;
  std::uint64_t failed = 0;      ///< writes that threw an exception to the submitter
  std::uint64_t handed_out = 0;  ///< requests in batches handed to consumers
  std::uint64_t returned = 0;    ///< requests not served, see `unserved`
  std::uint64_t waiting = 0;     ///< requests in batches that are being filled or ready
  std::uint64_t batches = 0;     ///< batches handed out, including those that a feed returned
};

namespace detail {

inline const batcher_options& checked_batcher(const batcher_options& options) {
  const auto require_in = [](const char* option, std::size_t value, std::size_t max) {
    if (value < 1 || value > max) refuse_option(option, {value, " is not in 1..", max});
  };
  require_in("max_batch_size", options.max_batch_size, std::size_t{1} << 20);
  require_in("depth", options.depth, 1024);
  const auto require_time = [](const char* option, std::chrono::nanoseconds value) {
    if (value.count() < 0) {
      refuse_option(option, {"must not be negative, but is ", value.count(), " ns"});
    }
  };
  require_time("fill", options.fill);
  require_time("spin", options.spin);
  return options;
}

/// The batch in a slot of a `batcher`: the tags of its requests, and their progress. Not
/// thread-safe.
class request_slot {
 public:
  /// Allocates room for `max_batch_size` requests.
  explicit request_slot(std::size_t max) : tags_(max), is_hole_(max) {}

  deadline due;  ///< the time when the batch is handed out even if it is not full

  /// Begins an empty batch, which is due at `end`.
  void begin(deadline end) noexcept {
    count_ = 0;
    due = end;
  }
  /// Adds a request that is about to be written. Returns its position.
  [[nodiscard]] std::size_t add(std::uint64_t tag) noexcept {
    tags_[count_] = tag;
    ++writing_;
    return count_++;
  }
  /// Records that a request was written, or that its write has thrown.
  void on_end(std::size_t position, bool is_written) noexcept {
    is_hole_[position] = is_written ? 0 : 1;
    holes_ += is_written ? 0 : 1;
    --writing_;
  }

  [[nodiscard]] bool is_full() const noexcept { return count_ == tags_.size(); }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_being_written() const noexcept { return writing_ != 0; }
  [[nodiscard]] bool has_holes() const noexcept { return holes_ != 0; }
  /// Returns the tags, one per request.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    return {tags_.data(), count_};
  }

  /// Fills the holes of failed writes with the last requests by `move(from, to)`.
  template <class Move>
  void close_up(Move move) noexcept {
    for (std::size_t at = 0; at < count_; ++at) {
      while (at < count_ && is_hole_[count_ - 1] != 0) --count_;
      if (at == count_ || is_hole_[at] == 0) continue;
      --count_;
      move(count_, at);
      tags_[at] = tags_[count_];
    }
    holes_ = 0;
  }

 private:
  std::vector<std::uint64_t> tags_;
  std::vector<std::uint8_t> is_hole_;  // by position: its writer has thrown
  std::size_t count_ = 0;              // number of positions taken
  std::size_t writing_ = 0;            // positions that are still being written
  std::size_t holes_ = 0;
};

/// Manages the slots of a `batcher`: decides which threads may use which slot, and when.
///
/// A slot is in one of these states: free; open (accepts requests); sealed (accepts no more
/// requests, but some are still being written); ready; out. After the copy out of the slot, it is
/// free again, or lost. At most one slot is open.
///
/// A single mutex guards everything. No thread holds the mutex while it writes a request, fills
/// holes, waits for a copy, or runs user code. No wake-up is lost, because conditions are checked
/// and changed under the mutex, and notifications follow the change. A batch that becomes ready
/// wakes one consumer, because one consumer takes it. The other consumers know the due time of the
/// open slot, because opening the slot has woken all of them.
template <record_type Record, device Device>
class request_board : public slot_ring<Device, request_board<Record, Device>> {
  using base = slot_ring<Device, request_board<Record, Device>>;

 public:
  /// The position of a request.
  struct place {
    std::uint32_t slot;
    std::size_t position;
  };

  /// Allocates the memory. Throws `out_of_memory`, and the errors of the device.
  request_board(const batcher_options& options, const Device& device,
                const batch_layout<Record>& layout)
      : base(device, layout.bytes(), options.depth, memory_kind::pinned),
        layout_(layout),
        options_(options),
        changed_(options.spin),
        slots_(options.depth, request_slot{options.max_batch_size}) {
    ready_.reserve(options.depth);
    free_.reserve(options.depth);
    for (std::uint32_t slot = 0; slot < options.depth; ++slot) free_.push_back({slot, false});
  }

  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  /// Returns the memory of a request's position.
  [[nodiscard]] sample<Record> at(const place& of) const noexcept {
    return {base::data(of.slot), layout_, of.position};
  }

  /// Waits for a position for a request, until `end` at most. Returns `std::nullopt` on timeout.
  /// Throws `batcher_closed`, `leases_exhausted` if all slots are lost, and the errors of the
  /// device.
  [[nodiscard]] std::optional<place> reserve(std::uint64_t tag, deadline end) {
    require_own();
    std::unique_lock lock{mutex_};
    for (;;) {
      if (is_closed_) throw batcher_closed("batcher: it is closed and accepts no more requests");
      if (base::lost() == base::count()) throw_slots_lost();
      if (!open_) open_free();
      if (open_) return take_place(lock, tag);
      if (end == forever && free_.empty()) {
        room_.wait(lock);
      } else if (const auto now = clock::now(); now >= end) {
        return std::nullopt;
      } else {
        // The end of a copy wakes no thread, so this thread polls if it waits only for that.
        room_.wait_until(lock, free_.empty() ? end : (std::min)(end, now + look_again));
      }
    }
  }

  /// Records that the request at `at` was written, or that its write has thrown.
  void commit(const place& at, bool is_written) noexcept {
    if (is_in_child()) return;
    std::unique_lock lock{mutex_};
    request_slot& in = slots_[at.slot];
    in.on_end(at.position, is_written);
    ++(is_written ? stats_.accepted : stats_.failed);
    if (is_written) ++stats_.waiting;
    if (!in.is_being_written() && open_ != at.slot) publish(lock, at.slot);
  }

  /// Returns the slot and info of the next batch. Returns `std::nullopt` at the end and, unless
  /// `waits`, if no batch is ready. Throws `std::logic_error` in a child made by fork().
  [[nodiscard]] std::optional<std::pair<std::uint32_t, batch_info>> next(bool waits) {
    require_own();
    std::unique_lock lock{mutex_};
    for (;;) {
      if (!ready_.empty()) return hand_out();
      if (open_ && clock::now() >= slots_[*open_].due) {
        seal(lock);
      } else if (!waits || has_ended()) {
        return std::nullopt;
      } else if (open_) {
        changed_.wait_until(lock, slots_[*open_].due);
      } else {
        changed_.wait(lock);
      }
    }
  }

  /// Returns the tags of a batch that is out, for its holder.
  [[nodiscard]] auto tags(std::uint32_t number) const noexcept { return slots_[number].tags(); }

  /// Ends the lease of a batch. The caller returns its slot next.
  void close_lease(std::uint32_t, const batch_info&, lease_guard& guard) noexcept { guard.end(); }
  /// Reports that a batch with these tags, which was handed out, has reached no consumer.
  void take_back(std::span<const std::uint64_t> tags) noexcept {
    if (is_in_child()) return;  // the parent serves them
    {
      const std::lock_guard lock{mutex_};
      stats_.handed_out -= tags.size();
      stats_.returned += tags.size();
    }
    if (options_.on_unserved) options_.on_unserved(tags, unserved::not_handed_out);
  }

  /// Accepts no further requests. Existing requests are served, or returned if the batcher is
  /// abandoned. Requests that are being written are returned when they are complete. Does nothing
  /// in a child.
  void close(bool abandons) noexcept {
    if (is_in_child()) return;
    std::unique_lock lock{mutex_};
    is_closed_ = true;
    is_abandoned_ = is_abandoned_ || abandons;
    if (open_) seal(lock);
    while (is_abandoned_ && !ready_.empty()) {
      ++busy_;
      return_unserved(lock, take_ready());
      --busy_;
    }
    room_.notify_all();
    changed_.notify_all();
  }

  /// Returns true if this process is a child made by fork(). Other threads may have held the mutex
  /// or waited when the process was copied, so a child uses and destroys nothing here.
  [[nodiscard]] bool is_in_child() const noexcept { return process_.is_in_child(); }

  [[nodiscard]] bool is_at_end() const noexcept {
    if (is_in_child()) return true;
    const std::lock_guard lock{mutex_};
    return has_ended();
  }
  [[nodiscard]] bool was_closed() const noexcept {
    if (is_in_child()) return true;
    const std::lock_guard lock{mutex_};
    return is_closed_;
  }
  [[nodiscard]] batcher_stats stats() const noexcept {
    if (is_in_child()) return {};
    const std::lock_guard lock{mutex_};
    return stats_;
  }

 private:
  friend base;
  using clock = std::chrono::steady_clock;
  static constexpr deadline forever = (deadline::max)();
  static constexpr std::chrono::microseconds look_again{100};

  /// A slot that was returned, possibly with a copy in flight; the memory tracks the end of the
  /// copy.
  struct free_slot {
    std::uint32_t number;
    bool is_copied;
  };

  void require_own() const {
    process_.require(
        "batcher", "submit and serve in that process, and make a separate batcher in this process");
  }
  /// Opens the first free slot that no copy is reading, if there is one. Throws what the
  /// device throws.
  void open_free() {
    const auto first = std::ranges::find_if(
        free_, [&](const free_slot& one) { return !one.is_copied || base::is_copied(one.number); });
    if (first == free_.end()) return;
    open_ = first->number;
    base::allow(first->number);
    free_.erase(first);
    slots_[*open_].begin(deadline_in(options_.fill));
    room_.notify_all();
    changed_.notify_all();
  }
  place take_place(std::unique_lock<std::mutex>& lock, std::uint64_t tag) noexcept {
    request_slot& to = slots_[*open_];
    const place mine{*open_, to.add(tag)};
    if (to.is_full()) seal(lock);
    return mine;
  }
  /// Seals the open slot.
  void seal(std::unique_lock<std::mutex>& lock) noexcept {
    const std::uint32_t number = *open_;
    open_.reset();
    ++busy_;
    if (!slots_[number].is_being_written()) publish(lock, number);
  }
  /// Publishes a sealed slot whose requests are all written. The caller has exclusive access to the
  /// slot.
  void publish(std::unique_lock<std::mutex>& lock, std::uint32_t number) noexcept {
    request_slot& full = slots_[number];
    if (full.has_holes()) {
      lock.unlock();
      full.close_up([&](std::size_t from, std::size_t to) { move_sample(number, from, to); });
      lock.lock();
    }
    if (full.is_empty()) {
      put_free(number, false);
    } else if (is_abandoned_) {
      return_unserved(lock, number);
    } else {
      ready_.push_back(number);
    }
    --busy_;
    is_closed_ ? changed_.notify_all() : changed_.notify_one();  // all: this may be the last batch
  }
  /// Returns the requests of an abandoned batch through `on_unserved`. The caller has exclusive
  /// access to the slot.
  void return_unserved(std::unique_lock<std::mutex>& lock, std::uint32_t number) noexcept {
    stats_.returned += tags(number).size();
    stats_.waiting -= tags(number).size();
    lock.unlock();
    if (options_.on_unserved) options_.on_unserved(tags(number), unserved::abandoned);
    lock.lock();
    put_free(number, false);
  }

  std::uint32_t take_ready() noexcept {
    const std::uint32_t number = ready_.front();
    ready_.erase(ready_.begin());
    return number;
  }
  std::pair<std::uint32_t, batch_info> hand_out() noexcept {
    const std::uint32_t number = take_ready();
    const std::size_t size = tags(number).size();
    stats_.handed_out += size;
    stats_.waiting -= size;
    const batch_info out{.epoch = 0, .batch = stats_.batches++, .size = size, .valid_size = size};
    return {number, out};
  }
  /// Frees the slot of a batch that was out.
  void add_free(std::uint32_t number, bool is_copied) noexcept {
    const std::lock_guard lock{mutex_};
    put_free(number, is_copied);
  }
  void put_free(std::uint32_t number, bool is_copied) noexcept {
    free_.push_back({number, is_copied});  // reserved
    room_.notify_all();
  }
  /// Wakes the threads that wait for a slot, because no slot will be free again.
  void wake_after_loss() noexcept {
    const std::lock_guard lock{mutex_};
    room_.notify_all();
  }
  [[noreturn, gnu::cold]] void throw_slots_lost() const {
    throw leases_exhausted(str_cat(
        {"batcher: all ", base::lost(), " slots are lost: the device failed to record when the ",
         "copies out of them end. Do not end a lease while its stream is "
         "being captured, and make a new batcher"}));
  }
  /// Copies the sample at position `from` to position `to`.
  void move_sample(std::uint32_t slot, std::size_t from, std::size_t to) const noexcept {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (move_field<Is>(base::data(slot), from, to), ...);
    }(std::make_index_sequence<Record::size>{});
  }
  template <std::size_t Index>
  void move_field(std::byte* slab, std::size_t from, std::size_t to) const noexcept {
    const std::size_t bytes = layout_.template sample_bytes<Index>();
    std::byte* const field = slab + layout_.template offset<Index>();
    std::memcpy(field + to * bytes, field + from * bytes, bytes);
  }
  bool has_ended() const noexcept { return is_closed_ && !open_ && busy_ == 0 && ready_.empty(); }

  fork_guard process_{true};
  batch_layout<Record> layout_;
  batcher_options options_;
  mutable std::mutex mutex_;      // guards all members below, except slots owned by one thread
  std::condition_variable room_;  // for submitters
  consumer_signal<> changed_;     // for consumers
  std::vector<request_slot> slots_;
  std::vector<free_slot> free_;       // in order of return
  std::vector<std::uint32_t> ready_;  // in order of completion
  std::optional<std::uint32_t> open_;
  std::size_t busy_ = 0;  // sealed slots that are not ready yet
  bool is_closed_ = false;
  bool is_abandoned_ = false;
  batcher_stats stats_;
};

/// A lease of a batch of requests of `Record`, without the views.
template <record_type Record, device Device>
class request_lease : public host_slot_lease<request_board<Record, Device>> {
  using base = host_slot_lease<request_board<Record, Device>>;

 public:
  using base::base;

  /// The tags of the requests, in the order of the samples. Valid as long as the lease.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    base::use();
    return base::slots_->tags(base::slot_);
  }
};

}  // namespace detail

/// A lease of a batch of requests in host memory, from a `batcher`. A lease can be moved, but not
/// copied. The destructor returns the slot for new requests. A lease may outlive the batcher and
/// keeps the memory alive. Only one thread at a time may use a lease, but any thread may destroy
/// it.
template <record_type Record, device Device>
using request_batch = lease<Record, detail::request_lease<Record, Device>>;

/// Collects requests of many threads into batches, for a model that answers many requests at once.
/// A `batch_source`.
///
///     ps::batcher<features> requests{device, {.max_batch_size = 32, .fill = 2ms, .depth = 4}};
///     requests.submit(7, [&](ps::sample<features> out) { ... });       // any thread
///     ps::transfer feed{requests, stream};
///     for (auto& batch : feed.epoch(0)) answer(batch.tags(), model(batch));
///
/// Submitters write their requests directly into the batch, concurrently. A batch is handed out
/// when it is full, or to a waiting consumer when `fill` has passed since its first request. If no
/// consumer is waiting, the batch continues to fill. Batches are handed out in order of completion.
/// Each request has a tag chosen by the program; `tags()` of the host batch and the device batch
/// has the tags in the order of the samples. This is the order of submission, except that the last
/// request replaces a request whose write has thrown.
///
/// `submit` waits while no slot is free. A slot is lost, and never used again, if the device fails
/// to record the end of the copy out of it and also fails to wait for that copy, which may still
/// read it. Therefore do not end a lease while its stream is being captured.
///
/// Each request is either handed to a consumer once, or its tag is returned through
/// `batcher_options::on_unserved`: after `abandon`, or if the feed ended before its consumer got
/// the batch. Requests that an ended feed has not taken remain for the next feed.
///
/// Thread-safe. Several threads may take batches, by `next` or by a separate feed for each thread.
/// A feed's leases may be passed to other threads, see `exhausted_action::wait`. The constructor
/// allocates all memory, `host_bytes()`, outside any `memory_budget`. Batches are numbered over the
/// batcher's lifetime, in epoch 0.
///
/// In a child made by fork(), a batcher and its batches may only be destroyed, which returns at
/// once and keeps the memory. Submitting and taking batches throws `std::logic_error`. The requests
/// stay in the parent.
///
/// @see examples/11_server.cpp, docs/serving.md
template <record_type Record, device Device = cpu_device>
class batcher {
  static_assert(Record::ragged_fields == 0,
                "penstock::batcher: a request gets its position before its length is known: set "
                "the field's extent to the maximum length");
  using board_type = detail::request_board<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = request_batch<Record, Device>;

  /// Allocates the memory for requests with these extents. Throws `option_error`, `layout_error`,
  /// `out_of_memory`, and the errors of the device.
  batcher(const Device& device, const record_extents<Record>& extents,
          const batcher_options& options = {})
      : board_(detail::shared_by_leases<board_type, typename Device::stream_ref>(
            options, device,
            batch_layout<Record>{extents, detail::checked_batcher(options).max_batch_size})),
        on_stop_(options.stop, close_board{board_.get()}) {}
  /// Allocates the memory for records whose extents are all fixed.
  explicit batcher(const Device& device, const batcher_options& options = {})
      : batcher(device, record_extents<Record>{}, options) {}
  batcher(batcher&&) = delete;
  /// Abandons remaining requests. Calls in progress on other threads end, as after `abandon`. No
  /// other call may begin. Batches that were handed out stay valid.
  ~batcher() { board_->close(true); }

  /// Submits a request: waits for a position, and then calls `write(sample<Record>)` on this
  /// thread. If `write` throws, the exception propagates and nothing is submitted. Throws
  /// `batcher_closed`, `leases_exhausted` if all slots are lost, and the errors of the device.
  /// Calls that are waiting throw the first two errors too.
  template <std::invocable<sample<Record>> Write>
  void submit(std::uint64_t tag, Write&& write) {
    static_cast<void>(submit_by((detail::deadline::max)(), tag, std::forward<Write>(write)));
  }
  /// Submits a request like `submit`, without waiting. Returns false if no position is free now.
  template <std::invocable<sample<Record>> Write>
  [[nodiscard]] bool try_submit(std::uint64_t tag, Write&& write) {
    return submit_by(detail::deadline{}, tag, std::forward<Write>(write));
  }
  /// Submits a request like `submit`, but waits for a position for at most `limit`, any
  /// `std::chrono::duration`. Returns false on timeout.
  template <class Rep, class Period, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_for(const std::chrono::duration<Rep, Period>& limit, std::uint64_t tag,
                                Write&& write) {
    return submit_by(detail::deadline_in(limit), tag, std::forward<Write>(write));
  }
  /// Submits a request like `submit_for`, until a time point of the steady clock.
  template <class Duration, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_until(
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& end, std::uint64_t tag,
      Write&& write) {
    return submit_by(detail::deadline_at(end), tag, std::forward<Write>(write));
  }

  /// Accepts no further requests. Submitted requests are still served, after which the loop over
  /// batches ends. May be called repeatedly.
  void close() noexcept { board_->close(false); }
  /// Accepts no further requests. Requests that no consumer or feed has taken yet are returned
  /// through `on_unserved`. Requests that are being written are returned when they are complete.
  void abandon() noexcept { board_->close(true); }
  /// Returns true if the batcher was closed.
  [[nodiscard]] bool was_closed() const noexcept { return board_->was_closed(); }

  /// Returns the statistics so far.
  [[nodiscard]] batcher_stats stats() const noexcept { return board_->stats(); }
  /// The host memory of the slots in bytes.
  [[nodiscard]] std::size_t host_bytes() const noexcept { return board_->bytes(); }

  /// The device that is fed.
  [[nodiscard]] const Device& device() const noexcept { return board_->device(); }
  /// The layout of the batches.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return board_->layout(); }
  /// Does nothing, because a batcher has no epochs.
  void start(const batch_position&, std::uint64_t) const noexcept {}
  /// Waits for the next batch and returns it. Returns an empty batch after `close`, when all
  /// batches are handed out.
  [[nodiscard]] batch_type next() { return take(true); }
  /// Returns the next batch if it is ready, otherwise an empty batch.
  [[nodiscard]] batch_type try_next() { return take(false); }
  /// Does nothing: the next feed gets the remaining requests.
  void stop() const noexcept {}
  /// Returns true if `next` would return an empty batch at once.
  [[nodiscard]] bool at_end() const noexcept { return board_->is_at_end(); }
  /// Takes back a batch of these requests that no consumer has received. Only a feed calls this.
  void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept {
    board_->take_back(tags);
  }

 private:
  struct close_board {
    board_type* board;
    void operator()() const noexcept { board->close(false); }
  };

  // The functions below keep the board alive: during `exit()` another thread may destroy this
  // object while they wait.
  template <class Write>
  bool submit_by(detail::deadline end, std::uint64_t tag, Write&& write) {
    const auto board = board_;
    const std::optional<typename board_type::place> at = board->reserve(tag, end);
    if (!at) return false;
    try {
      std::forward<Write>(write)(board->at(*at));
    } catch (...) {
      board->commit(*at, false);
      throw;
    }
    board->commit(*at, true);
    return true;
  }
  batch_type take(bool waits) {
    const auto board = board_;
    const auto next = board->next(waits);
    if (!next) return {};
    try {
      return batch_type{board, next->first, next->second};
    } catch (...) {  // no memory for a checked build's lease record
      board->take_back(board->tags(next->first));
      board->release(next->first);
      throw;
    }
  }

  std::shared_ptr<board_type> board_;  // shared by batches that are out
  std::stop_callback<close_board> on_stop_;
};

static_assert(batch_source<batcher<record<field<"x", float, 1>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
