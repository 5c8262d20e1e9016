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
  std::size_t slot_count = 4;                                 ///< number of slots, from 1 to 1024
  std::size_t samples = 1;                                    ///< capacity of a slot in samples
  penstock::when_full when_full = penstock::when_full::wait;  ///< the action without a free slot

  /// Existing memory for the slots: at least `slot_count` times `intake_bytes` bytes, aligned to
  /// 256 bytes. The intake page-locks the memory, in huge pages if the kernel allows it, as
  /// `registered_memory` does. The memory must outlive the intake and all its batches. If empty,
  /// the intake allocates pinned memory.
  std::span<std::byte> memory = {};
  /// Limits the memory allocated by the intake and other users of the budget.
  std::optional<memory_budget> budget = {};
  /// Closes the intake when a stop is requested. Batches committed earlier are still delivered.
  std::stop_token stop = {};
};

/// The argument of `intake::close(discard)`.
struct discard_t {
  explicit discard_t() = default;
};
/// Drops the batches that no consumer has received (see `intake::close`).
inline constexpr discard_t discard{};

/// A non-owning view of writable slot memory.
template <record_type Record>
class intake_buffer {
 public:
  using record_type = Record;

  /// Creates a view of the slot `id` at `data`. `layout` must outlive the view.
  intake_buffer(std::byte* data, const batch_layout<Record>& layout, std::uint32_t id,
                detail::lease_tag lease = {}) noexcept
      : data_(data), layout_(&layout), id_(id), lease_(lease) {}

  /// Returns the address, which never changes.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Returns the number of bytes.
  [[nodiscard]] std::size_t size() const noexcept { return layout_->bytes(); }
  /// Returns all bytes, arranged as in `batch_layout`.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size()}; }
  /// Returns the index of the slot, in [0, number of slots).
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }

  /// Returns a `tensor_view` of a field, whose outermost dimension is the capacity in samples. For
  /// a ragged field, returns a view with the capacity for the values of all samples. The values of
  /// consecutive samples must be adjacent.
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

/// A lease that allows writing a slot of an `intake`. Move-only. The destructor returns the slot
/// unless it was committed. If the lease outlives the intake, `commit` drops the batch. Only one
/// thread at a time may use a lease. A lease is empty after `commit`, `detach` or a move. All
/// functions of an empty lease except `operator bool` throw `intake_error`.
template <record_type Record, device Device>
class intake_slot : slot_lease<detail::intake_board<Record, Device>> {
  using board_type = detail::intake_board<Record, Device>;
  using base = slot_lease<board_type>;

 public:
  using record_type = Record;

  using base::base;
  using base::operator bool;

  /// Returns the memory of the slot. Valid until the lease ends.
  [[nodiscard]] intake_buffer<Record> buffer() const {
    board_type& board = held("buffer");
    return {board.data(base::slot_), board.layout(), base::slot_, base::guard_.tag()};
  }
  /// Returns the index of the slot.
  [[nodiscard]] std::uint32_t id() const { return buffer().id(); }
  /// Returns all bytes of the slot.
  [[nodiscard]] std::span<std::byte> bytes() const { return buffer().bytes(); }
  /// Returns a view of a field (see `intake_buffer::get`).
  template <name Name>
  [[nodiscard]] auto get() const {
    return buffer().template get<Name>();
  }

  /// Publishes the batch and empties the lease. Returns false if the batch is dropped, because the
  /// intake is closed. Throws `intake_error` if the slot does not have room for `what`, in which
  /// case the lease still owns the slot.
  bool commit(const commit_info& what = {}) {
    held("commit").require_room(what);
    return base::leave()->commit(base::slot_, what);
  }
  /// Publishes a batch that work on `stream` still writes. Copies to the consumer device and
  /// consumers that loop on the host wait for the work currently queued on `stream`. Does not wait.
  /// `producer` is the device of the stream. Propagates errors from the device. If the stream is
  /// not usable, the lease still owns the slot. If recording fails, the function waits for the
  /// stream and returns the slot, and the lease is empty.
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

  /// Transfers the slot to a driver that uses its address, and empties the lease. Returns the index
  /// of the slot. Pass it to `commit`, `release` or `attach` of the intake to take the slot back.
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

  /// Waits for the producer work that still writes the batch (`intake_slot::commit_after`).
  /// Propagates errors from the device.
  void wait_until_written() const {
    base::use();
    base::slots_->wait_until_written(base::slot_);
  }
  /// Makes later work on `stream` wait for the producer work that still writes the batch. Does not
  /// block.
  void wait_until_written(typename Device::stream_ref stream) const {
    base::use();
    base::slots_->wait_until_written(base::slot_, stream);
  }
};

/// Takes a batch from a board. Returns an empty batch at the end and, unless `waits` is true, if no
/// batch is ready. Shares ownership of the board, because another thread may destroy the intake.
template <record_type Record, device Device>
[[nodiscard]] lease<Record, intake_lease<Record, Device>> take_batch(
    std::shared_ptr<intake_board<Record, Device>> board, bool waits) {
  const auto next = board->next(waits, []() noexcept {});
  if (!next) return {};
  try {
    return {board, next->first, next->second};
  } catch (...) {  // The lease record of a checked build could not be allocated.
    board->count_undelivered();
    board->release(next->first);
    throw;
  }
}

/// The loop over an `intake` without a transfer. Only the consumer thread may use this object.
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
/// to the producers. A lease may outlive the intake, because it shares ownership of the memory.
/// Only one thread at a time may use a lease, but any thread may destroy it.
template <record_type Record, device Device>
using intake_batch = lease<Record, detail::intake_lease<Record, Device>>;

/// Returns the slot size of an `intake` in bytes. Throws `layout_error` if the layout is invalid.
template <record_type Record>
[[nodiscard]] std::size_t intake_bytes(const record_extents<Record>& extents, std::size_t samples) {
  return batch_layout<Record>{extents, samples}.bytes();
}

/// A `batch_source` of batches that producers push at any time and from any thread. Producers can
/// be cameras, network cards, renderers or other GPUs. The source ends only after `close`.
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
/// A producer writes directly to the memory that the copy reads, without holding a lock or
/// allocating. A commit with fewer samples than the slot capacity is a partial batch. Only the
/// values in use of a ragged field are copied.
///
/// Batches are delivered in the order of their commits. Each batch is delivered once or counted as
/// dropped. `skipped()` of a batch returns the number of batches dropped immediately before it, by
/// the policy `when_full` or by `transfer_options::newest`. Batches that a feed has taken are
/// dropped when its range ends. Batches that no feed has taken remain.
///
/// `buffers()` returns the addresses for a driver that needs buffers at fixed addresses. The
/// program acquires each slot that the driver may fill (`acquire`, then `intake_slot::detach`).
/// When a buffer is full, the program calls `commit(id)`, and acquires another slot for the driver.
/// Stop the driver before destroying the intake.
///
/// Thread-safe. Several threads may take batches, by `next` or by a separate feed for each thread.
/// The constructor allocates all memory. Batches are numbered in the order of delivery, in epoch 0.
/// A slot is lost, and never used again, if the intake cannot record the end of the work on the
/// slot, and cannot wait for that work.
///
/// In a child created by fork(), an intake and its leases support only destruction. Other calls
/// throw `std::logic_error` or do nothing.
template <record_type Record, device Device = cpu_device>
class intake {
  using board_type = detail::intake_board<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;
  using batch_type = intake_batch<Record, Device>;
  /// The lease type of `acquire`.
  using slot_type = intake_slot<Record, Device>;
  using range_type = batch_range<detail::intake_loop<Record, Device>>;

  /// Allocates the memory for batches of samples with these extents. Throws `option_error`,
  /// `layout_error`, `pinned_budget_exceeded`, `out_of_memory`, and errors from the device.
  intake(const Device& device, const record_extents<Record>& extents,
         const intake_options& options = {})
      : board_(made(device, batch_layout<Record>{extents, options.samples}, options)),
        on_stop_(options.stop, detail::close_board<board_type>{board_.get()}) {}
  /// Allocates the memory for records whose extents are all fixed.
  explicit intake(const Device& device, const intake_options& options = {})
      : intake(device, record_extents<Record>{}, options) {}
  intake(intake&&) = delete;
  /// Closes the intake and drops the batches that no consumer has taken. Calls in progress on other
  /// threads return as after `close`. No other call may begin. Leases stay valid.
  ~intake() { board_->close(true); }

  /// Acquires a slot to write. Without a free slot, follows `when_full`: `wait` waits, and
  /// `drop_oldest` waits only while each slot is being written, copied, or held by a consumer.
  /// Returns an empty lease if the policy provides no slot, and after `close`. Throws
  /// `leases_exhausted` if all slots are lost, and errors from the device.
  [[nodiscard]] slot_type acquire() { return slot_until((detail::deadline::max)()); }
  /// Acquires a slot like `acquire`, but does not wait.
  [[nodiscard]] slot_type try_acquire() { return slot_until(detail::deadline{}); }
  /// Acquires a slot like `acquire`, but waits for at most `limit`.
  template <class Rep, class Period>
  [[nodiscard]] slot_type acquire_for(const std::chrono::duration<Rep, Period>& limit) {
    return slot_until(detail::deadline_in(limit));
  }

  /// Returns the memory of all slots, whose addresses never change, for a driver that needs these
  /// addresses.
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
  /// Throws the same `intake_error` as `attach` and `commit`, in which case the buffer still
  /// belongs to the driver.
  bool commit(std::uint64_t id, const commit_info& what = {}) {
    board_->require_room(what);
    return attach(id).commit(what);
  }
  /// Takes the buffer `id` back from a driver and frees its slot without publishing a batch. Throws
  /// the same `intake_error` as `attach`.
  void release(std::uint64_t id) { static_cast<void>(attach(id)); }

  /// Reports an error to the consumer in place of the next batch. The exception ends the consumer
  /// loop, and a new loop receives the batches committed later. Throws `std::invalid_argument` for
  /// null. Has no effect after `close`.
  void fail(std::exception_ptr error) {
    if (error == nullptr) throw std::invalid_argument("intake: fail without an exception");
    board_->fail(std::move(error));
  }
  /// Reports `error` to the consumer, like the overload for an `std::exception_ptr`.
  template <std::derived_from<std::exception> Error>
  void fail(Error error) {
    fail(std::make_exception_ptr(std::move(error)));
  }

  /// Rejects all further batches. Batches committed earlier are still delivered, after which the
  /// consumer loop ends. A batch that is committed later is dropped.
  void close() noexcept { board_->close(false); }
  /// Rejects all further batches, and drops the batches and errors that no consumer has received.
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

  /// Returns the device that receives the batches.
  [[nodiscard]] const Device& device() const noexcept { return board_->device(); }
  /// Returns the layout of the batches.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return board_->layout(); }
  /// Does nothing, because an intake has no epochs.
  void start(const batch_position&, std::uint64_t) const noexcept {}
  /// Waits for the next batch and returns it. Returns an empty batch at the end. Throws errors that
  /// producers reported. A stream may still write the batch (see `wait_until_written` of the
  /// batch).
  [[nodiscard]] batch_type next() { return detail::take_batch(board_, true); }
  /// Returns the next batch if it is ready, and otherwise an empty batch.
  [[nodiscard]] batch_type try_next() { return detail::take_batch(board_, false); }
  /// Does nothing, because the next feed receives the remaining batches.
  void stop() const noexcept {}
  /// Returns true if `next` would immediately return an empty batch.
  [[nodiscard]] bool at_end() const noexcept { return board_->is_closed(true); }
  /// Counts a batch that no consumer has received as dropped. Called by a feed.
  void take_back(const batch_info&, std::span<const std::uint64_t>) noexcept {
    board_->count_undelivered();
  }

 private:
  [[nodiscard]] static std::shared_ptr<board_type> made(const Device& device,
                                                        const batch_layout<Record>& layout,
                                                        const intake_options& options);
  slot_type slot_until(detail::deadline end) {
    const auto board = board_;  // shares ownership, as in `take_batch`
    const auto slot = board->acquire(end);
    return slot ? slot_of(board, *slot) : slot_type{};
  }
  static slot_type slot_of(const std::shared_ptr<board_type>& board, std::uint32_t slot) {
    try {
      return {board, slot, batch_info{}};
    } catch (...) {  // The lease record of a checked build could not be allocated.
      board->release(slot);
      throw;
    }
  }

  std::shared_ptr<board_type> board_;  // shared with leases
  std::stop_callback<detail::close_board<board_type>> on_stop_;
};

template <record_type Record, device Device>
auto intake<Record, Device>::made(const Device& device, const batch_layout<Record>& layout,
                                  const intake_options& options) -> std::shared_ptr<board_type> {
  if (options.slot_count < 1 || options.slot_count > 1024) {
    detail::throw_option_error("slot_count", {options.slot_count, " is not in 1..1024"});
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
    detail::throw_option_error("memory", {"must have ", bytes, " bytes, aligned to ", alignment,
                                          ", has ", options.memory.size()});
  }
  if constexpr (registering_device<Device>) {
    return share({device, options.memory.first(bytes), layout.bytes()}, {});
  } else {
    detail::throw_option_error("memory", {"the device cannot page-lock memory of the caller"});
  }
}

static_assert(batch_source<intake<record<field<"x", float, 1>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
