// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
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
#include <penstock/core/version.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/slab.hpp>
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

/// Why accepted requests of a `batcher` are not served.
enum class unserved {
  abandoned,       ///< `batcher::abandon` was called, or the batcher destroyed, before their turn
  not_handed_out,  ///< the feed that took their batch ended first, or could not copy it
};

/// The options of a `batcher`. Bad values throw `option_error` at construction.
struct batcher_options {
  /// The maximum number of requests in a batch. Triton's `max_batch_size`, TorchServe's
  /// `batch_size`.
  std::size_t most = 32;

  /// How long the first request of a batch waits for others at most: a batch is handed out when it
  /// is full, or when a thread asks for one after this time. 0: each call gets what is there.
  /// Triton's `max_queue_delay_microseconds`, TorchServe's `max_batch_delay`.
  std::chrono::nanoseconds fill = std::chrono::milliseconds{2};

  /// How long before the end of `fill` a waiting thread starts to spin. Sleeping threads wake up
  /// late: by 50 us if the core is awake, occasionally by a millisecond if it sleeps and is
  /// virtual. 0: no spinning. One thread at a time spins; this costs as much processor time for
  /// each batch that is not full in time.
  std::chrono::nanoseconds spin{0};

  /// Slots for batches in host memory: one being filled, those that are ready, and those being
  /// copied. `submit` waits while none is free.
  std::size_t depth = 4;

  /// Called with the tags of accepted requests that are not served, on the thread that detects it:
  /// one that abandons, one whose write ends after that, or the feed's. Must not throw.
  std::function<void(std::span<const std::uint64_t>, unserved)> on_unserved = {};

  /// Closes the batcher when a stop is requested; requests submitted by then are still served.
  std::stop_token stop = {};
};

/// Statistics of a `batcher`, in requests. While no call is in progress, `accepted = handed_out +
/// returned + waiting`.
struct batcher_stats {
  /// Written, so they will be served or returned.
  std::uint64_t accepted = 0;
  std::uint64_t failed = 0;      ///< writes that threw, as their submitters know
  std::uint64_t handed_out = 0;  ///< in batches handed to consumers
  std::uint64_t returned = 0;    ///< not served, see `unserved`
  std::uint64_t waiting = 0;     ///< in batches that are being filled or ready
  std::uint64_t batches = 0;     ///< handed out, including those that a feed returned
};

namespace detail {

inline const batcher_options& checked_batcher(const batcher_options& options) {
  const auto require_in = [](const char* option, std::size_t value, std::size_t most) {
    if (value < 1 || value > most) refuse_option(option, {value, " is not in 1..", most});
  };
  require_in("most", options.most, std::size_t{1} << 20);
  require_in("depth", options.depth, 1024);
  const auto require_time = [](const char* option, std::chrono::nanoseconds value) {
    if (value.count() < 0) {
      refuse_option(option, {"must not be below 0, is ", value.count(), " ns"});
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
  /// Room for `most` requests.
  explicit request_slot(std::size_t most) : tags_(most), is_hole_(most) {}

  deadline due;  ///< when the batch is handed out even if it is not full

  /// Begins an empty batch, which is due at `end`.
  void begin(deadline end) noexcept {
    count_ = 0;
    due = end;
  }
  /// Adds a request that is about to be written; returns its position.
  [[nodiscard]] std::size_t add(std::uint64_t tag) noexcept {
    tags_[count_] = tag;
    ++writing_;
    return count_++;
  }
  /// Notes that a request was written, or that its write has thrown.
  void note_end(std::size_t position, bool is_written) noexcept {
    is_hole_[position] = is_written ? 0 : 1;
    holes_ += is_written ? 0 : 1;
    --writing_;
  }

  [[nodiscard]] bool is_full() const noexcept { return count_ == tags_.size(); }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_being_written() const noexcept { return writing_ != 0; }
  [[nodiscard]] bool has_holes() const noexcept { return holes_ != 0; }
  /// The tags, one per request.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    return {tags_.data(), count_};
  }

  /// Fills the holes of failed writes with the last requests: `move(from, to)`.
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
  std::size_t count_ = 0;              // positions taken
  std::size_t writing_ = 0;            // of these, still being written
  std::size_t holes_ = 0;
};

/// Manages the slots of a `batcher`: which threads may use which slot, and when.
///
/// A slot is free, open (accepts requests), sealed (accepts no more; some are still being written),
/// ready, or out, and free again after the copy out of it, or lost. At most one is open.
///
/// One mutex guards everything. It is not held while a request is written, holes are filled, a copy
/// is waited for, or user code runs. No wake-up is lost: conditions are checked and changed under
/// the mutex, and notifications follow the change. A batch that becomes ready wakes one consumer,
/// as it is for one; the others know the due time of the open slot, since its opening has woken all
/// of them.
template <class Memory>
class request_board {
 public:
  /// The place of a request.
  struct place {
    std::uint32_t slot;
    std::size_t position;
  };

  /// Passes the remaining arguments to the memory.
  template <class... Arguments>
  explicit request_board(const batcher_options& options, const Arguments&... arguments)
      : memory_(arguments..., options.depth),
        options_(options),
        changed_(options.spin),
        slots_(options.depth, request_slot{options.most}) {
    ready_.reserve(options.depth);
    free_.reserve(options.depth);
    for (std::uint32_t slot = 0; slot < options.depth; ++slot) free_.push_back({slot, false});
  }
  request_board(request_board&&) = delete;

  [[nodiscard]] Memory& memory() noexcept { return memory_; }
  // For leases.
  [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept { return memory_.data(slot); }
  [[nodiscard]] const auto& layout() const noexcept { return memory_.layout(); }

  /// Waits for a place for a request; `std::nullopt` if there is none by `end`. Throws
  /// `batcher_closed`, `leases_exhausted` if all slots are lost, and what the device throws.
  [[nodiscard]] std::optional<place> reserve(std::uint64_t tag, deadline end) {
    std::unique_lock lock{mutex_};
    for (;;) {
      if (is_closed_) throw batcher_closed("batcher: it is closed, and takes no request any more");
      if (lost_ == slots_.size()) throw_slots_lost();
      if (!open_) open_free();
      if (open_) return take_place(lock, tag);
      if (end == forever && free_.empty()) {
        room_.wait(lock);
      } else if (const auto now = clock::now(); now >= end) {
        return std::nullopt;
      } else {
        // The end of a copy wakes no one, so poll if only that is missing.
        room_.wait_until(lock, free_.empty() ? end : (std::min)(end, now + look_again));
      }
    }
  }

  /// Notes that the request at `at` was written, or that its write has thrown.
  void commit(const place& at, bool is_written) noexcept {
    std::unique_lock lock{mutex_};
    request_slot& in = slots_[at.slot];
    in.note_end(at.position, is_written);
    ++(is_written ? stats_.accepted : stats_.failed);
    if (is_written) ++stats_.waiting;
    if (!in.is_being_written() && open_ != at.slot) publish(lock, at.slot);
  }

  /// The slot and info of the next batch. `std::nullopt` at the end and, unless `waits`, while none
  /// is ready.
  [[nodiscard]] std::optional<std::pair<std::uint32_t, batch_info>> next(bool waits) noexcept {
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

  /// The tags of a batch that is out, for its holder.
  [[nodiscard]] auto tags(std::uint32_t number) const noexcept { return slots_[number].tags(); }

  /// Returns a batch that was out: its slot is free now, or after the recorded copy.
  void give_back(std::uint32_t number, bool behind_copy) noexcept {
    const std::lock_guard lock{mutex_};
    if (!behind_copy) memory_.renew(number);
    add_free(number, behind_copy);
  }
  /// Returns a batch that was out: its slot is free once `stream` gets here. Throws what the device
  /// throws; the slot is returned then too, after a wait for the stream, or else it is lost.
  template <class Stream>
  void give_back_after(std::uint32_t number, const Stream& stream) {
    try {
      memory_.mark_copy(number, stream);
    } catch (...) {
      memory_.settle_copies(stream) ? give_back(number, false) : lose_slot();
      throw;
    }
    give_back(number, true);
  }
  /// Reports that a batch with these tags, which was handed out, has reached no consumer.
  void take_back(std::span<const std::uint64_t> tags) noexcept {
    {
      const std::lock_guard lock{mutex_};
      stats_.handed_out -= tags.size();
      stats_.returned += tags.size();
    }
    if (options_.on_unserved) options_.on_unserved(tags, unserved::not_handed_out);
  }

  /// Accepts no further requests. Existing ones are served, or returned if the batcher is
  /// abandoned; those being written as soon as they are complete.
  void close(bool abandons) noexcept {
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

  [[nodiscard]] bool is_at_end() const noexcept {
    const std::lock_guard lock{mutex_};
    return has_ended();
  }
  [[nodiscard]] bool was_closed() const noexcept {
    const std::lock_guard lock{mutex_};
    return is_closed_;
  }
  [[nodiscard]] batcher_stats stats() const noexcept {
    const std::lock_guard lock{mutex_};
    return stats_;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr deadline forever = (deadline::max)();
  static constexpr std::chrono::microseconds look_again{100};

  /// A slot that was given back, maybe with a copy in flight, whose end the memory tracks.
  struct free_slot {
    std::uint32_t number;
    bool is_copied;
  };

  /// Opens the first free slot that no copy is reading, if there is one. Throws what the device
  /// throws.
  void open_free() {
    const auto first = std::ranges::find_if(free_, [&](const free_slot& one) {
      return !one.is_copied || memory_.is_drained(one.number);
    });
    if (first == free_.end()) return;
    open_ = first->number;
    if (first->is_copied) memory_.renew(first->number);
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
  /// Publishes a sealed slot whose requests are all written; the caller has exclusive access.
  void publish(std::unique_lock<std::mutex>& lock, std::uint32_t number) noexcept {
    request_slot& full = slots_[number];
    if (full.has_holes()) {
      lock.unlock();
      full.close_up(
          [&](std::size_t from, std::size_t to) { memory_.move_sample(number, from, to); });
      lock.lock();
    }
    if (full.is_empty()) {
      add_free(number, false);
    } else if (is_abandoned_) {
      return_unserved(lock, number);
    } else {
      ready_.push_back(number);
    }
    --busy_;
    is_closed_ ? changed_.notify_all() : changed_.notify_one();  // all: maybe the last one
  }
  /// Returns the requests of an abandoned batch; the caller has exclusive access.
  void return_unserved(std::unique_lock<std::mutex>& lock, std::uint32_t number) noexcept {
    stats_.returned += tags(number).size();
    stats_.waiting -= tags(number).size();
    lock.unlock();
    if (options_.on_unserved) options_.on_unserved(tags(number), unserved::abandoned);
    lock.lock();
    add_free(number, false);
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
    memory_.name_batch(number, out);
    return {number, out};
  }
  void add_free(std::uint32_t number, bool behind_copy) noexcept {
    free_.push_back({number, behind_copy});  // reserved
    room_.notify_all();
  }
  /// A slot that was out is never used again.
  void lose_slot() noexcept {
    const std::lock_guard lock{mutex_};
    ++lost_;
    room_.notify_all();  // if it was the last one, threads wait in vain
  }
  [[noreturn, gnu::cold]] void throw_slots_lost() const {
    throw leases_exhausted(
        joined({"batcher: all ", lost_, " slots are lost: the device refused to say when the ",
                "copies out of them end. End no lease while its stream is being captured; make ",
                "the batcher anew"}));
  }
  bool has_ended() const noexcept { return is_closed_ && !open_ && busy_ == 0 && ready_.empty(); }

  Memory memory_;
  batcher_options options_;
  mutable std::mutex mutex_;      // guards all below, except slots owned by one thread
  std::condition_variable room_;  // for submitters
  consumer_signal<> changed_;     // for consumers
  std::vector<request_slot> slots_;
  std::vector<free_slot> free_;       // in order of return
  std::vector<std::uint32_t> ready_;  // in order of completion
  std::optional<std::uint32_t> open_;
  std::size_t busy_ = 0;  // sealed slots that are not ready yet
  std::size_t lost_ = 0;  // slots that are never used again
  bool is_closed_ = false;
  bool is_abandoned_ = false;
  batcher_stats stats_;
};

/// The memory of a `batcher`: one pinned slab divided into slots of one batch each, with an event
/// for the last copy out of each slot. Does not track which slots are in use.
template <record_type Record, device Device>
class request_memory {
 public:
  using record_type = Record;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  /// Throws `out_of_memory`, and what the device throws.
  request_memory(const Device& device, const batch_layout<Record>& layout, std::size_t count)
      : device_(device),
        layout_(layout),
        memory_(device, bytes_of_slots("pinned", layout.bytes(), count), memory_kind::pinned,
                layout.bytes()) {
    drained_.reserve(count);
    for (std::size_t slot = 0; slot < count; ++slot) {
      drained_.push_back(device.make_event(event_wait::by_host));
    }
    memory_.addresses().name_fields(layout_);
  }
  request_memory(request_memory&&) = delete;
  /// Frees the memory after the last copy out of it.
  ~request_memory() {
    for (const auto& end : drained_) settle(device_, end);
    if (has_lost_.load(std::memory_order_acquire)) settle_everything(device_);
  }

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] bool pinned() const noexcept { return memory_.pinned(); }
  [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept {
    return memory_.slot(slot, layout_.bytes());
  }

  /// In a checked build: a lease of `batch` begins, in `slot`.
  void name_batch(std::uint32_t slot, const batch_info& batch) noexcept {
    memory_.addresses().name_batch(slot, batch);
  }
  /// In a checked build: nothing uses the slot any more, and its addresses are over.
  void renew(std::uint32_t slot) noexcept { memory_.addresses().renew(slot); }

  /// The place for a request.
  [[nodiscard]] sample<Record> at(std::uint32_t slot, std::size_t position) const noexcept {
    return {data(slot), layout_, position};
  }
  /// Copies the sample at position `from` to position `to`.
  void move_sample(std::uint32_t slot, std::size_t from, std::size_t to) const noexcept {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (move_field<Is>(data(slot), from, to), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// Records an event after a copy out of the slot on `stream`. Throws what the device throws.
  void mark_copy(std::uint32_t slot, stream_ref stream) {
    require_still_usable(device_, stream);  // a record that is captured tells no thread anything
    device_.record(drained_[slot], stream);
  }
  /// Waits for the copies on `stream`, whose end was not recorded. Returns whether that succeeded:
  /// otherwise nothing tells when they end, and the memory waits for all work of the device before
  /// it goes.
  [[nodiscard]] bool settle_copies(stream_ref stream) noexcept {
    if (settle(device_, stream)) return true;
    has_lost_.store(true, std::memory_order_release);
    return false;
  }
  /// Whether the last copy out of the slot is complete.
  [[nodiscard]] bool is_drained(std::uint32_t slot) const {
    return device_.is_complete(drained_[slot]);
  }

 private:
  template <std::size_t Index>
  void move_field(std::byte* slab, std::size_t from, std::size_t to) const noexcept {
    const std::size_t bytes = layout_.template sample_bytes<Index>();
    std::byte* const field = slab + layout_.template offset<Index>();
    std::memcpy(field + to * bytes, field + from * bytes, bytes);
  }

  Device device_;
  batch_layout<Record> layout_;
  slab<Device> memory_;
  std::vector<typename Device::event_type> drained_;
  std::atomic<bool> has_lost_{false};  // a slot that copies may still read
};

}  // namespace detail

/// A lease of a batch of requests in host memory, from a `batcher`. Move-only; its destruction
/// returns the slot for new requests. It may outlive the batcher and keeps the memory alive. One
/// thread at a time; may be destroyed on any thread.
template <record_type Record, device Device>
class request_batch
    : public lease<Record, slot_lease<detail::request_board<detail::request_memory<Record, Device>>,
                                      std::uint32_t>> {
  using board_type = detail::request_board<detail::request_memory<Record, Device>>;
  using base = lease<Record, slot_lease<board_type, std::uint32_t>>;
  using base::guard_;
  using base::slot_;
  using base::slots_;

 public:
  using device_type = Device;

  /// An empty lease.
  request_batch() = default;
  /// A lease of `slot`, which holds the batch.
  request_batch(std::shared_ptr<board_type> board, std::uint32_t slot, const batch_info& info)
      : base(std::move(board), slot, info, detail::lease_guard{info.epoch, info.batch}) {}
  request_batch(request_batch&&) noexcept = default;
  /// Copying, as `auto batch` in a loop would, does not compile; the message explains it.
  template <std::same_as<request_batch> Lease>
  request_batch(Lease&) {  // NOLINT: implicit, as a copy is
    detail::refuse_copy_of_lease<Lease>();
  }
  request_batch& operator=(request_batch&& other) noexcept {
    if (this != &other) {
      release();
      base::operator=(std::move(other));
    }
    return *this;
  }
  ~request_batch() { release(); }

  /// The tags of the requests, in the order of the samples. Valid as long as the lease.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    base::use();
    return slots_->tags(slot_);
  }
  /// Whether the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept {
    base::use();
    return slots_->memory().pinned();
  }

  /// Returns the slot once `stream` has done the work queued so far, for a copy out of the slot
  /// that is in flight. Leaves the lease empty. Throws what the device throws, as where `stream` is
  /// being captured; the slot is returned then too, after a wait for the stream. Where the device
  /// refuses that as well, the slot is lost.
  void release_after(typename Device::stream_ref stream) {
    base::use();
    guard_.end();
    const auto board = std::move(slots_);
    board->give_back_after(slot_, stream);
  }

 private:
  void release() noexcept {
    if (slots_ == nullptr) return;
    guard_.end();
    slots_->give_back(slot_, false);
    slots_.reset();
  }
};

/// Collects requests of many threads into batches, for a model that answers many at once. A
/// `batch_source`.
///
///     ps::batcher<features> requests{device, {.most = 32, .fill = 2ms, .depth = 4}};
///     requests.submit(7, [&](ps::sample<features> out) { ... });       // any thread
///     ps::transfer feed{requests, stream};
///     for (auto& batch : feed.epoch(0)) answer(batch.tags(), model(batch));
///
/// Submitters write their requests directly into the batch, concurrently. A batch is handed out
/// when it is full, or to a waiting consumer when `fill` has passed since its first request; a
/// later call gets a fuller batch. Batches are handed out in order of completion. Each request has
/// a tag chosen by the program; `tags()` of the host batch and the device batch has them in the
/// order of the samples. This is the order of submission, except that the last request takes the
/// place of one whose write has thrown.
///
/// `submit` waits while no slot is free. A slot is lost, and never used again, if the device
/// refuses to record the end of the copy out of it and to wait for that copy, which may still read
/// it. So end no lease while its stream is being captured.
///
/// Each request is either handed to a consumer once, or its
/// tag is returned through `batcher_options::on_unserved`: after `abandon`, or if the feed ended
/// before its consumer got the batch. Requests that an ended feed has not taken remain for the next
/// one.
///
/// Thread-safe. Several threads may take batches, by `next` or by a feed each. A feed's leases may
/// be passed to other threads, see `held_action::wait`. All memory,
/// `host_bytes()`, is taken at construction, outside any `memory_budget`. Batches are numbered over
/// the batcher's lifetime, in epoch 0.
///
/// @see examples/11_server.cpp, docs/serving.md
template <record_type Record, device Device = cpu_device>
class batcher {
  static_assert(Record::ragged_fields == 0,
                "penstock::batcher: a request takes its place before its length is known: give the "
                "field the longest length as its extent");
  using board_type = detail::request_board<detail::request_memory<Record, Device>>;

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = request_batch<Record, Device>;

  /// Allocates the memory for requests with these extents. Throws `option_error`, `layout_error`,
  /// `out_of_memory`, and what the device throws.
  batcher(const Device& device, const record_extents<Record>& extents,
          const batcher_options& options = {})
      : board_(detail::shared_by_leases<board_type, typename Device::stream_ref>(
            options, device, batch_layout<Record>{extents, detail::checked_batcher(options).most})),
        on_stop_(options.stop, close_board{board_.get()}) {}
  /// For records whose extents are all fixed.
  explicit batcher(const Device& device, const batcher_options& options = {})
      : batcher(device, record_extents<Record>{}, options) {}
  batcher(batcher&&) = delete;
  /// Abandons remaining requests. No other call may be in progress; batches that were handed out
  /// stay valid.
  ~batcher() { board_->close(true); }

  /// Submits a request: waits for a place, then calls `write(sample<Record>)` on this thread. If
  /// `write` throws, the exception propagates and there is no request. Throws `batcher_closed`, and
  /// `leases_exhausted` if all slots are lost, both also from calls that are waiting, and what the
  /// device throws.
  template <std::invocable<sample<Record>> Write>
  void submit(std::uint64_t tag, Write&& write) {
    write_to(*board_->reserve(tag, (detail::deadline::max)()), std::forward<Write>(write));
  }
  /// As `submit`, without waiting; false if there is no place now.
  template <std::invocable<sample<Record>> Write>
  [[nodiscard]] bool try_submit(std::uint64_t tag, Write&& write) {
    return write_if(board_->reserve(tag, detail::deadline{}), std::forward<Write>(write));
  }
  /// As `submit`, waiting for a place for at most `limit`, any `std::chrono::duration`; false on
  /// timeout.
  template <class Rep, class Period, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_for(const std::chrono::duration<Rep, Period>& limit, std::uint64_t tag,
                                Write&& write) {
    return write_if(board_->reserve(tag, detail::deadline_in(limit)), std::forward<Write>(write));
  }
  /// As `submit_for`, until a time point of the steady clock.
  template <class Duration, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_until(
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& end, std::uint64_t tag,
      Write&& write) {
    return write_if(board_->reserve(tag, detail::deadline_at(end)), std::forward<Write>(write));
  }

  /// Accepts no further requests; those submitted are still served, then batches end. May be called
  /// repeatedly.
  void close() noexcept { board_->close(false); }
  /// Accepts no further requests; those that no consumer or feed has yet are returned through
  /// `on_unserved`, those being written as soon as they are complete.
  void abandon() noexcept { board_->close(true); }
  /// Whether it was closed.
  [[nodiscard]] bool was_closed() const noexcept { return board_->was_closed(); }

  /// Statistics so far.
  [[nodiscard]] batcher_stats stats() const noexcept { return board_->stats(); }
  /// The host memory of the slots in bytes.
  [[nodiscard]] std::size_t host_bytes() const noexcept { return board_->memory().bytes(); }

  /// The device that is fed.
  [[nodiscard]] const Device& device() const noexcept { return board_->memory().device(); }
  /// The layout of the batches.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return board_->layout(); }
  /// Does nothing: there are no epochs.
  void start(const batch_position&, std::uint64_t) const noexcept {}
  /// The next batch, waiting for it; an empty one after `close`, when all are handed out.
  [[nodiscard]] batch_type next() { return taken(board_->next(true)); }
  /// The next batch if it is ready.
  [[nodiscard]] batch_type try_next() { return taken(board_->next(false)); }
  /// Does nothing: remaining requests are for the next feed.
  void stop() const noexcept {}
  /// Whether `next` would return an empty batch at once.
  [[nodiscard]] bool at_end() const noexcept { return board_->is_at_end(); }
  /// For a feed: returns a batch of these requests that was handed to no consumer.
  void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept {
    board_->take_back(tags);
  }

 private:
  using place = typename board_type::place;
  struct close_board {
    board_type* board;
    void operator()() const noexcept { board->close(false); }
  };

  template <class Write>
  void write_to(const place& at, Write&& write) {
    try {
      std::forward<Write>(write)(board_->memory().at(at.slot, at.position));
    } catch (...) {
      board_->commit(at, false);
      throw;
    }
    board_->commit(at, true);
  }
  template <class Write>
  bool write_if(const std::optional<place>& at, Write&& write) {
    if (at) write_to(*at, std::forward<Write>(write));
    return at.has_value();
  }

  batch_type taken(const std::optional<std::pair<std::uint32_t, batch_info>>& next) {
    if (!next) return {};
    try {
      return batch_type{board_, next->first, next->second};
    } catch (...) {  // no memory for a checked build's lease record
      board_->take_back(board_->tags(next->first));
      board_->give_back(next->first, false);
      throw;
    }
  }

  std::shared_ptr<board_type> board_;  // batches that are out share it
  std::stop_callback<close_board> on_stop_;
};

static_assert(batch_source<batcher<record<field<"x", float, 1>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
