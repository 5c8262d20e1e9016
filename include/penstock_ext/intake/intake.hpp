// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/tensor_view.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/registered_memory.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/memory/support/slot_ring.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock_ext/intake/support/intake_board.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The options of an `intake`, whose constructor throws `option_error` for invalid values.
struct intake_options {
  std::size_t slot_count = 4;  ///< the number of slots, from 1 to 1024
  std::size_t samples = 1;     ///< the capacity of a slot in samples
  penstock::when_full when_full = penstock::when_full::wait;  ///< what happens without a free slot

  /// The caller's memory for the slots: at least `slot_count` times `intake_bytes` bytes, aligned
  /// to 256 bytes. The intake page-locks the memory, which must outlive the intake and all its
  /// batches. If empty, the intake allocates pinned memory.
  std::span<std::byte> memory = {};
  /// Limits the memory that the intake and other users of the budget allocate.
  std::optional<memory_budget> budget = {};
  /// Closes the intake when a stop is requested. Batches that were committed before are delivered.
  std::stop_token stop = {};
};

/// The argument of `intake::close(discard)`.
struct discard_t {
  explicit discard_t() = default;
};
/// Drops the batches that no consumer has received, see `intake::close`.
inline constexpr discard_t discard{};

/// The writable memory of a slot. A non-owning view.
template <record_type Record>
class intake_buffer {
 public:
  using record_type = Record;

  /// Views the slot `id` at `data`. `layout` must outlive the view.
  intake_buffer(std::byte* data, const batch_layout<Record>& layout, std::uint32_t id,
                detail::lease_tag lease = {}) noexcept
      : data_(data), layout_(&layout), id_(id), lease_(lease) {}

  /// The address, which never changes.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// The number of bytes.
  [[nodiscard]] std::size_t size() const noexcept { return layout_->bytes(); }
  /// All bytes, in the order of `batch_layout`.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size()}; }
  /// The number of the slot, in [0, number of slots).
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }

  /// Returns a `tensor_view` of a field, with room for all samples as outermost dimension. For a
  /// ragged field, returns a view of the room for the values of all samples. The values of a sample
  /// directly follow the values of the previous sample.
  template <name Name>
  [[nodiscard]] auto get() const noexcept {
    detail::require_field<Record, Name>();
    if constexpr (Record::template has_field<Name>) {
      constexpr std::size_t index = Record::template index_of<Name>();
      using field = typename Record::template field_at<index>;
      if constexpr (field::is_ragged) {
        using value = typename field::value_type;
        return tensor_view<value, dyn>{
            reinterpret_cast<value*>(data_ + layout_->template offset<index>()),
            extents<dyn>{layout_->template capacity<index>()}, lease_};
      } else {
        return batch_view<Record>{data_, *layout_, 0, layout_->batch_size(), lease_}
            .template get<Name>();
      }
    }
  }

 private:
  std::byte* data_;
  const batch_layout<Record>* layout_;
  std::uint32_t id_;
  [[no_unique_address]] detail::lease_tag lease_;
};

/// The right to write a slot of an `intake`. Move-only. If the lease is destroyed without `commit`,
/// the slot is returned. A lease may outlive the intake, in which case it commits nothing. Only one
/// thread at a time may use a lease. All functions except `operator bool` throw `intake_error` if
/// the lease is empty: after `commit`, `detach` or a move.
template <record_type Record, device Device>
class intake_slot : slot_lease<detail::intake_board<Record, Device>> {
  using board_type = detail::intake_board<Record, Device>;
  using base = slot_lease<board_type>;

 public:
  using record_type = Record;

  using base::base;
  using base::operator bool;

  /// The memory of the slot. Valid until the lease ends.
  [[nodiscard]] intake_buffer<Record> buffer() const {
    board_type& board = held("buffer");
    return {board.data(base::slot_), board.layout(), base::slot_, base::guard_.tag()};
  }
  /// The number of the slot.
  [[nodiscard]] std::uint32_t id() const { return buffer().id(); }
  /// All bytes of the slot.
  [[nodiscard]] std::span<std::byte> bytes() const { return buffer().bytes(); }
  /// Returns a view of a field, see `intake_buffer::get`.
  template <name Name>
  [[nodiscard]] auto get() const {
    return buffer().template get<Name>();
  }

  /// Publishes the batch and empties the lease. Returns false if the batch is dropped, because the
  /// intake is closed. Throws `intake_error` if the slot has no room for `what`. The lease then
  /// keeps the slot.
  bool commit(const commit_info& what = {}) {
    held("commit").require_room(what);
    return base::leave()->commit(base::slot_, what);
  }
  /// Publishes a batch that work on `stream` still writes. The copy to the consumer's device, and a
  /// consumer that loops on the host, wait for the work that is currently queued on `stream`. The
  /// function does not wait. `producer` is the device of the stream. Throws what the device throws.
  /// If the stream is not usable, the lease keeps the slot. If recording fails, the function waits
  /// for the stream and returns the slot, and the lease is empty.
  bool commit_after(typename Device::stream_ref stream, const commit_info& what,
                    const Device& producer) {
    held("commit_after").require_room(what);
    producer.require_usable(stream);
    base::guard_.end_behind(1).behind(stream, []() noexcept {});
    return base::leave()->commit_after(base::slot_, what, stream, producer);
  }
  /// Publishes a batch that work of the intake's own device still writes.
  bool commit_after(typename Device::stream_ref stream, const commit_info& what = {}) {
    return commit_after(stream, what, held("commit_after").device());
  }

  /// Gives the slot to a driver that knows its address, and empties the lease. Returns the slot's
  /// number. Pass it to `commit`, `release` or `attach` of the intake to take the slot back.
  std::uint32_t detach() {
    held("detach").detach(base::slot_);
    static_cast<void>(base::leave());
    return base::slot_;
  }

 private:
  [[nodiscard]] board_type& held(const char* function) const {
    if (base::slots_ != nullptr) return *base::slots_;
    throw intake_error(
        detail::str_cat({"intake: ", function, " of an empty lease: it was ",
                         "committed, detached or moved before, or no slot was free"}));
  }
};

namespace detail {

/// A lease of a batch that a producer has committed, without the views.
template <record_type Record, device Device>
class intake_lease : public host_slot_lease<intake_board<Record, Device>> {
  using base = host_slot_lease<intake_board<Record, Device>>;

 public:
  using base::base;

  /// Waits for the work of a producer that still writes the batch (`intake_slot::commit_after`).
  /// Throws what the device throws.
  void wait_until_written() const {
    base::use();
    base::slots_->wait_until_written(base::slot_);
  }
  /// Makes later work on `stream` wait for the producer's work that still writes the batch. Does
  /// not block.
  void wait_until_written(typename Device::stream_ref stream) const {
    base::use();
    base::slots_->wait_until_written(base::slot_, stream);
  }
};

/// Takes a batch from a board. Returns an empty batch at the end and, unless `waits`, if none is
/// ready. Shares the board, because another thread may destroy the intake.
template <record_type Record, device Device>
[[nodiscard]] lease<Record, intake_lease<Record, Device>> take_batch(
    std::shared_ptr<intake_board<Record, Device>> board, bool waits) {
  const auto next = board->next(waits, []() noexcept {});
  if (!next) return {};
  try {
    return {board, next->first, next->second};
  } catch (...) {  // memory for a checked build's lease record ran out
    board->count_undelivered();
    board->release(next->first);
    throw;
  }
}

/// The loop over an `intake` without a transfer. Only the consumer's thread may use it.
template <record_type Record, device Device>
class intake_loop {
 public:
  using batch_type = lease<Record, intake_lease<Record, Device>>;

  explicit intake_loop(std::shared_ptr<intake_board<Record, Device>> board) noexcept
      : board_(std::move(board)) {}
  std::uint64_t start(const batch_position&, std::uint64_t) noexcept { return ++serial_; }
  bool advance() {
    held_ = {};
    held_ = take_batch(board_, true);
    if (held_) held_.wait_until_written();
    return static_cast<bool>(held_);
  }
  [[nodiscard]] batch_type& current() noexcept { return held_; }
  void finish(std::uint64_t range) noexcept {
    if (range == serial_) held_ = {};
  }

 private:
  std::shared_ptr<intake_board<Record, Device>> board_;
  batch_type held_;
  std::uint64_t serial_ = 0;
};

}  // namespace detail

/// A lease of a batch in host memory, from an `intake`. Move-only. The destructor returns the slot
/// to the producers. A lease may outlive the intake and keeps its memory. Only one thread at a time
/// may use a lease, but any thread may destroy it.
template <record_type Record, device Device>
using intake_batch = lease<Record, detail::intake_lease<Record, Device>>;

/// Returns the number of bytes of a slot of an `intake`. Throws `layout_error`.
template <record_type Record>
[[nodiscard]] std::size_t intake_bytes(const record_extents<Record>& extents, std::size_t samples) {
  return batch_layout<Record>{extents, samples}.bytes();
}

/// Takes batches that producers push, at any time and from any threads: cameras, network cards,
/// renderers, other GPUs. A `batch_source` that ends only after `close`.
///
///     ps::intake<cloud, ps::cuda_device> in{device, extents, {.slot_count = 8}};
///
///     if (auto slot = in.acquire()) {                        // a producer's thread
///       const auto n = lidar.read(ps::get<"points">(slot));
///       slot.commit({.lengths = {n}, .tag = frame});
///     }
///
///     ps::transfer feed{in, stream};                         // the consumer's thread
///     for (auto& batch : feed.epoch(0)) step(batch, batch.tag(), batch.skipped());
///
/// A producer writes directly to the memory that the copy reads. No lock is held while it writes,
/// and nothing is allocated. A commit with fewer samples than a slot has room for is a partial
/// batch. The copy of a ragged field moves only the values in use.
///
/// Batches come in the order of their commits. Each batch is delivered once or counted as dropped.
/// `skipped()` of a batch is the number of batches dropped immediately before it, by the policy
/// `when_full` or by `transfer_options::newest`. Batches that a feed has taken are dropped when its
/// range ends. Batches that no feed has taken remain.
///
/// A driver that needs buffers at fixed addresses gets the addresses from `buffers()`. A thread of
/// the program takes each slot that the driver may fill (`acquire`, then `intake_slot::detach`).
/// When a buffer is full, the program calls `commit(id)`, and takes another slot for the driver.
/// Stop the driver before the intake is destroyed.
///
/// Thread-safe. Several threads may take batches, by `next` or by a separate feed for each thread.
/// The constructor allocates all memory. Batches are numbered as they are handed out, in epoch 0. A
/// slot is lost, and never used again, if the intake cannot record the end of the work on the slot,
/// and cannot wait for that work.
///
/// In a child made by fork(), an intake and its leases may only be destroyed. Other calls throw
/// `std::logic_error` or do nothing.
template <record_type Record, device Device = cpu_device>
class intake {
  using board_type = detail::intake_board<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;
  using batch_type = intake_batch<Record, Device>;
  /// The lease that `acquire` returns.
  using slot_type = intake_slot<Record, Device>;
  using range_type = batch_range<detail::intake_loop<Record, Device>>;

  /// Allocates the memory for batches of samples with these extents. Throws `option_error`,
  /// `layout_error`, `pinned_budget_exceeded`, `out_of_memory`, and what the device throws.
  intake(const Device& device, const record_extents<Record>& extents,
         const intake_options& options = {})
      : board_(made(device, batch_layout<Record>{extents, options.samples}, options)),
        on_stop_(options.stop, detail::close_board<board_type>{board_.get()}) {}
  /// Allocates the memory for records whose extents are all fixed.
  explicit intake(const Device& device, const intake_options& options = {})
      : intake(device, record_extents<Record>{}, options) {}
  intake(intake&&) = delete;
  /// Closes the intake and drops the batches that no consumer has taken. Calls in progress on other
  /// threads end, as after `close`. No other call may begin. Leases stay valid.
  ~intake() { board_->close(true); }

  /// Takes a slot to write. If none is free, does what `when_full` specifies: `wait` waits, and
  /// `drop_oldest` waits while each slot is being written, copied, or held by a consumer. Returns
  /// an empty lease if the policy gives no slot, and after `close`. Throws `leases_exhausted` if
  /// all slots are lost, and what the device throws.
  [[nodiscard]] slot_type acquire() { return slot_until((detail::deadline::max)()); }
  /// Takes a slot like `acquire`, but does not wait.
  [[nodiscard]] slot_type try_acquire() { return slot_until(detail::deadline{}); }
  /// Takes a slot like `acquire`, but waits for at most `limit`.
  template <class Rep, class Period>
  [[nodiscard]] slot_type acquire_for(const std::chrono::duration<Rep, Period>& limit) {
    return slot_until(detail::deadline_in(limit));
  }

  /// The memory of all slots, whose addresses never change, for a driver that must know them.
  [[nodiscard]] std::vector<intake_buffer<Record>> buffers() const {
    std::vector<intake_buffer<Record>> all;
    for (std::uint32_t slot = 0; slot < board_->count(); ++slot) {
      all.emplace_back(board_->data(slot), board_->layout(), slot);
    }
    return all;
  }
  /// Takes the buffer `id` back from a driver. Returns a lease, with which the program can read,
  /// commit or return the slot. Throws `intake_error` if the buffer does not belong to a driver
  /// (`intake_slot::detach`).
  [[nodiscard]] slot_type attach(std::uint64_t id) { return slot_of(board_, board_->claim(id)); }
  /// Publishes the batch that a driver has written to the buffer `id`, like `intake_slot::commit`.
  /// Throws `intake_error` as `attach` and `commit` do, in which case the driver keeps its buffer.
  bool commit(std::uint64_t id, const commit_info& what = {}) {
    board_->require_room(what);
    return attach(id).commit(what);
  }
  /// Takes the buffer `id` back from a driver and frees its slot, without publishing a batch.
  /// Throws `intake_error` as `attach` does.
  void release(std::uint64_t id) { static_cast<void>(attach(id)); }

  /// Reports an error to the consumer, in place of the next batch. The consumer's loop ends with
  /// the exception, and a new loop gets the batches that were committed later. Throws
  /// `std::invalid_argument` for null. Has no effect after `close`.
  void fail(std::exception_ptr error) {
    if (error == nullptr) throw std::invalid_argument("intake: fail without an exception");
    board_->fail(std::move(error));
  }
  /// Reports `error` to the consumer, like the overload for an `std::exception_ptr`.
  template <std::derived_from<std::exception> Error>
  void fail(Error error) {
    fail(std::make_exception_ptr(std::move(error)));
  }

  /// Accepts no further batch. Batches that were committed before are delivered, after which the
  /// consumer's loop ends. A batch that is committed later is dropped.
  void close() noexcept { board_->close(false); }
  /// Accepts no further batch, and drops the batches and errors that no consumer has received.
  void close(discard_t) noexcept { board_->close(true); }
  /// Returns true if the intake was closed.
  [[nodiscard]] bool was_closed() const noexcept { return board_->is_closed(false); }

  /// Returns the batches until the end, for a consumer without a transfer. The loop waits for each
  /// batch, including the work of `commit_after`, and ends when the intake is closed or destroyed.
  [[nodiscard]] range_type stream() {
    return {std::make_shared<detail::intake_loop<Record, Device>>(board_), {}, 1};
  }

  /// Returns the statistics so far.
  [[nodiscard]] intake_stats stats() const noexcept { return board_->stats(); }
  /// Returns the size of the host memory.
  [[nodiscard]] intake_footprint footprint() const noexcept { return board_->footprint(); }

  /// The device that receives the batches.
  [[nodiscard]] const Device& device() const noexcept { return board_->device(); }
  /// The layout of the batches.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return board_->layout(); }
  /// Does nothing, since an intake has no epochs.
  void start(const batch_position&, std::uint64_t) const noexcept {}
  /// Waits for the next batch and returns it. Returns an empty batch at the end. Throws the errors
  /// of producers. A stream may still write the batch, see `wait_until_written` of the batch.
  [[nodiscard]] batch_type next() { return detail::take_batch(board_, true); }
  /// Returns the next batch if it is ready, otherwise an empty batch.
  [[nodiscard]] batch_type try_next() { return detail::take_batch(board_, false); }
  /// Does nothing: the next feed gets the remaining batches.
  void stop() const noexcept {}
  /// Returns true if `next` would return an empty batch at once.
  [[nodiscard]] bool at_end() const noexcept { return board_->is_closed(true); }
  /// Counts as dropped a batch that no consumer has received. Called by a feed.
  void take_back(const batch_info&, std::span<const std::uint64_t>) noexcept {
    board_->count_undelivered();
  }

 private:
  [[nodiscard]] static std::shared_ptr<board_type> made(const Device& device,
                                                        const batch_layout<Record>& layout,
                                                        const intake_options& options);
  slot_type slot_until(detail::deadline end) {
    const auto board = board_;  // shared, as in `take_batch`
    const auto slot = board->acquire(end);
    return slot ? slot_of(board, *slot) : slot_type{};
  }
  static slot_type slot_of(const std::shared_ptr<board_type>& board, std::uint32_t slot) {
    try {
      return {board, slot, batch_info{}};
    } catch (...) {  // memory for a checked build's lease record ran out
      board->release(slot);
      throw;
    }
  }

  std::shared_ptr<board_type> board_;  // shared by leases
  std::stop_callback<detail::close_board<board_type>> on_stop_;
};

template <record_type Record, device Device>
auto intake<Record, Device>::made(const Device& device, const batch_layout<Record>& layout,
                                  const intake_options& options) -> std::shared_ptr<board_type> {
  if (options.slot_count < 1 || options.slot_count > 1024) {
    detail::refuse_option("slot_count", {options.slot_count, " is not in 1..1024"});
  }
  using memory_type = detail::slab<Device>;
  const auto share = [&](memory_type memory, detail::memory_reservation granted) {
    return detail::shared_by_leases<board_type, stream_ref>(
        device, layout, std::move(memory), options.slot_count,
        detail::board_traits{.policy = options.when_full}, std::move(granted));
  };
  const std::size_t bytes =
      detail::bytes_of_slots(detail::memory_kind::pinned, layout.bytes(), options.slot_count);
  if (options.memory.data() == nullptr) {
    detail::pinned_slots<Device> pinned{device, layout.bytes(), options.slot_count, options.budget,
                                        "slot_count or samples"};
    return share(std::move(pinned.memory), std::move(pinned.granted));
  }
  constexpr std::size_t alignment = batch_layout<Record>::alignment;
  if (options.memory.size() < bytes ||
      reinterpret_cast<std::uintptr_t>(options.memory.data()) % alignment != 0) {
    detail::refuse_option("memory", {"must have ", bytes, " bytes, aligned to ", alignment,
                                     ", has ", options.memory.size()});
  }
  if constexpr (registering_device<Device>) {
    return share({device, options.memory.first(bytes), layout.bytes()}, {});
  } else {
    detail::refuse_option("memory", {"the device cannot page-lock memory of the caller"});
  }
}

static_assert(batch_source<intake<record<field<"x", float, 1>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
