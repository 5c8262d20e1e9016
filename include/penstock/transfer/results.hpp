// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/threads/worker_pool.hpp>
#include <penstock/transfer/detail/result_turns.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The options of `results`. Bad values throw `option_error` at construction.
struct results_options {
  /// Device slots: the batch whose results the step computes, and those whose results are on their
  /// way to the host. At least 1, which overlaps nothing.
  std::size_t depth = 3;
  /// Threads that consume. One consumes batch after batch, in the order of the loop; several do as
  /// the batches come, at once.
  std::size_t workers = 1;
  /// Host slots, page-locked: those that batches are copied to, and those that consumers hold. More
  /// where consumers keep leases after they return. `automatic`: `depth` and one for each worker,
  /// 1024 at most.
  std::size_t host_slots = automatic;
  /// What happens when a slot could come free only by the end of a lease that a consumer has kept:
  /// `wait`, or `fail` with `leases_exhausted`, which is for leases that the loop's thread ends.
  held_action when_held = held_action::wait;
  /// A request ends a wait for a slot or for a kept lease with `cancelled`.
  std::stop_token stop{};
  /// Records the loop's waits for a slot, the copies and the consumers, see `trace_recorder`; that
  /// of the transfer makes one picture of both. Null: nothing is recorded. As
  /// `transfer_options::observe.trace`.
  trace_recorder* trace = nullptr;
};

/// The memory of `results`, in bytes.
struct results_footprint {
  std::size_t slot_bytes = 0;    ///< of a batch of results
  std::size_t device_slots = 0;  ///< `results_options::depth`
  std::size_t device_bytes = 0;  ///< of those, what `results::device_bytes` says then
  std::size_t host_slots = 0;    ///< page-locked ones
  std::size_t host_bytes = 0;    ///< of those, what `results::host_bytes` says then

  friend bool operator==(const results_footprint&, const results_footprint&) = default;
};

/// A batch of results that can't be taken, or does not hold what its record says.
class [[gnu::visibility("default")]] results_error : public error {
 public:
  using error::error;
};

namespace detail {

/// The options, with `host_slots` as a number. Throws `option_error`.
[[nodiscard]] inline results_options checked_results(results_options options) {
  constexpr std::size_t most = 1024;
  const auto require = [](const char* name, std::size_t value, std::size_t least) {
    if (value >= least && value <= most) return;
    refuse_option(name, {value, " is not in ", least, "..", most});
  };
  require("depth", options.depth, 1);
  require("workers", options.workers, 1);
  if (options.host_slots == automatic)
    options.host_slots = (std::min)(options.depth + options.workers, most);
  require("host_slots", options.host_slots, 1);
  return options;
}

/// The memory of `results`, on both sides, and how batches get from one to the other. Lives until
/// the last lease is gone.
template <record_type Record, device Device>
class result_ring {
 public:
  using stream_ref = typename Device::stream_ref;

  /// What is known of the batch in a slot. All memory is taken at construction.
  struct entry {
    batch_info info;
    std::vector<std::uint64_t> tags;     // one for each sample, or none
    std::vector<std::uint64_t> indices;  // likewise
    // On the device: the step is past it. On the host: the copy into it is complete.
    typename Device::event_type event;
  };
  /// The slots of one side, as `lease` wants them.
  struct side {
    result_ring* ring = nullptr;
    slab<Device>* memory = nullptr;
    std::vector<entry> entries{};

    [[nodiscard]] std::byte* data(std::size_t slot) const noexcept {
      return memory->slot(slot, layout().bytes());
    }
    [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return ring->layout_; }
  };

  /// Throws `out_of_memory`, and what the device throws.
  result_ring(const Device& device, const batch_layout<Record>& layout, std::size_t device_slots,
              std::size_t host_slots)
      : turns(device_slots, host_slots),
        device_(device),
        layout_(layout),
        host_memory_(device, bytes_of_slots("pinned", layout.bytes(), host_slots),
                     memory_kind::pinned, layout.bytes()),
        device_memory_(device, bytes_of_slots("device", layout.bytes(), device_slots),
                       memory_kind::device),
        copies_(device.make_stream()) {
    unmarked.reserve(device_slots);
    prepare(on_device, device_memory_, device_slots, event_wait::by_streams);
    prepare(on_host, host_memory_, host_slots, event_wait::by_host);
    host_memory_.addresses().name_fields(layout_);
    // After all that may throw: a checked build forbids the memory, and the destructor allows it.
    for (std::size_t i = 0; i < host_slots; ++i) host_memory_.forbid(i);
  }
  result_ring(result_ring&&) = delete;
  /// The memory goes: neither steps nor copies may still use it.
  ~result_ring() {
    for (const entry& one : on_device.entries) settle(device_, one.event);
    if (!unmarked.empty()) settle_everything(device_);
    settle(device_, copies_);  // where a copy has no event, because the device refused to record it
    for (std::size_t i = 0; i < on_host.entries.size(); ++i) host_memory_.allow(i);
  }

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  [[nodiscard]] std::size_t device_bytes() const noexcept { return device_memory_.bytes(); }
  [[nodiscard]] std::size_t host_bytes() const noexcept { return host_memory_.bytes(); }
  [[nodiscard]] bool pinned() const noexcept { return host_memory_.pinned(); }

  /// The slot is for the results of this batch.
  void begin(std::uint32_t slot, const batch_info& info, std::span<const std::uint64_t> tags,
             std::span<const std::uint64_t> indices) noexcept {
    entry& to = on_device.entries[slot];
    to.info = info;
    to.tags.assign(tags.begin(), tags.end());  // has room, as the next one
    to.indices.assign(indices.begin(), indices.end());
  }
  /// The step's work on the slot ends where `stream` is now. Throws what the device throws, and
  /// that a stream is being captured: the copy would become a part of the program's graph.
  void note_computed(std::uint32_t slot, stream_ref stream) {
    require_still_usable(device_, stream);
    device_.record(on_device.entries[slot].event, stream);
  }

  /// Queues the copy of `what`, after the step. Throws what the device throws.
  void queue_copy(const result_turns::job& what) {
    entry& from = on_device.entries[what.device_slot];
    entry& to = on_host.entries[what.host_slot];
    host_memory_.allow(what.host_slot);
    device_.wait(copies_, from.event);
    device_.copy_async(on_host.data(what.host_slot), on_device.data(what.device_slot),
                       layout_.used_bytes(from.info.size), copies_);
    device_.record(to.event, copies_);
    host_memory_.addresses().name_batch(what.host_slot, from.info);
    to.info = from.info;
    to.tags.swap(from.tags);
    to.indices.swap(from.indices);
  }
  /// Waits for that copy. Throws what the device throws.
  void wait_for_copy(const result_turns::job& what) {
    device_.synchronize(on_host.entries[what.host_slot].event);
  }
  /// The lease of a host slot ends.
  void release(std::uint32_t slot) noexcept {
    if (process.is_in_child()) return;
    host_memory_.erase(slot);
    host_memory_.forbid(slot);
    turns.note_release(slot);
  }

  /// Throws `std::logic_error` in a child made by fork(), which has none of the threads.
  void require_threads() const {
    process.require("results", "finish there, and make results of its own here");
  }
  /// In such a child: nothing of this is used any more, nor destroyed. The threads are not here to
  /// be waited for, and may have held any lock when the process was copied.
  void keep(const std::shared_ptr<result_ring>& self) noexcept { kept_ = self; }

  fork_guard process{true};
  result_turns turns;
  side on_device;
  side on_host;
  // The loop's: slots that were dropped, of which no event tells when their step is over.
  std::vector<std::uint32_t> unmarked;
  std::atomic<std::uint64_t> discarded{0};  // relaxed: a number for statistics
  std::atomic<std::uint64_t> handed_in{0};  // likewise

 private:
  void prepare(side& to, slab<Device>& memory, std::size_t count, event_wait waits) {
    to.ring = this;
    to.memory = &memory;
    while (to.entries.size() < count) {
      entry& one = to.entries.emplace_back(entry{{}, {}, {}, device_.make_event(waits)});
      one.tags.reserve(layout_.batch_size());
      one.indices.reserve(layout_.batch_size());
    }
  }

  std::shared_ptr<result_ring> kept_;
  Device device_;
  batch_layout<Record> layout_;
  slab<Device> host_memory_;
  slab<Device> device_memory_;
  typename Device::stream_type copies_;
};

/// Throws `results_error` unless the offsets of each ragged field ascend from 0 to what there is
/// room for: they were computed by the program's kernels.
template <record_type Record>
void require_offsets(const batch_layout<Record>& layout, const std::byte* slab,
                     std::size_t samples) {
  for_each_ragged<Record>([&]<std::size_t Index>() {
    const auto capacity = static_cast<std::int64_t>(layout.template capacity<Index>());
    std::int64_t before = 0;
    for (std::size_t i = 0; i <= samples; ++i) {
      const std::int64_t at = layout.template value_begin<Index>(slab, i);
      if (at >= before && at <= capacity && (i != 0 || at == 0)) {
        before = at;
        continue;
      }
      throw results_error(
          joined({"results: field \"", Record::template field_at<Index>::key.str(), "\": offset ",
                  i, " is ", at, ", not in ", i == 0 ? 0 : before, "..", i == 0 ? 0 : capacity,
                  ": the step has to write the offsets of all samples, and no more values than the "
                  "layout has room for (values_per_batch)"}));
    }
  });
}

/// A lease of a slot of one side.
template <record_type Record, device Device>
using result_lease =
    lease<Record, slot_lease<typename result_ring<Record, Device>::side, std::uint32_t>>;

}  // namespace detail

/// A device slot for the results of one batch, which the step writes to: `get<"score">(slot)` is
/// device memory, which still has what an earlier batch left there. Move-only. `send` hands the
/// results in; a slot that is destroyed without it is discarded, and its batch has no results. Used
/// by the loop's thread.
template <record_type Record, device Device>
class result_slot : public detail::result_lease<Record, Device> {
  using ring_type = detail::result_ring<Record, Device>;
  using side_type = typename ring_type::side;
  using base = detail::result_lease<Record, Device>;
  using base::guard_;
  using base::slot_;
  using base::slots_;

 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  /// An empty slot.
  result_slot() = default;
  /// The slot `slot`, for work on `stream`: for `results`.
  result_slot(std::shared_ptr<side_type> side, std::uint32_t slot, const batch_info& info,
              stream_ref stream) noexcept(!detail::checked)
      : base(std::move(side), slot, info, detail::lease_guard{info.epoch, info.batch}),
        stream_(stream) {}
  result_slot(result_slot&&) noexcept = default;
  /// A copy does not compile, and says why.
  template <std::same_as<result_slot> Lease>
  result_slot(Lease&) {  // NOLINT: implicit, as a copy is
    detail::refuse_copy_of_lease<Lease>();
  }
  result_slot& operator=(result_slot&& other) noexcept {
    if (this != &other) {
      discard();
      stream_ = other.stream_;
      base::operator=(std::move(other));
    }
    return *this;
  }
  ~result_slot() { discard(); }

  /// Hands the results in: they are copied to the host after all work that the loop's stream was
  /// given by now, and then consumed. One record on that stream, and no wait. The slot is empty
  /// then. False, and the slot is discarded, after a failure, which the next `take` throws, and
  /// after `close`. Throws what the device throws, such as `capture_in_progress`, and keeps the
  /// slot then.
  bool send() {
    base::use();
    ring_type& ring = *slots_->ring;
    ring.require_threads();
    ring.note_computed(slot_, *stream_);
    end_for_host();
    const auto side = std::move(slots_);
    const bool is_in = ring.turns.hand_in(slot_);
    (is_in ? ring.handed_in : ring.discarded).fetch_add(1, std::memory_order_relaxed);
    return is_in;
  }

  /// The stream that the results are to be computed on.
  [[nodiscard]] stream_ref stream() const noexcept {
    base::use();
    return *stream_;
  }

 private:
  void discard() noexcept {
    if (slots_ == nullptr) return;
    end_for_host();
    const auto side = std::move(slots_);
    ring_type& ring = *side->ring;
    if (ring.process.is_in_child()) return;
    try {
      ring.note_computed(slot_, *stream_);  // the memory may go before the step is over
    } catch (...) {
      return give_back_unmarked(ring);
    }
    give_back(ring);
  }
  /// The step that the stream has been given may still use its views.
  void end_for_host() noexcept {
    guard_.end_behind(1).behind(*stream_, []() noexcept {});
  }
  void give_back(ring_type& ring) noexcept {
    ring.discarded.fetch_add(1, std::memory_order_relaxed);
    ring.turns.put_back(slot_);
  }
  /// No event tells when the step is over: it is waited for, here or by the next `take`.
  void give_back_unmarked(ring_type& ring) noexcept {
    if (detail::settle(ring.device(), *stream_)) return give_back(ring);
    ring.discarded.fetch_add(1, std::memory_order_relaxed);
    ring.unmarked.push_back(slot_);  // has room
  }

  std::optional<stream_ref> stream_;
};

/// The results of one batch in page-locked host memory, as a consumer gets them: with the
/// `batch_info` of the batch that they belong to. Move-only; its end gives the slot back. A
/// consumer may move it out and keep it, also beyond the `results`. Used by one thread at a time;
/// may be destroyed on any.
template <record_type Record, device Device>
class result_batch : public detail::result_lease<Record, Device> {
  using side_type = typename detail::result_ring<Record, Device>::side;
  using base = detail::result_lease<Record, Device>;
  using base::guard_;
  using base::slot_;
  using base::slots_;

 public:
  using device_type = Device;

  /// An empty lease.
  result_batch() = default;
  /// The batch in `slot`: for `results`.
  result_batch(std::shared_ptr<side_type> side, std::uint32_t slot,
               const batch_info& info) noexcept(!detail::checked)
      : base(std::move(side), slot, info, detail::lease_guard{info.epoch, info.batch}) {}
  result_batch(result_batch&&) noexcept = default;
  /// A copy does not compile, and says why.
  template <std::same_as<result_batch> Lease>
  result_batch(Lease&) {  // NOLINT: implicit, as a copy is
    detail::refuse_copy_of_lease<Lease>();
  }
  result_batch& operator=(result_batch&& other) noexcept {
    if (this != &other) {
      release();
      base::operator=(std::move(other));
    }
    return *this;
  }
  ~result_batch() { release(); }

  /// Which samples the batch had, as `device_batch::indices`: empty unless the loop's batches have
  /// them (`loader_options::observe.indices`).
  [[nodiscard]] std::span<const std::uint64_t> indices() const noexcept {
    base::use();
    return slots_->entries[slot_].indices;
  }
  /// A word for each sample from the batch's source, as `device_batch::tags`; or none.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    base::use();
    return slots_->entries[slot_].tags;
  }

 private:
  void release() noexcept {
    if (slots_ == nullptr) return;
    guard_.end();
    const auto side = std::move(slots_);
    side->ring->release(slot_);
  }
};

/// Carries the results of steps from a device to threads on the host: the mirror of `transfer`. A
/// step writes to a device slot; `send` lets the copy into page-locked memory run under the next
/// steps; worker threads consume what has arrived.
///
///     using scores = ps::record<ps::field<"score", float, 10>>;
///     ps::results<scores, ps::cuda_device> out{device, stream, 256, [&](auto& done) {
///       write(file, done.indices(), ps::get<"score">(done));
///     }};
///     for (auto& batch : feed.epoch(0)) {
///       auto slot = out.take(batch);
///       infer<<<..., stream>>>(ps::get<"image">(batch), ps::get<"score">(slot));
///       slot.send();
///     }
///     out.finish();
///
/// For the loop a batch costs one record on its stream; a worker has the copy stream wait for it,
/// queues the copy, records its end, and sleeps until then. Nothing synchronises with the loop's
/// stream. `take` waits while all `depth` slots are on their way or consumers are behind.
///
/// `consume(result_batch<Record, Device>&)` is called on a worker, once for each batch that was
/// handed in: with one worker in the order of `send`, else as they come, by several workers at
/// once. What it throws ends the flow: no further batch is consumed, and the loop's next `take`,
/// `finish` or `close` throws the exception; `last_failure` names the batch. So does an error of
/// the device.
///
/// All memory is taken at construction: `depth` batches on the device, `host_slots` page-locked.
/// `take`, `send`, `finish` and `close` are for one thread, the loop's. The stream must outlive
/// every slot. The destructor closes: it waits until all that was handed in is consumed, unless
/// only the end of leases that consumers have kept would let it go on, and says on stderr what
/// nobody has asked for.
///
/// Construction throws `option_error`, `layout_error`, `out_of_memory`, `std::system_error` for a
/// thread, and what the device throws.
template <record_type Record, device Device = cpu_device>
class results {
  using ring_type = detail::result_ring<Record, Device>;
  using job = detail::result_turns::job;
  using pool_type =
      worker_pool<std::function<void(std::stop_token, std::size_t)>, std::function<void()>>;

 public:
  using record_type = Record;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;
  /// What `take` gives the loop.
  using slot_type = result_slot<Record, Device>;
  using batch_type = result_batch<Record, Device>;
  /// Called on a worker for each batch.
  using consumer_type = std::function<void(batch_type&)>;

  /// For batches of `layout.batch_size()` samples at most, which steps on `stream` compute.
  results(const Device& device, stream_ref stream, const batch_layout<Record>& layout,
          consumer_type consume, results_options options = {})
      : options_(detail::checked_results(std::move(options))),
        stream_(usable(device, stream)),
        consume_(callable(std::move(consume))),
        ring_(detail::shared_by_leases<ring_type, stream_ref>(device, layout, options_.depth,
                                                              options_.host_slots)),
        traces_(tracks(options_)),
        pool_(std::make_unique<pool_type>(
            options_.workers,
            [this](const std::stop_token&, std::size_t worker) { work(traces_[worker + 1].get()); },
            [this]() noexcept { ring_->turns.close(); })) {}
  /// For records whose extents are all known.
  results(const Device& device, stream_ref stream, std::size_t batch_size, consumer_type consume,
          results_options options = {})
    requires(!Record::has_dynamic_extents && Record::ragged_fields == 0)
      : results(device, stream, batch_layout<Record>{{}, batch_size}, std::move(consume),
                std::move(options)) {}
  /// The loop's body is the step: for the CPU device.
  results(const Device& device, std::size_t batch_size, consumer_type consume,
          results_options options = {})
    requires(!Record::has_dynamic_extents && Record::ragged_fields == 0 &&
             requires { device.inline_stream(); })
      : results(device, device.inline_stream(), batch_size, std::move(consume),
                std::move(options)) {}
  results(results&&) = delete;
  ~results() {
    if (ring_->process.is_in_child()) {
      static_cast<void>(pool_.release());
      ring_->keep(ring_);
      return;
    }
    try {
      close();
    } catch (...) {
      detail::print_unasked("results: an", std::current_exception());
    }
  }

  /// A slot for the results of `batch`: a lease of a transfer's or a loader's batch, or its
  /// `batch_info`. Waits while all are on their way. Throws what a consumer or the device has
  /// thrown; `cancelled` after a stop request; `leases_exhausted`, see `when_held`, and where the
  /// loop has taken all slots and sent none;
  /// `results_error` for more samples than there is room for, for the batch that has got the last
  /// slot, and after `close`.
  template <class Batch = batch_info>
  [[nodiscard]] slot_type take(const Batch& batch) {
    std::span<const std::uint64_t> tags;
    std::span<const std::uint64_t> indices;
    if constexpr (requires { batch.tags(); }) tags = batch.tags();
    if constexpr (requires { batch.indices(); }) indices = batch.indices();
    return take(info_of(batch), tags, indices);
  }
  /// As above, with what is to go along: one tag and one index for each sample, or none.
  [[nodiscard]] slot_type take(const batch_info& info, std::span<const std::uint64_t> tags,
                               std::span<const std::uint64_t> indices) {
    rethrow();
    require_fit(info, tags.size(), indices.size());
    take_back_unmarked();
    const std::stop_callback on_stop{options_.stop, [this]() noexcept { ring_->turns.wake(); }};
    detail::trace_writer* const trace = traces_.front().get();
    const std::uint64_t begin = trace != nullptr ? trace->now() : 0;
    const auto got =
        ring_->turns.take([this] { return options_.stop.stop_requested(); }, may_wait());
    waited_.fetch_add(got.waited.count(), std::memory_order_relaxed);
    if (trace != nullptr && got.waited.count() != 0) {
      trace->note_wait(trace_stage::wait_for_slot, begin, trace->now());
      trace->work_on(info);
    }
    if (got.what != detail::result_turns::outcome::slot) refuse(got.what);
    taken_.fetch_add(1, std::memory_order_relaxed);
    last_ = {{info.epoch, info.batch}, ring_->discarded.load(std::memory_order_relaxed)};
    ring_->begin(got.slot, info, tags, indices);
    return {std::shared_ptr<typename ring_type::side>{ring_, &ring_->on_device}, got.slot, info,
            stream_};
  }

  /// Waits until all that was handed in has been consumed. Throws what a consumer or the device has
  /// thrown; where consumers have kept leases of all host slots `leases_exhausted`, see
  /// `when_held`, or `cancelled` after a stop request. Nothing is lost by these two, and more may
  /// be taken afterwards.
  void finish() {
    ring_->require_threads();
    const std::stop_callback on_stop{options_.stop, [this]() noexcept { ring_->turns.wake(); }};
    const bool is_done =
        ring_->turns.finish([this] { return !may_wait() || options_.stop.stop_requested(); });
    rethrow();
    if (is_done) return last_.reset();
    if (!may_wait()) throw_held();
    throw cancelled("cancelled: a stop was requested while kept leases held all host slots");
  }
  /// Throws what a consumer or the device has thrown, if one has: what `take` and `finish` do
  /// first. For the loop's thread, before it waits for something else. Waits for nothing.
  void rethrow() {
    ring_->require_threads();
    std::unique_lock lock{mutex_};
    if (!error_) return;
    const std::exception_ptr error = error_;
    lock.unlock();
    is_reported_ = true;
    std::rethrow_exception(error);
  }
  /// Ends the flow: waits until all that was handed in is consumed, and ends the workers. Nothing
  /// is taken any more. Does not wait for leases that consumers have kept, as `finish` does: where
  /// batches have no host slot for that reason they are lost, and it throws `leases_exhausted`.
  void close() {
    ring_->require_threads();
    ring_->turns.close();
    pool_->stop();
    if (!is_reported_) rethrow();
  }

  /// Which batch the exception belongs to that has ended the flow; nothing if none has. From any
  /// thread, as `stats`.
  [[nodiscard]] std::optional<failure> last_failure() const noexcept { return failure_.load(); }
  /// What has happened so far.
  [[nodiscard]] results_stats stats() const noexcept {
    const auto time = [](const std::atomic<std::int64_t>& of) {
      return std::chrono::nanoseconds{of.load(std::memory_order_relaxed)};
    };
    return {options_.workers,
            taken_.load(std::memory_order_relaxed),
            ring_->handed_in.load(std::memory_order_relaxed),
            ring_->discarded.load(std::memory_order_relaxed),
            consumed_.load(std::memory_order_relaxed),
            time(waited_),
            time(copying_),
            time(consuming_)};
  }
  /// The bytes of device memory that the slots take.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return ring_->device_bytes(); }
  /// The bytes of host memory that the slots take.
  [[nodiscard]] std::size_t host_bytes() const noexcept { return ring_->host_bytes(); }
  /// Whether that is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return ring_->pinned(); }

 private:
  /// What records the loop, and each worker; null: not recorded.
  static std::vector<std::shared_ptr<detail::trace_writer>> tracks(const results_options& options) {
    std::vector<std::shared_ptr<detail::trace_writer>> all(1 + options.workers);
    if (options.trace == nullptr) return all;
    const std::uint64_t flow = options.trace->new_flow();
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = options.trace->add_track(
          i == 0 ? "penstock results" : detail::joined({"penstock results worker ", i - 1}), flow,
          options.trace->capacity());
    }
    return all;
  }
  static consumer_type callable(consumer_type consume) {
    if (!consume) throw option_error("consume", "is an empty function: pass one to call per batch");
    return consume;
  }
  static stream_ref usable(const Device& device, stream_ref stream) {
    device.require_usable(stream);
    return stream;
  }

  template <class Batch>
  [[nodiscard]] static const batch_info& info_of(const Batch& batch) noexcept {
    if constexpr (std::same_as<Batch, batch_info>) {
      return batch;
    } else {
      return batch.info();
    }
  }
  [[nodiscard]] bool may_wait() const noexcept { return options_.when_held == held_action::wait; }

  void require_fit(const batch_info& info, std::size_t tags, std::size_t indices) const {
    const std::size_t room = ring_->layout().batch_size();
    const std::string where =
        detail::joined({"results: batch ", info.batch, " of epoch ", info.epoch});
    if (info.size > room) {
      throw results_error(
          detail::joined({where, " has ", info.size, " samples, and a slot has room for ", room,
                          ": make results for the batch_size of the loader"}));
    }
    if (tags > info.size || indices > info.size) {
      throw results_error(detail::joined(
          {where, " has ", info.size, " samples, but ", tags, " tags and ", indices, " indices"}));
    }
    if (last_ && last_->at == batch_position{info.epoch, info.batch} &&
        last_->discarded == ring_->discarded.load(std::memory_order_relaxed)) {
      throw results_error(detail::joined(
          {where, " has got a slot before: take one for each batch, or discard the first"}));
    }
  }
  /// Slots whose step could not be waited for when they were dropped, as during a capture.
  void take_back_unmarked() noexcept {
    if (ring_->unmarked.empty() || !detail::settle(ring_->device(), stream_)) return;
    for (const std::uint32_t slot : ring_->unmarked) ring_->turns.put_back(slot);
    ring_->unmarked.clear();
  }
  [[noreturn]] void refuse(detail::result_turns::outcome why) {
    using enum detail::result_turns::outcome;
    rethrow();
    if (why == stopped) {
      throw cancelled("cancelled: a stop was requested while all slots for results were in use");
    }
    if (why == held) throw_held();
    if (why == all_taken) {
      const std::size_t dropped = ring_->unmarked.size();
      throw leases_exhausted(
          dropped == 0 ? detail::joined({"results: the loop has taken all ", options_.depth,
                                         " device slots: send or discard one, or raise depth"})
                       : detail::joined({"results: of ", options_.depth,
                                         " device slots the loop has dropped ", dropped,
                                         " whose step can't be waited for, and has taken the "
                                         "others: end a capture of its stream, or send one"}));
    }
    throw results_error("results: take after close");
  }
  [[noreturn]] void throw_held() const {
    throw leases_exhausted(detail::joined(
        {"results: leases that consumers have kept hold all ", options_.host_slots,
         " host slots: end one, raise host_slots, or let it wait for leases that end on other "
         "threads (when_held)"}));
  }

  /// Ends the flow by the exception that is being handled, unless one has ended it; `at`: of which
  /// batch.
  void fail(const std::optional<batch_position>& at) noexcept {
    {
      const std::lock_guard lock{mutex_};
      if (error_) return;
      error_ = std::current_exception();
      if (at) failure_.store(failure{"results", at->epoch, at->batch});
    }
    ring_->turns.fail();
  }

  void work(detail::trace_writer* trace) noexcept {
    ring_type& ring = *ring_;
    std::optional<batch_position> at;
    try {
      ring.device().make_current();
      for (;;) {
        const job next = ring.turns.next();
        if (next.what == detail::result_turns::step::end) return;
        const auto& entry = next.what == detail::result_turns::step::deliver
                                ? ring.on_host.entries[next.host_slot]
                                : ring.on_device.entries[next.device_slot];
        at = batch_position{entry.info.epoch, entry.info.batch};
        if (next.what == detail::result_turns::step::stuck) throw_held();
        if (next.what == detail::result_turns::step::copy) {
          {
            const detail::noted_copy noted{trace, entry.info};
            ring.queue_copy(next);
          }
          ring.turns.note_copy(next);
        } else {
          deliver(next, trace);
        }
      }
    } catch (...) {
      fail(at);
    }
  }
  void deliver(const job& next, detail::trace_writer* trace) {
    ring_type& ring = *ring_;
    const batch_info info = ring.on_host.entries[next.host_slot].info;
    const auto begun = std::chrono::steady_clock::now();
    const std::uint64_t begin = trace != nullptr ? trace->now() : 0;
    ring.wait_for_copy(next);
    ring.turns.note_arrival(next.device_slot);
    const auto arrived = std::chrono::steady_clock::now();
    if (trace != nullptr) trace->note_wait(trace_stage::wait_for_copy, begin, trace->now());
    {
      batch_type done{std::shared_ptr<typename ring_type::side>{ring_, &ring.on_host},
                      next.host_slot, info};
      if constexpr (Record::ragged_fields != 0) {
        detail::require_offsets(ring.layout(), std::as_const(done).data(), done.size());
      }
      [[maybe_unused]] const detail::stage_mark mark{detail::marked_stage::consume, info.batch};
      const detail::trace_scope traced{trace, trace_stage::consume, info, info.size};
      consume_(done);
    }
    add(copying_, arrived - begun);
    add(consuming_, std::chrono::steady_clock::now() - arrived);
    consumed_.fetch_add(1, std::memory_order_relaxed);
    ring.turns.note_consumed();
  }

  static void add(std::atomic<std::int64_t>& to,
                  std::chrono::steady_clock::duration time) noexcept {
    to.fetch_add(std::chrono::nanoseconds{time}.count(), std::memory_order_relaxed);
  }

  struct last_taken {
    batch_position at;
    std::uint64_t discarded = 0;  // slots by then
  };

  results_options options_;
  stream_ref stream_;
  consumer_type consume_;
  std::shared_ptr<ring_type> ring_;
  std::optional<last_taken> last_;  // of the loop's thread
  bool is_reported_ = false;        // likewise
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint64_t> consumed_{0};
  std::atomic<std::int64_t> waited_{0};  // nanoseconds, as the next two
  std::atomic<std::int64_t> copying_{0};
  std::atomic<std::int64_t> consuming_{0};
  std::mutex mutex_;          // guards the next one, and is held where the one after it is written
  std::exception_ptr error_;  // what has ended the flow
  detail::shared_value<std::optional<failure>> failure_;
  std::vector<std::shared_ptr<detail::trace_writer>> traces_;  // of the loop, and of each worker
  std::unique_ptr<pool_type> pool_;                            // released in a child process
};

/// The memory that `results` of this layout take with these options, before anything is taken.
/// Throws `option_error`.
template <record_type Record>
[[nodiscard]] results_footprint footprint(const batch_layout<Record>& layout,
                                          const results_options& options) {
  const results_options all = detail::checked_results(options);
  const auto bytes = [&](std::size_t count) {
    return static_cast<std::size_t>(detail::saturating_product(count, layout.bytes()));
  };
  return {layout.bytes(), all.depth, bytes(all.depth), all.host_slots, bytes(all.host_slots)};
}

/// The batches of a range together with slots for their results: `joined(feed.epoch(0), out)`.
template <class Range, class Results>
class joined_range {
 public:
  /// A batch, and the slot for its results.
  struct step {
    typename Range::batch_type& batch;  ///< the range's lease
    typename Results::slot_type out;    ///< sent by `++`, unless the body has done so
  };

  /// An input iterator.
  class iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = step;
    using difference_type = std::ptrdiff_t;

    iterator() = default;
    [[nodiscard]] step& operator*() const noexcept { return *owner_->step_; }
    iterator& operator++() {
      owner_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& it, std::default_sentinel_t) noexcept {
      return it.is_at_end();
    }

   private:
    friend class joined_range;
    explicit iterator(joined_range* owner) noexcept : owner_(owner) {}
    [[nodiscard]] bool is_at_end() const noexcept { return owner_ == nullptr || !owner_->step_; }
    joined_range* owner_ = nullptr;
  };

  /// The batches of `range`; `out` must outlive it.
  joined_range(Range range, Results& out) : range_(std::move(range)), out_(&out) {}

  /// Starts reading, see `batch_range::begin`, and takes the first slot.
  [[nodiscard]] iterator begin() {
    step_.reset();
    at_ = range_.begin();
    take();
    return iterator{this};
  }
  /// The end, which the iterator compares with.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  void take() {
    if (at_ != std::default_sentinel) step_.emplace(step{*at_, out_->take(*at_)});
  }
  void advance() {
    if (!step_) return;
    // Before the batch is released: both are recorded on the loop's stream after the step.
    if (step_->out) step_->out.send();
    step_.reset();
    out_->rethrow();  // before the source is waited for, whose batch would get no slot
    ++at_;
    take();
  }

  Range range_;
  Results* out_;
  typename Range::iterator at_;
  std::optional<step> step_;
};

/// Loops over batches and slots for their results at once:
///
///     for (auto& [batch, out] : ps::joined(feed.epochs(0, 5), results)) step(batch, out, stream);
///
/// `++` sends the slot, unless the body has sent, dropped or moved it, and goes on to the next
/// batch. A loop that is left early, by `break` or an exception, discards the slot of its last
/// batch: call `out.send()` before a `break` where its results are there.
template <class Range, class Results>
[[nodiscard]] joined_range<Range, Results> joined(Range range, Results& out) {
  return {std::move(range), out};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
