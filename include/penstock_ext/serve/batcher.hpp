// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
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
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slot_ring.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock_ext/intake/support/intake_board.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a `batcher` rejects a request, because `close` was called or a stop was requested.
class [[gnu::visibility("default")]] batcher_closed : public error {
 public:
  using error::error;
};

/// The reason why accepted requests of a `batcher` are not served.
enum class unserved {
  abandoned,       ///< the batcher was abandoned or destroyed before it delivered the requests
  not_handed_out,  ///< the feed took the batch, but ended, failed to copy it, or skipped it
};

/// The priority of a `batcher` request.
enum class request_priority : unsigned char {
  normal,
  high,  ///< batched with other high-priority requests, and delivered before all others
};

/// A request that is about to be written to a `batcher`. Implicitly convertible from a tag. The
/// lengths are referenced as by `length_list`, so pass the object to `submit` in the same
/// expression.
struct request_info {
  /// Creates a request with this tag. `lengths` contains a value for each ragged field.
  constexpr request_info(std::uint64_t request_tag, length_list request_lengths = {},
                         request_priority request_level = request_priority::normal) noexcept
      : tag(request_tag), lengths(request_lengths), priority(request_level) {}

  std::uint64_t tag;          ///< a value that is returned with the batch
  length_list lengths;        ///< length of each ragged field, in field order
  request_priority priority;  ///< the batch that the request joins
};

/// The options of a `batcher`, whose constructor throws `option_error` for invalid values.
struct batcher_options {
  /// The maximum number of requests in a batch. Called `max_batch_size` in Triton, and `batch_size`
  /// in TorchServe.
  std::size_t max_batch_size = 32;

  /// The maximum time that the first request of a batch waits for others. A batch is delivered when
  /// it is full, or when a thread requests a batch after this time. If 0, each call returns the
  /// requests that are already available. Called `max_queue_delay_microseconds` in Triton, and
  /// `max_batch_delay` in TorchServe.
  std::chrono::nanoseconds fill = std::chrono::milliseconds{2};

  /// The time before the end of `fill` at which a waiting thread starts to spin. Sleeping threads
  /// wake up late: by 50 us if the core is awake, and occasionally by a millisecond if the core is
  /// asleep and virtual. If 0, threads never spin. Otherwise one thread at a time spins, which
  /// costs up to this much processor time for each batch that is not full in time.
  std::chrono::nanoseconds spin{0};

  /// The number of slots in host memory, for the batch being filled, ready batches, and batches
  /// being copied. `submit` waits while no slot is free.
  std::size_t depth = 4;

  /// The allowed batch sizes, in increasing order, up to `max_batch_size`. Other batches are padded
  /// to the next size with zeros, and with values of length 0 in ragged fields. `valid()` of the
  /// batch returns the number of requests. If empty, batches are not padded. Called
  /// `allowed_batch_sizes` in TensorFlow Serving.
  std::vector<std::size_t> allowed_batch_sizes = {};

  /// The number of free slots, less than `depth`, that only a request of `request_priority::high`
  /// may use. Requests of different priorities never share a slot, so a batcher with two priorities
  /// needs a `depth` of 2 or more.
  std::size_t reserved_slots = 0;

  /// Called with the tags of accepted requests that are not served. Runs on the thread that detects
  /// this, which is a thread that calls `abandon`, a thread that finishes a write later, or a
  /// consumer thread. Several threads may call the function concurrently, and a late writer may
  /// call it after the batcher is destroyed. Must not throw.
  std::function<void(std::span<const std::uint64_t>, unserved)> on_unserved = {};

  /// Limits the memory allocated by the batcher and other users of the budget.
  std::optional<memory_budget> budget = {};

  /// Closes the batcher when a stop is requested. Requests submitted earlier are still served.
  std::stop_token stop = {};
};

/// The statistics of a `batcher`, in requests. While no call is in progress, `accepted` is the sum
/// of `handed_out`, `returned` and `waiting`.
struct batcher_stats {
  /// Requests that were written, and will therefore be served or returned.
  std::uint64_t accepted = 0;
  std::uint64_t failed = 0;      ///< writes that threw an exception to the submitter
  std::uint64_t handed_out = 0;  ///< requests in batches delivered to consumers
  std::uint64_t returned = 0;    ///< requests not served (see `unserved`)
  std::uint64_t waiting = 0;     ///< requests in batches that are being filled or ready
  std::uint64_t batches = 0;     ///< batches delivered, including those that a feed returned
};

namespace detail {

inline const batcher_options& checked_batcher(const batcher_options& options) {
  const auto require_in = [](const char* option, std::size_t value, std::size_t min,
                             std::size_t max) {
    if (value < min || value > max)
      throw_option_error(option, {value, " is not in ", min, "..", max});
  };
  require_in("max_batch_size", options.max_batch_size, 1, std::size_t{1} << 20);
  require_in("depth", options.depth, 1, 1024);
  require_in("reserved_slots", options.reserved_slots, 0, options.depth - 1);
  std::size_t before = 0;
  for (const std::size_t size : options.allowed_batch_sizes) {
    if (size <= before) {
      throw_option_error("allowed_batch_sizes",
                         {"must increase, but has ", size, " after ", before});
    }
    before = size;
  }
  if (before != 0 && before != options.max_batch_size) {
    throw_option_error("allowed_batch_sizes", {"must end with max_batch_size, ",
                                               options.max_batch_size, ", but ends with ", before});
  }
  const auto require_time = [](const char* option, std::chrono::nanoseconds value) {
    if (value.count() < 0) {
      throw_option_error(option, {"must not be negative, but is ", value.count(), " ns"});
    }
  };
  require_time("fill", options.fill);
  require_time("spin", options.spin);
  return options;
}

/// The tags and the progress of the requests in a `batcher` slot. Not thread-safe.
class request_list {
 public:
  /// Allocates room for `max` requests.
  explicit request_list(std::size_t max) : tags_(max), is_hole_(max) {}

  /// Begins an empty batch.
  void begin() noexcept { count_ = 0; }
  /// Adds a request that is about to be written. Returns its position.
  [[nodiscard]] std::size_t add(std::uint64_t tag) noexcept {
    tags_[count_] = tag;
    ++writing_;
    return count_++;
  }
  /// Records that a request was written, or that its write threw.
  void on_end(std::size_t position, bool is_written) noexcept {
    is_hole_[position] = is_written ? 0 : 1;
    holes_ += is_written ? 0 : 1;
    --writing_;
  }

  [[nodiscard]] bool is_full() const noexcept { return count_ == tags_.size(); }
  [[nodiscard]] bool is_being_written() const noexcept { return writing_ != 0; }
  [[nodiscard]] bool has_holes() const noexcept { return holes_ != 0; }
  /// Returns the tags, one per request.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    return {tags_.data(), count_};
  }

  /// Closes the holes of failed writes. Moves each later request forward by `move(from, to)`.
  template <class Move>
  void close_up(Move move) noexcept {
    std::size_t to = 0;
    for (std::size_t from = 0; from < count_; ++from) {
      if (is_hole_[from] != 0) continue;
      if (from != to) move(from, to);
      tags_[to++] = tags_[from];
    }
    count_ = to;
    holes_ = 0;
  }

 private:
  std::vector<std::uint64_t> tags_;
  std::vector<std::uint8_t> is_hole_;  // 1 if the writer of the position threw
  std::size_t count_ = 0;              // number of positions taken
  std::size_t writing_ = 0;            // number of positions that are still being written
  std::size_t holes_ = 0;
};

/// Calls `use` with the index of each field, as a template argument.
template <record_type Record, class Use>
void for_each_field(const Use& use) noexcept {
  [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    (use.template operator()<Is>(), ...);
  }(std::make_index_sequence<Record::size>{});
}

/// Sets the fixed fields of the samples from `begin` to `end` to zero.
template <record_type Record>
void zero_samples(std::byte* slab, const batch_layout<Record>& layout, std::size_t begin,
                  std::size_t end) noexcept {
  for_each_field<Record>([&]<std::size_t Index>() {
    if constexpr (!Record::template field_at<Index>::is_ragged) {
      const std::size_t bytes = layout.template sample_bytes<Index>();
      std::memset(slab + layout.template offset<Index>() + begin * bytes, 0, (end - begin) * bytes);
    }
  });
}

/// Moves a sample from position `from` to the earlier position `to`. In ragged fields, the values
/// of the preceding sample must end at the offset of position `to`.
template <record_type Record>
void move_sample(std::byte* slab, const batch_layout<Record>& layout, std::size_t from,
                 std::size_t to) noexcept {
  for_each_field<Record>([&]<std::size_t Index>() {
    using field = typename Record::template field_at<Index>;
    std::byte* const values = slab + layout.template offset<Index>();
    if constexpr (field::is_ragged) {
      constexpr std::size_t bytes = sizeof(typename field::value_type);
      auto* const ends =
          reinterpret_cast<std::int32_t*>(slab + layout.template offsets_at<Index>());
      const std::int32_t length = ends[from + 1] - ends[from];
      std::memmove(values + static_cast<std::size_t>(ends[to]) * bytes,
                   values + static_cast<std::size_t>(ends[from]) * bytes,
                   static_cast<std::size_t>(length) * bytes);
      ends[to + 1] = ends[to] + length;
    } else {
      const std::size_t bytes = layout.template sample_bytes<Index>();
      std::memcpy(values + to * bytes, values + from * bytes, bytes);
    }
  });
}

/// An intake whose batches are written by several producers, request by request.
///
/// For each priority, at most one slot is open and accepts requests. A slot is sealed when it is
/// full or due, and published when all its requests are written.
///
/// A mutex guards all members. The mutex of the base class is locked after this mutex. No thread
/// holds a mutex while it writes a request, closes holes, waits for a slot, or runs user code. For
/// each priority, one thread waits for a free slot, and the other submitters wait for `opened_`. No
/// wake-up is lost, because conditions are checked and changed under the mutex, and notifications
/// follow the change.
template <record_type Record, device Device>
class request_board : public intake_board<Record, Device> {
  using base = intake_board<Record, Device>;
  using clock = std::chrono::steady_clock;

 public:
  using slot_number = typename base::slot_number;
  /// The position of a request.
  struct place {
    slot_number slot;
    std::size_t position;
  };

  /// Allocates the memory. Throws `pinned_budget_exceeded`, `out_of_memory`, and errors from the
  /// device.
  request_board(const batcher_options& options, const Device& device,
                const batch_layout<Record>& layout)
      : request_board(
            options, device, layout,
            {device, layout.bytes(), options.depth, options.budget, "depth or max_batch_size"}) {}

  /// Returns the memory of a request at its position.
  [[nodiscard]] sample<Record> at(const place& of) const noexcept {
    return {base::data(of.slot), base::layout(), of.position};
  }

  /// Reserves a position for a request. Waits until `end` at the latest. Returns `std::nullopt` on
  /// timeout. Throws `batcher_closed`, `intake_error` if the lengths exceed the capacity of a
  /// batch, `leases_exhausted` if all slots are lost, and errors from the device.
  [[nodiscard]] std::optional<place> reserve(const request_info& request, deadline end) {
    base::require_own();
    base::require_room({.lengths = request.lengths});
    std::unique_lock lock{mutex_};
    open_batch& open = open_[request.priority == request_priority::high ? 1 : 0];
    for (;;) {
      if (is_closed_) throw batcher_closed("batcher: it is closed and accepts no more requests");
      if (open.slot) {
        if (const auto at = take_place(lock, open, request)) return at;
      } else if (open.is_opening && end == base::forever) {
        opened_.wait(lock);
      } else if (const auto slot = try_open(open)) {
        begin(open, *slot);
      } else if (end != base::forever && clock::now() >= end) {
        return std::nullopt;
      } else if (open.is_opening) {
        opened_.wait_until(lock, end);
      } else {
        wait_for_slot(lock, open, end);
      }
    }
  }

  /// Records that the request at `at` was written, or that its write threw.
  void on_written(const place& at, bool is_written) noexcept {
    if (base::is_in_child()) return;
    std::unique_lock lock{mutex_};
    request_list& in = slots_[at.slot];
    in.on_end(at.position, is_written);
    ++(is_written ? stats_.accepted : stats_.failed);
    if (is_written) ++stats_.waiting;
    if (!in.is_being_written() && !is_open(at.slot)) finish(lock, at.slot);
  }

  /// Returns the slot and info of the next batch. Returns `std::nullopt` at the end and, unless
  /// `waits` is true, if no batch is ready. Throws `std::logic_error` in a child created by fork().
  [[nodiscard]] std::optional<std::pair<slot_number, batch_info>> next(bool waits) {
    seal_urgent();
    const auto taken = base::next(waits, [this]() noexcept { seal_due(); });
    if (taken) {
      const std::lock_guard lock{mutex_};
      stats_.handed_out += taken->second.valid_size;
      stats_.waiting -= taken->second.valid_size;
      ++stats_.batches;
    }
    return taken;
  }

  /// Returns the tags of a delivered batch. Only the holder of the batch may call this.
  [[nodiscard]] auto tags(slot_number slot) const noexcept { return slots_[slot].tags(); }

  /// Reports that a delivered batch with these tags has not reached a consumer.
  void take_back(std::span<const std::uint64_t> tags) noexcept {
    if (base::is_in_child()) return;  // served by the parent process
    {
      const std::lock_guard lock{mutex_};
      stats_.handed_out -= tags.size();
      stats_.returned += tags.size();
    }
    if (options_.on_unserved) options_.on_unserved(tags, unserved::not_handed_out);
  }

  /// Rejects all further requests. Existing requests are served, or returned if `abandons` is true.
  /// In that case, requests that are being written are returned when they are complete. Does
  /// nothing in a child created by fork().
  void close(bool abandons) noexcept {
    if (base::is_in_child()) return;
    std::unique_lock lock{mutex_};
    is_closed_ = true;
    is_abandoned_ = is_abandoned_ || abandons;
    opened_.notify_all();
    base::close(false);
    for (open_batch& open : open_) {
      if (open.slot) seal(lock, open);
    }
    if (!is_abandoned_) return;
    while (const auto slot = base::withdraw()) {
      return_unserved(lock, *slot);
      base::cancel(*slot);
    }
  }

  [[nodiscard]] batcher_stats stats() const noexcept {
    if (base::is_in_child()) return {};
    const std::lock_guard lock{mutex_};
    return stats_;
  }

 private:
  /// The open slot of a priority, which accepts requests.
  struct open_batch {
    std::optional<slot_number> slot{};
    deadline due{};           // time at which the batch is delivered even if it is not full
    bool is_opening = false;  // true while a thread waits for a free slot
  };

  request_board(const batcher_options& options, const Device& device,
                const batch_layout<Record>& layout, pinned_slots<Device> memory)
      : base(device, layout, std::move(memory.memory), options.depth,
             {.name = "batcher",
              .reserved = options.reserved_slots,
              .awaits_writers = true,
              .spin = options.spin},
             std::move(memory.granted)),
        options_(options),
        slots_(options.depth, request_list{options.max_batch_size}) {}

  [[nodiscard]] bool is_open(slot_number slot) const noexcept {
    return std::ranges::any_of(open_, [&](const open_batch& one) { return one.slot == slot; });
  }
  [[nodiscard]] bool is_urgent(const open_batch& open) const noexcept {
    return &open != open_.data();
  }

  /// Acquires a free slot, unless another thread waits for a slot. Throws the same errors as
  /// `acquire`.
  std::optional<slot_number> try_open(const open_batch& open) {
    return open.is_opening ? std::nullopt : base::acquire(deadline{}, is_urgent(open));
  }
  /// Waits for a free slot and opens it. Waits until `end` at the latest. Throws the same errors as
  /// `acquire`.
  void wait_for_slot(std::unique_lock<std::mutex>& lock, open_batch& open, deadline end) {
    std::optional<slot_number> slot;
    open.is_opening = true;
    lock.unlock();
    try {
      slot = base::acquire(end, is_urgent(open));
    } catch (...) {
      lock.lock();
      open.is_opening = false;
      opened_.notify_all();
      throw;
    }
    lock.lock();
    open.is_opening = false;
    if (slot && !is_closed_) return begin(open, *slot);
    opened_.notify_all();
    if (slot) base::cancel(*slot);
  }
  /// Opens a slot.
  void begin(open_batch& open, slot_number slot) noexcept {
    slots_[slot].begin();
    is_urgent_[slot] = is_urgent(open) ? 1 : 0;
    open.slot = slot;
    open.due = deadline_in(options_.fill);
    opened_.notify_all();
    set_due();
  }
  /// Takes the next position of the open slot. Seals the slot if it is full. If the lengths do not
  /// fit into the slot, seals the slot and returns `std::nullopt`.
  std::optional<place> take_place(std::unique_lock<std::mutex>& lock, open_batch& open,
                                  const request_info& request) noexcept {
    const slot_number slot = *open.slot;
    request_list& to = slots_[slot];
    if constexpr (Record::ragged_fields != 0) {
      sample_lengths<Record> lengths;
      std::ranges::copy(request.lengths.all(), lengths.begin());
      if (!place_next(slot, to.tags().size(), lengths)) {
        seal(lock, open);
        return std::nullopt;
      }
    }
    const place mine{slot, to.add(request.tag)};
    if (to.is_full()) seal(lock, open);
    return mine;
  }
  /// Places a sample with ragged fields. Returns false if the slot does not have room.
  bool place_next(slot_number slot, std::size_t position,
                  const sample_lengths<Record>& lengths) const noexcept {
    const batch_view<Record> all{base::data(slot), base::layout(), 0, base::layout().batch_size()};
    return place_sample(all, position, lengths) == Record::size;
  }

  /// Seals the slots whose time has passed.
  void seal_due() noexcept {
    std::unique_lock lock{mutex_};
    const auto now = clock::now();
    for (open_batch& open : open_) {
      if (open.slot && now >= open.due) seal(lock, open);
    }
    set_due();
  }
  /// Seals the high-priority slot if its time has passed, even if other batches are ready.
  void seal_urgent() noexcept {
    if (base::is_in_child()) return;
    std::unique_lock lock{mutex_};
    open_batch& open = open_[1];
    if (open.slot && clock::now() >= open.due) seal(lock, open);
  }
  void set_due() noexcept {
    deadline first = base::forever;
    for (const open_batch& open : open_) {
      if (open.slot) first = (std::min)(first, open.due);
    }
    base::set_due(first);
  }
  /// Seals an open slot.
  void seal(std::unique_lock<std::mutex>& lock, open_batch& open) noexcept {
    const slot_number slot = *open.slot;
    open.slot.reset();
    set_due();
    if (!slots_[slot].is_being_written()) finish(lock, slot);
  }
  /// Publishes a sealed slot whose requests are all written, or returns the requests if the batcher
  /// is abandoned. The caller has exclusive access to the slot.
  void finish(std::unique_lock<std::mutex>& lock, slot_number slot) noexcept {
    request_list& full = slots_[slot];
    std::size_t size = full.tags().size();
    if (full.has_holes() || !options_.allowed_batch_sizes.empty()) {
      lock.unlock();
      full.close_up([&](std::size_t from, std::size_t to) {
        move_sample(base::data(slot), base::layout(), from, to);
      });
      size = padded(slot, full.tags().size());
      lock.lock();
    }
    if (is_abandoned_) return_unserved(lock, slot);
    if (is_abandoned_ || size == 0) return base::cancel(slot);
    const batch_info info{.size = size, .valid_size = full.tags().size()};
    base::publish(slot, info, {}, is_urgent_[slot] != 0);
  }
  /// Returns the requests of an abandoned batch through `on_unserved`. The caller has exclusive
  /// access to the slot.
  void return_unserved(std::unique_lock<std::mutex>& lock, slot_number slot) noexcept {
    const auto all = tags(slot);
    stats_.returned += all.size();
    stats_.waiting -= all.size();
    lock.unlock();
    if (options_.on_unserved && !all.empty()) options_.on_unserved(all, unserved::abandoned);
    lock.lock();
  }

  /// Pads a batch of `count` requests to the next allowed size. Returns the padded size.
  [[nodiscard]] std::size_t padded(slot_number slot, std::size_t count) const noexcept {
    const auto& sizes = options_.allowed_batch_sizes;
    const auto size = std::ranges::lower_bound(sizes, count);
    if (count == 0 || size == sizes.end()) return count;
    zero_samples(base::data(slot), base::layout(), count, *size);
    if constexpr (Record::ragged_fields != 0) {
      for (std::size_t at = count; at < *size; ++at) static_cast<void>(place_next(slot, at, {}));
    }
    return *size;
  }

  batcher_options options_;
  mutable std::mutex mutex_;        // guards all members below, except slots owned by one thread
  std::condition_variable opened_;  // wakes submitters when a slot was or may be opened
  std::array<open_batch, 2> open_;  // indexed by priority
  std::vector<request_list> slots_;
  // Indexed by slot.
  std::vector<std::uint8_t> is_urgent_ = std::vector<std::uint8_t>(slots_.size());
  bool is_closed_ = false;
  bool is_abandoned_ = false;
  batcher_stats stats_;
};

/// A lease of a request batch of `Record`, without the views.
template <record_type Record, device Device>
class request_lease : public host_slot_lease<request_board<Record, Device>> {
  using base = host_slot_lease<request_board<Record, Device>>;

 public:
  using base::base;

  /// Returns the `valid()` tags of the requests, in sample order, without padding. Valid until the
  /// lease ends.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    base::use();
    return base::slots_->tags(base::slot_);
  }
};

}  // namespace detail

/// A lease of a request batch in host memory, from a `batcher`. Move-only. The destructor returns
/// the slot for new requests. A lease may outlive the batcher, because it shares ownership of the
/// memory. Only one thread at a time may use a lease, but any thread may destroy it.
template <record_type Record, device Device>
using request_batch = lease<Record, detail::request_lease<Record, Device>>;

/// A `batch_source` that collects requests from many threads into batches, for a model that
/// processes many requests at a time.
///
///     ps::batcher<features> requests{device, {.max_batch_size = 32, .fill = 2ms, .depth = 4}};
///     requests.submit(7, [&](ps::sample<features> out) { ... });       // any thread
///     ps::transfer feed{requests, stream};
///     for (auto& batch : feed.epoch(0)) answer(batch.tags(), model(batch));
///
/// Submitters write their requests directly into the batch, concurrently. A batch is delivered when
/// it is full, or to a waiting consumer when `fill` has passed since its first request. If no
/// consumer is waiting, the batch continues to fill. Batches are delivered in order of completion.
/// Each request has a tag chosen by the program. `tags()` of the host batch and the device batch
/// returns the tags in sample order, which is the order of submission. A request whose write threw
/// does not leave a gap.
///
/// A request with ragged fields is submitted with its lengths. A batch without room for the values
/// of the next request is delivered, and the request joins the next batch. High-priority batches
/// are delivered before other batches, as soon as they are full or due. If high-priority requests
/// arrive faster than they are served, other requests wait.
///
///     requests.submit({7, {text.size()}, ps::request_priority::high}, write);
///
/// `submit` waits while no slot is free. A slot is lost, and never used again, if the device cannot
/// record the end of the copy from the slot and cannot wait for that copy, which may still read the
/// slot. Therefore a program must not end a lease while its stream is being captured.
///
/// Each request is either delivered to a consumer once, or its tag is returned through
/// `batcher_options::on_unserved`. The latter happens after `abandon`, or if the feed ended before
/// its consumer received the batch. Requests that an ended feed has not taken remain for the next
/// feed.
///
/// Thread-safe. Several threads may take batches, by `next` or by a separate feed for each thread.
/// The leases of a feed may be moved to other threads (see `exhausted_action::wait`). The
/// constructor allocates all memory (see `footprint`). Batches are numbered over the lifetime of
/// the batcher, in epoch 0.
///
/// In a child created by fork(), a batcher and its batches support only destruction, which returns
/// immediately and does not free the memory. Submitting and taking batches throw
/// `std::logic_error`. The requests remain in the parent process.
///
/// @see examples/11_server.cpp
template <record_type Record, device Device = cpu_device>
class batcher {
  using board_type = detail::request_board<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = request_batch<Record, Device>;

  /// Allocates the memory for requests with these extents. Throws `option_error`, `layout_error`,
  /// `pinned_budget_exceeded`, `out_of_memory`, and errors from the device.
  batcher(const Device& device, const record_extents<Record>& extents,
          const batcher_options& options = {})
      : board_(detail::shared_by_leases<board_type, typename Device::stream_ref>(
            options, device,
            batch_layout<Record>{extents, detail::checked_batcher(options).max_batch_size})),
        on_stop_(options.stop, detail::close_board<board_type>{board_.get()}) {}
  /// Allocates the memory for records whose extents are all fixed.
  explicit batcher(const Device& device, const batcher_options& options = {})
      : batcher(device, record_extents<Record>{}, options) {}
  batcher(batcher&&) = delete;
  /// Abandons remaining requests. Calls in progress on other threads return as after `abandon`. No
  /// other call may begin. Delivered batches stay valid.
  ~batcher() { board_->close(true); }

  /// Submits a request: waits for a position, and then calls `write(sample<Record>)` on this
  /// thread. If `write` throws, the exception propagates and the request is not submitted. Throws
  /// `batcher_closed`, `leases_exhausted` if all slots are lost, and errors from the device, even
  /// while waiting. Throws `intake_error` if the lengths exceed the capacity of a batch.
  template <std::invocable<sample<Record>> Write>
  void submit(const request_info& request, Write&& write) {
    static_cast<void>(submit_by((detail::deadline::max)(), request, std::forward<Write>(write)));
  }
  /// Submits a request like `submit`, without waiting. Returns false if no position is free now.
  template <std::invocable<sample<Record>> Write>
  [[nodiscard]] bool try_submit(const request_info& request, Write&& write) {
    return submit_by(detail::deadline{}, request, std::forward<Write>(write));
  }
  /// Submits a request like `submit`, but waits for a position for at most `limit`. Returns false
  /// on timeout.
  template <class Rep, class Period, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_for(const std::chrono::duration<Rep, Period>& limit,
                                const request_info& request, Write&& write) {
    return submit_by(detail::deadline_in(limit), request, std::forward<Write>(write));
  }
  /// Submits a request like `submit_for`, but waits until a time point of the steady clock.
  template <class Duration, std::invocable<sample<Record>> Write>
  [[nodiscard]] bool submit_until(
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& end,
      const request_info& request, Write&& write) {
    return submit_by(detail::deadline_at(end), request, std::forward<Write>(write));
  }

  /// Rejects all further requests. Submitted requests are still served, after which the loop over
  /// batches ends. May be called repeatedly.
  void close() noexcept { board_->close(false); }
  /// Rejects all further requests. Requests that no consumer or feed has taken yet are returned
  /// through `on_unserved`. Requests that are being written are returned when they are complete.
  void abandon() noexcept { board_->close(true); }
  /// Returns true if the batcher was closed.
  [[nodiscard]] bool was_closed() const noexcept { return board_->is_closed(false); }

  /// Returns the statistics so far.
  [[nodiscard]] batcher_stats stats() const noexcept { return board_->stats(); }
  /// Returns the size of the host memory of the slots.
  [[nodiscard]] intake_footprint footprint() const noexcept { return board_->footprint(); }

  /// Returns the device that receives the batches.
  [[nodiscard]] const Device& device() const noexcept { return board_->device(); }
  /// Returns the layout of the batches.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return board_->layout(); }
  /// Does nothing, because a batcher has no epochs.
  void start(const batch_position&, std::uint64_t) const noexcept {}
  /// Waits for the next batch and returns it. Returns an empty batch after `close`, when all
  /// batches are delivered.
  [[nodiscard]] batch_type next() { return take(true); }
  /// Returns the next batch if it is ready, and otherwise an empty batch.
  [[nodiscard]] batch_type try_next() { return take(false); }
  /// Does nothing, because the next feed receives the remaining requests.
  void stop() const noexcept {}
  /// Returns true if `next` would immediately return an empty batch.
  [[nodiscard]] bool at_end() const noexcept { return board_->is_closed(true); }
  /// Returns the requests of a batch that no consumer has received. Only a feed calls this.
  void take_back(const batch_info&, std::span<const std::uint64_t> tags) noexcept {
    board_->take_back(tags);
  }

 private:
  // The functions below share ownership of the board, because during `exit()` another thread may
  // destroy this object while they wait.
  template <class Write>
  bool submit_by(detail::deadline end, const request_info& request, Write&& write) {
    const auto board = board_;
    const std::optional<typename board_type::place> at = board->reserve(request, end);
    if (!at) return false;
    try {
      std::forward<Write>(write)(board->at(*at));
    } catch (...) {
      board->on_written(*at, false);
      throw;
    }
    board->on_written(*at, true);
    return true;
  }
  batch_type take(bool waits) {
    const auto board = board_;
    const auto next = board->next(waits);
    if (!next) return {};
    try {
      return batch_type{board, next->first, next->second};
    } catch (...) {  // The lease record of a checked build could not be allocated.
      board->take_back(board->tags(next->first));
      board->release(next->first);
      throw;
    }
  }

  std::shared_ptr<board_type> board_;  // shared with delivered batches
  std::stop_callback<detail::close_board<board_type>> on_stop_;
};

static_assert(batch_source<batcher<record<field<"x", float, 1>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
