// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/last_owner.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/threads/support/deadline.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock_ext/serve/detail/request_board.hpp>
#include <penstock_ext/serve/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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
