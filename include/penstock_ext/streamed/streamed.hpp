// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/load/support/pull_loop.hpp>
#include <penstock/load/support/ragged_batches.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock_ext/streamed/detail/stream_core.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A function that fills batches of a `streamed` of `Record`: `fill(view)` or `fill(view, turn)`,
/// where `view` is a `batch_view<Record>` of `batch_size` samples, and `turn` is a `stream_turn&`.
/// `fill` returns the number of samples written at the start of the view, or 0 at the end of the
/// stream.
template <class F, class Record>
concept stream_fill =
    record_type<Record> && requires(F& fill, const batch_view<Record>& view, stream_turn& turn) {
      requires requires {
        { fill(view) } -> std::convertible_to<std::size_t>;
      } || requires {
        { fill(view, turn) } -> std::convertible_to<std::size_t>;
      };
    };

namespace detail {

/// The loop over a `streamed`: its core and its current batch. The `streamed` and its ranges share
/// this object.
template <record_type Record, device Device>
class stream_loop {
 public:
  using batch_type = host_batch<Record, Device>;

  /// Allocates slots for batches of `layout`, and starts the threads. See `stream_core`.
  stream_loop(const Device& device, const batch_layout<Record>& layout,
              typename stream_core<Device>::fill_function fill, const streamed_options& options,
              const loader_options& memory)
      : core_(make_slots(device, layout, memory), std::move(fill), options) {}

  [[nodiscard]] stream_core<Device>& core() noexcept { return core_; }
  /// Returns true in a child created by fork(). See `delete_outside_of_work`.
  [[nodiscard]] bool is_in_child() const noexcept { return core_.is_in_child(); }

  /// Returns the next batch, or an empty batch at the end. If `waits` is true, waits for the batch.
  [[nodiscard]] batch_type take(bool waits) {
    const auto next = core_.next(waits);
    if (!next) return {};
    try {
      return batch_type{core_.ring(), next->slot, next->info};
    } catch (...) {  // a checked build had no memory to track the lease
      core_.ring()->release(next->slot);
      core_.stop();
      throw;
    }
  }

  /// @name For a `batch_range`
  /// @{
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch) {
    return core_.start(from, last_epoch);
  }
  bool advance() {
    held_ = {};  // ends the current lease first, because the next batch may need its slot
    held_ = take(true);
    return static_cast<bool>(held_);
  }
  [[nodiscard]] batch_type& current() noexcept { return held_; }
  void finish(std::uint64_t serial) noexcept {
    if (!core_.is_current(serial)) return;
    held_ = {};
    core_.stop();
  }

 private:
  using ring_type = host_slots<Device>;

  [[nodiscard]] static std::shared_ptr<ring_type> make_slots(const Device& device,
                                                             const batch_layout<Record>& layout,
                                                             const loader_options& options) {
    memory_reservation granted = reserve_slots(layout.bytes(), options);
    slab<Device> memory = allocate_slots(device, layout.bytes(), options, granted);
    const auto count = static_cast<std::size_t>(granted.slot_count());
    return shared_by_leases<ring_type, typename Device::stream_ref>(
        device, slot_layout{layout}, std::move(memory), count, std::move(granted));
  }

  stream_core<Device> core_;
  batch_type held_;
};

}  // namespace detail

/// A `batch_source` for sequential records whose number is unknown in advance, such as lines of a
/// compressed log, filtered games, or messages in a queue. Can also be used alone, for batches in
/// host memory.
///
///     ps::streamed<game> games{ps::cuda_device{0}, [&](ps::batch_view<game> out) {
///       std::size_t n = 0;
///       while (n != out.size() && reader.read(out[n])) ++n;
///       return n;                                            // 0 at the end
///     }, {.batch_size = 64}};
///     ps::transfer feed{games, stream};
///     for (auto& batch : feed.epoch(0)) train_step(ps::get<"board">(batch), stream);
///
/// A reader thread calls `fill` with the memory of a free slot. The samples written by `fill`
/// become one batch, so a batch is short only if `fill` returns fewer samples. If `fill` returns 0,
/// the loop ends without an exception. If `fill` returns more than `out.size()`, the loop ends with
/// a `source_mismatch`. For a record with ragged fields, `fill` calls
/// `place_sample(out, i, lengths)` for each sample in order before it writes the sample. If
/// `place_sample` returns the index of a field, the batch is full, and `fill` must keep the record
/// for the next batch.
///
/// Threads take turns calling `fill`, and batches are delivered in turn order, so the order does
/// not depend on the number of workers. A `fill` that calls `stream_turn::pass` after reading its
/// records can decode them while other workers read. If several calls are running at the end of the
/// stream, all their batches are delivered. An exception of `fill` ends the stream. The consumer
/// receives it after the batches of earlier turns. Batches of later turns are dropped.
///
/// A state consists of the number of batches and the token that `fill` set for the last batch. If
/// `fill` reads its records and sets the token during its turn, the state describes exactly the
/// records in these batches, excluding batches that were read ahead. `resume` calls
/// `streamed_options::seek` with the state.
///
/// A range reads each of its epochs once, after calling `seek` if it is set. `transfer::next` reads
/// one epoch and returns an empty batch at the end. Without `seek`, a stream can be read only once,
/// and another start throws `state_mismatch`. If a loop is left early, batches that were read ahead
/// are dropped.
///
/// Leaving a loop and the destructor wait for running calls of `fill` (see
/// `stream_turn::stop_token`). Movable between two ranges. Only one thread may consume.
template <record_type Record, device Device = cpu_device>
class streamed {
  using flow = detail::stream_loop<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using batch_type = host_batch<Record, Device>;
  using range_type = batch_range<flow>;

  /// Allocates slot memory and starts the threads. `fill` is moved in. Throws `option_error`,
  /// `layout_error`, `pinned_budget_exceeded`, `out_of_memory`, `std::system_error`, and errors
  /// from the device.
  template <stream_fill<Record> Fill>
  streamed(const Device& device, const record_extents<Record>& extents, Fill fill,
           const streamed_options& options = {})
      : streamed(device, extents, std::move(fill), options, detail::options_of_stream(options)) {}
  /// Creates a stream of records whose extents are all fixed.
  template <stream_fill<Record> Fill>
  streamed(const Device& device, Fill fill, const streamed_options& options = {})
      : streamed(device, record_extents<Record>{}, std::move(fill), options) {}
  /// Creates a stream for the CPU device.
  template <stream_fill<Record> Fill>
    requires std::same_as<Device, cpu_device>
  explicit streamed(Fill fill, const streamed_options& options = {})
      : streamed(Device{}, std::move(fill), options) {}

  streamed(streamed&&) noexcept = default;
  streamed& operator=(streamed&&) = delete;
  /// Ends the threads after running calls of `fill` have returned. Leases stay valid. An unfinished
  /// loop receives `cancelled` at its next step.
  ~streamed() {
    if (flow_) core().shut_down();
  }

  /// Returns a range over the batches of the epochs from `first` up to but excluding `last`, in
  /// host memory.
  [[nodiscard]] range_type epochs(std::uint64_t first, std::uint64_t last) & {
    return batches({first, 0}, until_epoch{last});
  }
  /// Returns a range over the batches of one epoch, which is one pass over the stream.
  [[nodiscard]] range_type epoch(std::uint64_t which) & { return epochs(which, which + 1); }
  /// Returns a range over the batches from `from` to the start of epoch `end`. The token of `from`
  /// must be known (see `state_at`).
  [[nodiscard]] range_type batches(const batch_position& from, until_epoch end) & {
    return range_type{flow_, from, end.value};
  }

  /// Returns the state of a loop over this stream after the last delivered batch. For a loop over a
  /// transfer, call `transfer::state`. Any thread may call this.
  [[nodiscard]] stream_state state() const { return state_at(core().next_position()); }
  /// Returns the state of a loop whose next batch is `next`. Throws `state_mismatch` unless `next`
  /// follows one of the last 1,024 batches. Any thread may call this.
  [[nodiscard]] stream_state state_at(const batch_position& next) const {
    return core().state_at(next);
  }
  /// Returns the position of `state`, and makes its token known, so that a loop can start there.
  /// Any thread may call this.
  [[nodiscard]] batch_position position_of(const stream_state& state) const {
    core().remember(state);
    return {state.epoch, state.batch};
  }
  /// Continues after the batch at which `state` was saved, up to but excluding epoch `last_epoch`.
  /// Calls `seek` with the state.
  [[nodiscard]] range_type resume(const stream_state& state, std::uint64_t last_epoch) & {
    return batches(position_of(state), until_epoch{last_epoch});
  }

  /// Returns the location of the `fill` exception that ended the last range: the stage "fill" and
  /// the batch that `fill` would have filled. Any thread may call this.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return core().last_failure();
  }
  /// Returns the memory footprint of the slots. Any thread may call this.
  [[nodiscard]] loader_footprint footprint() const {
    const auto& ring = *core().ring();
    return {.slot_count = ring.count(),
            .slots_requested = ring.granted().requested(),
            .slot_bytes = ring.layout().bytes(),
            .bytes = ring.bytes(),
            .pinned = ring.pinned(),
            .registration_failed = ring.registration_failed(),
            .failed_bytes = ring.granted().failed_bytes()};
  }

  /// Returns the device that receives the batches.
  [[nodiscard]] const Device& device() const noexcept { return core().ring()->device(); }
  /// Returns the batch layout.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept {
    return core().ring()->layout().template as<Record>();
  }
  /// Starts at the batch `from`. Discards batches that were filled earlier.
  void start(const batch_position& from, std::uint64_t last_epoch) {
    core().start(from, last_epoch);
  }
  /// Waits for the next batch and returns it, or returns an empty batch at the end. Without
  /// `start`, starts at batch 0 of epoch 0.
  [[nodiscard]] batch_type next() {
    if (!core().was_started()) start({}, detail::endless);
    return flow_->take(true);
  }
  /// Returns the next batch if it is ready, otherwise an empty batch.
  [[nodiscard]] batch_type try_next() { return flow_->take(false); }
  /// Stops the reader threads after their current batches.
  void stop() noexcept { core().stop(); }
  /// Returns true if `next` would immediately return an empty batch.
  [[nodiscard]] bool at_end() const noexcept { return core().at_end(); }
  /// Returns the stop token of the options, which ends the waits of a feed.
  [[nodiscard]] std::stop_token stop_token() const noexcept { return core().options().stop; }

 private:
  template <class Fill>
  streamed(const Device& device, const record_extents<Record>& extents, Fill fill,
           const streamed_options& options, const loader_options& memory)
      : flow_(make(device,
                   batch_layout<Record>{detail::extents_for(extents, memory), options.batch_size},
                   std::move(fill), options, memory)) {}

  template <class Fill>
  [[nodiscard]] static std::shared_ptr<flow> make(const Device& device,
                                                  const batch_layout<Record>& layout, Fill fill,
                                                  const streamed_options& options,
                                                  const loader_options& memory) {
    // Shared, because std::function requires a copyable function.
    auto call = [layout, fill = std::make_shared<Fill>(std::move(fill))](std::byte* slab,
                                                                         stream_turn& turn) {
      const batch_view<Record> view{slab, layout, 0, layout.batch_size()};
      if constexpr (std::invocable<Fill&, const batch_view<Record>&, stream_turn&>) {
        return static_cast<std::size_t>((*fill)(view, turn));
      } else {
        return static_cast<std::size_t>((*fill)(view));
      }
    };
    return detail::shared_by_leases<flow, typename Device::stream_ref>(
        device, layout, std::move(call), options, memory);
  }

  [[nodiscard]] detail::stream_core<Device>& core() const noexcept { return flow_->core(); }

  std::shared_ptr<flow> flow_;  // shared with the ranges, which may outlive this object
};

static_assert(resumable_source<streamed<record<field<"x", float, 1>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
