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
#include <penstock/device/stream_timeline.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/stage_probe.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/threads/worker_pool.hpp>
#include <penstock/transfer/options.hpp>
#include <penstock_ext/results/detail/result_queue.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The options of `results`, whose constructor throws `option_error` for invalid values.
struct results_options {
  /// Device slots: one for the batch whose results the step computes, and the others for batches
  /// whose results are on their way to the host. At least 1, in which case nothing overlaps. There
  /// are `depth` + `workers` page-locked host slots. Use a larger depth if consumers keep leases
  /// after they return, and 8 or more if a result takes only microseconds to copy.
  std::size_t depth = 3;
  /// Number of threads that consume. A single thread consumes the batches in the order of the loop.
  /// Several threads consume batches concurrently, as they arrive.
  std::size_t workers = 1;
  /// Selects what happens if a slot can only become free when a consumer ends a lease that it has
  /// kept. `wait` waits. `fail` throws `leases_exhausted`; use it if the loop's thread itself ends
  /// these leases.
  exhausted_action on_slots_exhausted = exhausted_action::wait;
  /// If a stop is requested, a wait for a slot or for a kept lease throws `cancelled`.
  std::stop_token stop{};
  /// Records the loop's waits for a slot, the copies and the consumers (see `trace_recorder`). Use
  /// the recorder of the transfer to see both in one trace. If null, nothing is recorded. See
  /// `transfer_options::instrumentation.trace`.
  trace_target trace = nullptr;
};

/// The memory of `results`, in bytes.
struct results_footprint {
  std::size_t slot_bytes = 0;    ///< bytes of a batch of results
  std::size_t device_slots = 0;  ///< `results_options::depth`
  std::size_t device_bytes = 0;  ///< bytes of the device slots, as `results::device_bytes` returns
  std::size_t host_slots = 0;    ///< the number of page-locked slots
  std::size_t host_bytes = 0;    ///< bytes of the host slots, as `results::host_bytes` returns

  friend bool operator==(const results_footprint&, const results_footprint&) = default;
};

/// Thrown if a batch of results cannot be taken or does not match its record, or if the feed and
/// the results have different streams.
class [[gnu::visibility("default")]] results_error : public error {
 public:
  using error::error;
};

namespace detail {

/// Returns the options if they are valid. Throws `option_error` otherwise.
[[nodiscard]] inline results_options checked_results(results_options options) {
  constexpr std::size_t max = 1024;
  const auto require = [](const char* name, std::size_t value) {
    if (value >= 1 && value <= max) return;
    throw_option_error(name, {value, " is not in 1..", max});
  };
  require("depth", options.depth);
  require("workers", options.workers);
  return options;
}

/// Returns the number of page-locked slots: `depth` for the batches being copied, and one for each
/// worker.
[[nodiscard]] inline std::size_t host_slots_of(const results_options& options) noexcept {
  return options.depth + options.workers;
}

/// The device memory and host memory of `results`, and the copies between them. Lives until the
/// last lease has ended.
template <record_type Record, device Device>
class result_ring {
 public:
  using stream_ref = typename Device::stream_ref;
  // Needs no lock: only the loop's thread marks steps, and only one worker at a time marks copies.
  using timeline = stream_timeline<Device, no_lock>;

  /// The data of the batch in a slot. All memory is allocated at construction.
  struct entry {
    batch_info info;
    std::vector<std::uint64_t> tags;     // one for each sample, or none
    std::vector<std::uint64_t> indices;  // one for each sample, or none
    typename timeline::point end = 0;    // in a device slot, the end of the step
  };
  /// The slots of one side.
  struct side {
    using slot_number = std::uint32_t;

    side(result_ring& of, memory_kind kind, std::size_t count)
        : ring(of), memory(of.device_, kind, layout().bytes(), count), entries(count) {
      for (entry& one : entries) {
        one.tags.reserve(layout().batch_size());
        one.indices.reserve(layout().batch_size());
      }
    }

    [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept { return memory.slot(slot); }
    [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return ring.layout_; }

    result_ring& ring;
    slab<Device> memory;
    std::vector<entry> entries;
  };
  /// The slots that steps write to.
  struct device_side : side {
    using side::side;
    /// Ends the lease. The step on the stream may still use the views.
    void close_lease(std::uint32_t, const batch_info&, lease_guard& guard) noexcept {
      guard.end_behind(1).behind(this->ring.stream(), []() noexcept {});
    }
    /// Discards a slot whose lease ended without `send`.
    void release(std::uint32_t slot) noexcept { this->ring.discard(slot); }
  };
  /// The slots that consumers read.
  struct host_side : side {
    using side::side;
    void close_lease(std::uint32_t, const batch_info&, lease_guard& guard) noexcept { guard.end(); }
    void release(std::uint32_t slot) noexcept {
      if (this->ring.process.is_in_child()) return;
      this->memory.forbid(slot);
      this->ring.turns.on_release(slot);
    }
  };

  /// Propagates errors from the device, such as `out_of_memory`.
  result_ring(const Device& device, stream_ref stream, const batch_layout<Record>& layout,
              std::size_t device_slots, std::size_t host_slots)
      : turns(device_slots, host_slots),
        device_(device),
        layout_(layout),
        steps_(device, stream, device_slots + 1, event_wait::by_streams),
        copies_(device.make_stream()),
        copied_(device, copies_, 4 * (host_slots + 1), event_wait::by_host),
        on_host(*this, memory_kind::pinned, host_slots),
        on_device(*this, memory_kind::device, device_slots) {
    unmarked.reserve(device_slots);
    for (std::size_t i = 0; i < host_slots; ++i) on_host.memory.forbid(i);
  }
  result_ring(result_ring&&) = delete;
  /// Waits for the steps and copies that may still use the memory, and frees it. If waiting fails,
  /// leaks the memory.
  ~result_ring() {
    // Waits for the whole copy stream, because a copy has no point if recording it failed. If a
    // slot is unmarked, waits for the whole device, because the slot's step has no point.
    bool is_idle = synchronize_before_free(device_, stream_ref{copies_});
    for (const entry& one : on_device.entries) {
      is_idle = steps_.try_synchronize(one.end) && is_idle;
    }
    if (!unmarked.empty()) is_idle = synchronize_before_free(device_) && is_idle;
    if (!is_idle) {
      on_host.memory.leak();
      on_device.memory.leak();
    }
  }

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  /// The stream of the steps.
  [[nodiscard]] stream_ref stream() const noexcept { return steps_.stream(); }

  /// Prepares the slot for the results of this batch.
  void begin(std::uint32_t slot, const batch_info& info, std::span<const std::uint64_t> tags,
             std::span<const std::uint64_t> indices) noexcept {
    entry& to = on_device.entries[slot];
    to.info = info;
    to.tags.assign(tags.begin(), tags.end());  // reserved, like `to.indices`
    to.indices.assign(indices.begin(), indices.end());
  }
  /// Submits the slot, whose results are marked. If no worker would consume them, frees the slot
  /// and returns false.
  bool submit(std::uint32_t slot) noexcept {
    const bool is_in = turns.submit(slot);
    (is_in ? handed_in : discarded).fetch_add(1, std::memory_order_relaxed);
    return is_in;
  }
  /// Frees the slot without submitting results.
  void discard(std::uint32_t slot) noexcept {
    if (process.is_in_child()) return;
    discarded.fetch_add(1, std::memory_order_relaxed);
    // The program may free memory before the step has ended. If waiting for the step fails too, the
    // next `acquire` tries again.
    if (mark_computed(slot).is_lost) {
      unmarked.push_back(slot);  // has room
    } else {
      turns.put_back(slot);
    }
  }
  /// Marks the end of the step's work on the slot. Fails during a capture, because the copy would
  /// become a part of the program's graph.
  [[nodiscard]] typename timeline::marked mark_computed(std::uint32_t slot) noexcept {
    auto end = steps_.mark();
    if (!end.is_lost) on_device.entries[slot].end = end.at;
    return end;
  }

  /// Returns the number of jobs at the front of `jobs` whose steps have ended. Steps end in order,
  /// so a single query suffices if the last step has ended. Propagates errors from the device.
  [[nodiscard]] std::size_t count_computed(std::span<const result_queue::job> jobs) const {
    const auto is_computed = [&](const result_queue::job& what) {
      return steps_.reached(on_device.entries[what.device_slot].end);
    };
    if (is_computed(jobs.back())) return jobs.size();
    return static_cast<std::size_t>(std::ranges::find_if_not(jobs, is_computed) - jobs.begin());
  }
  /// Queues the copy of the results that `what` identifies, ordered after the step that computes
  /// them. Propagates errors from the device.
  void queue_copy(const result_queue::job& what) {
    entry& from = on_device.entries[what.device_slot];
    entry& to = on_host.entries[what.host_slot];
    on_host.memory.allow(what.host_slot);
    steps_.wait(from.end, copies_);
    device_.copy_async(on_host.data(what.host_slot), on_device.data(what.device_slot),
                       layout_.used_bytes(from.info.size), copies_);
    to.info = from.info;
    to.tags.swap(from.tags);
    to.indices.swap(from.indices);
  }
  /// Marks the end of the copies in `queued`. Propagates errors from the device.
  void mark_copies(std::span<result_queue::job> queued) {
    const auto end = copied_.mark(capture_check::done);  // the stream belongs to the library
    end.rethrow_error();
    for (result_queue::job& one : queued) one.end = end.at;
  }
  /// Waits until the copy of the results that `what` identifies has completed. A device that polls
  /// calls `nap(time)` instead of sleeping. Propagates errors from the device and from `nap`.
  template <class Nap>
  void wait_for_copy(const result_queue::job& what, const Nap& nap) {
    copied_.wait(what.end, nap);
  }
  /// Throws `std::logic_error` in a child made by fork(), in which the threads do not exist.
  void require_threads() const {
    process.require("results", "finish in that process, and make separate results in this process");
  }
  fork_guard process{true};
  result_queue turns;
  // Discarded slots for which no event could be recorded at the end of their step. Only the loop's
  // thread uses this list.
  std::vector<std::uint32_t> unmarked;
  std::atomic<std::uint64_t> discarded{0};  // relaxed: only a counter
  std::atomic<std::uint64_t> handed_in{0};  // relaxed: only a counter

 private:
  Device device_;
  batch_layout<Record> layout_;
  timeline steps_;
  typename Device::stream_type copies_;
  timeline copied_;

 public:
  host_side on_host;
  device_side on_device;
};

/// Throws `results_error` unless the offsets of each ragged field ascend from 0 to at most the
/// capacity. The program's kernels compute these offsets.
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
      throw results_error(str_cat(
          {"results: field \"", Record::template field_at<Index>::key.str(), "\": offset ", i,
           " is ", at, ", not in ", i == 0 ? 0 : before, "..", i == 0 ? 0 : capacity,
           ": the step must write the offsets of all samples, and at most as many values as "
           "the layout has room for (max_values_per_batch)"}));
    }
  });
}

/// A lease of a device slot for results of `Record`, without the views.
template <record_type Record, device Device>
class result_slot_lease : public slot_lease<typename result_ring<Record, Device>::device_side> {
  using base = slot_lease<typename result_ring<Record, Device>::device_side>;

 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  using base::base;

  /// Submits the results. After all work currently queued on the loop's stream, the results are
  /// copied to the host and consumed. Records one event on that stream and does not wait.
  /// Afterwards the lease is empty. After a failure or `close`, discards the slot and returns
  /// false, and the next `acquire` throws the failure. Propagates errors from the device, such as
  /// `capture_in_progress`. In that case, the lease keeps the slot.
  bool send() {
    base::use();
    result_ring<Record, Device>& ring = base::slots_->ring;
    ring.require_threads();
    ring.mark_computed(base::slot_).rethrow_error();
    const auto side = base::leave();
    return ring.submit(base::slot_);
  }

  /// The stream on which the step must compute the results.
  [[nodiscard]] stream_ref stream() const noexcept {
    base::use();
    return base::slots_->ring.stream();
  }
};

/// A lease of results in host memory.
template <record_type Record, device Device>
class result_batch_lease : public slot_lease<typename result_ring<Record, Device>::host_side> {
  using base = slot_lease<typename result_ring<Record, Device>::host_side>;

 public:
  using device_type = Device;

  using base::base;

  /// The indices of the samples of the batch, like `device_batch::indices`. Empty unless the loop's
  /// batches have them (`loader_options::instrumentation.indices`).
  [[nodiscard]] std::span<const std::uint64_t> indices() const noexcept {
    base::use();
    return base::slots_->entries[base::slot_].indices;
  }
  /// A tag for each sample from the batch's source, like `device_batch::tags`, or an empty span.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    base::use();
    return base::slots_->entries[base::slot_].tags;
  }
};

}  // namespace detail

/// A device slot for the results of one batch, to which the step writes: `get<"score">(slot)`. The
/// memory is on the device and may still hold the results of an earlier batch. A slot can be moved,
/// but not copied. `send` submits the results. A slot that is destroyed without `send` is
/// discarded, and its batch has no results. Only the loop's thread may use a slot.
template <record_type Record, device Device>
using result_slot = lease<Record, detail::result_slot_lease<Record, Device>>;

/// The results of one batch in page-locked host memory, with the `batch_info` of that batch.
/// Consumers receive this lease. The lease can be moved, but not copied, and the destructor returns
/// the slot. A consumer may move the lease out and keep it, even after the `results` are destroyed.
/// Only one thread at a time may use the lease, but any thread may destroy it.
template <record_type Record, device Device>
using result_batch = lease<Record, detail::result_batch_lease<Record, Device>>;

namespace detail {

/// The state that `results` and their loops share: options, slots and worker threads. A loop on
/// another thread may outlive the `results`, for example during `exit()`.
template <record_type Record, device Device>
class result_flow {
  using ring_type = result_ring<Record, Device>;
  using job = result_queue::job;

 public:
  using stream_ref = typename Device::stream_ref;
  using slot_type = result_slot<Record, Device>;
  using batch_type = result_batch<Record, Device>;
  using consumer_type = std::function<void(batch_type&)>;

  /// Makes the flow, see the constructor of `results`.
  result_flow(const Device& device, stream_ref stream, const batch_layout<Record>& layout,
              consumer_type consume, results_options options)
      : options_(checked_results(std::move(options))),
        stream_(usable(device, stream)),
        consume_(callable(std::move(consume))),
        ring_(shared_by_leases<ring_type, stream_ref>(device, stream_, layout, options_.depth,
                                                      host_slots_of(options_))),
        traces_(tracks(options_)),
        pool_(
            options_.workers,
            [this](const std::stop_token&, std::size_t worker) { work(traces_[worker + 1].get()); },
            [this]() noexcept { ring_->turns.close(); }) {}
  result_flow(result_flow&&) = delete;

  /// Closes the flow when the `results` are destroyed. Later calls on other threads throw
  /// `cancelled`. `self` is the pointer that holds this object. In a child made by fork() the
  /// object is kept alive: its threads do not exist there, and they may have held any lock when the
  /// process was copied.
  void shut_down(const std::shared_ptr<result_flow>& self) noexcept {
    if (ring_->process.is_in_child()) {
      retained_ = self;
      return;
    }
    is_gone_.store(true, std::memory_order_relaxed);
    try {
      close();
    } catch (...) {
      print_unhandled("results: an", std::current_exception());
    }
    ring_->turns.fail();  // wakes `finish`: if a consumer calls `exit()`, its batch never ends
  }

  /// @name Implementation of the functions of `results`
  /// @{
  template <class Batch>
  [[nodiscard]] slot_type acquire(const Batch& batch) {
    if constexpr (requires {
                    batch.stream();
                    batch.device();
                  }) {
      require_stream_of(batch);
    }
    std::span<const std::uint64_t> tags;
    std::span<const std::uint64_t> indices;
    if constexpr (requires { batch.tags(); }) tags = batch.tags();
    if constexpr (requires { batch.indices(); }) indices = batch.indices();
    slot_type slot = acquire(info_of(batch), tags, indices);
    if constexpr (requires { batch.record_result(this, slot.data()); }) {
      batch.record_result(this, slot.data());
    }
    return slot;
  }
  [[nodiscard]] slot_type acquire(const batch_info& info, std::span<const std::uint64_t> tags,
                                  std::span<const std::uint64_t> indices) {
    rethrow();
    require_fit(info, tags.size(), indices.size());
    take_back_unmarked();
    const std::stop_callback on_stop{options_.stop, [this]() noexcept { ring_->turns.wake(); }};
    trace_sink* const trace = traces_.front().get();
    const std::uint64_t begin = trace != nullptr ? trace->now() : 0;
    const auto got =
        ring_->turns.acquire([this] { return options_.stop.stop_requested(); }, may_wait());
    waited_.fetch_add(got.waited.count(), std::memory_order_relaxed);
    if (trace != nullptr && got.waited.count() != 0) {
      trace->record_wait(trace_stage::wait_for_slot, begin, trace->now());
      trace->work_on(info);
    }
    if (got.what != detail::result_queue::outcome::slot) reject(got.what);
    taken_.fetch_add(1, std::memory_order_relaxed);
    last_ = {{info.epoch, info.batch}, ring_->discarded.load(std::memory_order_relaxed)};
    ring_->begin(got.slot, info, tags, indices);
    return {std::shared_ptr<typename ring_type::device_side>{ring_, &ring_->on_device}, got.slot,
            info};
  }
  void finish() {
    ring_->require_threads();
    const std::stop_callback on_stop{options_.stop, [this]() noexcept { ring_->turns.wake(); }};
    const bool is_done =
        ring_->turns.finish([this] { return !may_wait() || options_.stop.stop_requested(); });
    rethrow();
    require_here();
    if (is_done) return last_.reset();
    if (!may_wait()) throw_held();
    throw cancelled("cancelled: a stop was requested while kept leases held all host slots");
  }
  void rethrow(bool again = true) {
    ring_->require_threads();
    std::unique_lock lock{mutex_};
    if (!error_ || (is_reported_ && !again)) return;
    is_reported_ = true;
    const std::exception_ptr error = error_;
    lock.unlock();
    std::rethrow_exception(error);
  }
  void close() {
    ring_->require_threads();
    ring_->turns.close();
    pool_.stop();
    rethrow(false);
  }
  [[nodiscard]] std::optional<failure> last_failure() const noexcept { return failure_.load(); }
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
  [[nodiscard]] const ring_type& ring() const noexcept { return *ring_; }
  /// @}

 private:
  /// Makes the tracks of the loop and of each worker, or null pointers if nothing is recorded.
  static std::vector<std::shared_ptr<trace_sink>> tracks(const results_options& options) {
    std::vector<std::shared_ptr<trace_sink>> all(1 + options.workers);
    const trace_target& trace = options.trace;
    if (trace.code() == nullptr) return all;
    const std::uint64_t flow = trace.code()->new_flow(*trace.recorder());
    all.front() = trace.add_track(flow, "penstock results");
    for (std::size_t worker = 0; worker < options.workers; ++worker) {
      all[worker + 1] = trace.add_track(flow, "penstock results worker", worker);
    }
    return all;
  }
  static consumer_type callable(consumer_type consume) {
    if (!consume)
      throw option_error("consume", "is an empty function: pass a function to call per batch");
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
  [[nodiscard]] bool may_wait() const noexcept {
    return options_.on_slots_exhausted == exhausted_action::wait;
  }
  /// Throws `cancelled` after `shut_down`.
  void require_here() const {
    if (is_gone_.load(std::memory_order_relaxed)) throw cancelled_by_end_of("results");
  }

  /// Throws `results_error` unless the step on the stream of the results runs after the copy of
  /// `batch`, and the batch's lease ends after the step.
  template <class Batch>
  void require_stream_of(const Batch& batch) const {
    static_assert(std::convertible_to<decltype(batch.stream()), stream_ref>,
                  "penstock::results: the batch is on a different kind of device than the results: "
                  "use the feed's device type, results<record, device>; or pass batch.info() if "
                  "the loop's body copies the results there itself");
    bool is_ordered = true;
    if constexpr (std::equality_comparable<Device>) {
      is_ordered = batch.device() == ring_->device();
    }
    if constexpr (requires { batch.is_ordered_on(stream_); }) {
      is_ordered = is_ordered && batch.is_ordered_on(stream_);
    } else if constexpr (std::equality_comparable<stream_ref>) {
      is_ordered = is_ordered && batch.stream() == stream_;
    }
    if (is_ordered) return;
    throw results_error(str_cat({name_of(info_of(batch)), " came from a feed with ",
                                 stream_name(batch.device(), batch.stream()),
                                 ", but the results have ", stream_name(ring_->device(), stream_),
                                 ": pass the stream on which the step runs to both, transfer "
                                 "feed{loader, stream} and results out{device, stream, ...}, or to "
                                 "neither; add a second stream with batch.also_used_on(stream)"}));
  }
  [[nodiscard]] static std::string name_of(const batch_info& info) {
    return str_cat({"results: batch ", info.batch, " of epoch ", info.epoch});
  }
  void require_fit(const batch_info& info, std::size_t tags, std::size_t indices) const {
    const std::size_t room = ring_->layout().batch_size();
    if (info.size > room) {
      throw results_error(
          str_cat({name_of(info), " has ", info.size, " samples, but a slot has room for ", room,
                   ": construct results with the batch_size of the loader"}));
    }
    if (tags > info.size || indices > info.size) {
      throw results_error(str_cat({name_of(info), " has ", info.size, " samples, but ", tags,
                                   " tags and ", indices, " indices"}));
    }
    if (last_ && last_->at == batch_position{info.epoch, info.batch} &&
        last_->discarded == ring_->discarded.load(std::memory_order_relaxed)) {
      throw results_error(
          str_cat({name_of(info),
                   " already has a slot: acquire one slot per batch, or discard the first"}));
    }
  }
  /// Frees the slots whose step could not be waited for when they were dropped, for example during
  /// a capture.
  void take_back_unmarked() noexcept {
    if (ring_->unmarked.empty() || !try_synchronize(ring_->device(), stream_)) return;
    for (const std::uint32_t slot : ring_->unmarked) ring_->turns.put_back(slot);
    ring_->unmarked.clear();
  }
  [[noreturn]] void reject(result_queue::outcome why) {
    using enum result_queue::outcome;
    rethrow();
    if (why == stopped) {
      throw cancelled("cancelled: a stop was requested while all slots for results were in use");
    }
    if (why == held) throw_held();
    if (why == all_taken) {
      const std::size_t dropped = ring_->unmarked.size();
      throw leases_exhausted(dropped == 0
                                 ? str_cat({"results: the loop has taken all ", options_.depth,
                                            " device slots: send or discard one, or raise depth"})
                                 : str_cat({"results: of ", options_.depth,
                                            " device slots the loop has dropped ", dropped,
                                            " whose step cannot be waited for, and has taken the "
                                            "others: end the capture of its stream, or send one"}));
    }
    require_here();
    throw results_error("results: acquire after close");
  }
  [[noreturn]] void throw_held() const {
    throw leases_exhausted(
        str_cat({"results: leases kept by consumers hold all ", host_slots_of(options_),
                 " host slots: end one, raise depth, or let it wait for leases that end on "
                 "other threads (on_slots_exhausted)"}));
  }

  /// Ends the flow with the current exception, unless an earlier exception has ended it. `at` is
  /// the batch of the failure, if there is one.
  void fail(const std::optional<batch_position>& at) noexcept {
    {
      const std::lock_guard lock{mutex_};
      if (error_) return;
      error_ = std::current_exception();
      if (at) failure_.store(failure{"results", at->epoch, at->batch});
    }
    ring_->turns.fail();
  }

  void work(trace_sink* trace) noexcept {
    ring_type& ring = *ring_;
    std::optional<batch_position> at;
    try {
      ring.device().make_current();
      for (;;) {
        const job next = ring.turns.next();
        if (next.what == result_queue::step::end) return;
        const auto& entry = next.what == result_queue::step::deliver
                                ? ring.on_host.entries[next.host_slot]
                                : ring.on_device.entries[next.device_slot];
        at = batch_position{entry.info.epoch, entry.info.batch};
        if (next.what == result_queue::step::stuck) throw_held();
        if (next.what == result_queue::step::copy) {
          copy(at, trace);
        } else {
          deliver(next, at, trace);
        }
      }
    } catch (...) {
      fail(at);
    }
  }
  /// Queues the copies of all results that wait. Stores the batch of each copy in `at`. Small
  /// copies share a mark, because a mark and a wait cost as much as such a copy. At most half of
  /// the slots share a mark, so that the loop refills one half while the other half is copied. A
  /// copy whose step still runs has its own mark, so that no other result waits for that step.
  void copy(std::optional<batch_position>& at, trace_sink* trace) {
    ring_type& ring = *ring_;
    const std::span<job> jobs = ring.turns.copying();
    const std::size_t computed = jobs.size() == 1 ? 1 : ring.count_computed(jobs);
    std::size_t unmarked = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const batch_info& info = ring.on_device.entries[jobs[i].device_slot].info;
      at = batch_position{info.epoch, info.batch};
      {
        const work_probe probe{trace_stage::copy, trace, info, info.size};
        ring.queue_copy(jobs[i]);
      }
      ++unmarked;
      const bool is_small = (unmarked + 1) * ring.layout().bytes() <= shared_mark_bytes;
      if (is_small && i + 1 < computed && 2 * unmarked < options_.depth) continue;
      ring.mark_copies(jobs.subspan(i + 1 - unmarked, unmarked));
      unmarked = 0;
    }
    ring.turns.record_copies();
  }
  /// Waits for the copy of `next`, and calls the consumer. If the device polls, queues the copies
  /// of later results between the polls, so that the bus is not idle. Stores the batch in `at`.
  void deliver(const job& next, std::optional<batch_position>& at, trace_sink* trace) {
    ring_type& ring = *ring_;
    const batch_info info = ring.on_host.entries[next.host_slot].info;
    const auto begun = std::chrono::steady_clock::now();
    const std::uint64_t begin = trace != nullptr ? trace->now() : 0;
    const auto queue_others = [&](std::chrono::microseconds time) {
      if (!ring.turns.wait_for_copies(time)) return;
      copy(at, trace);
      at = batch_position{info.epoch, info.batch};
    };
    ring.wait_for_copy(next, queue_others);
    ring.turns.record_arrival(next);
    const auto arrived = std::chrono::steady_clock::now();
    if (trace != nullptr) trace->record_wait(trace_stage::wait_for_copy, begin, trace->now());
    {
      batch_type done{std::shared_ptr<typename ring_type::host_side>{ring_, &ring.on_host},
                      next.host_slot, info};
      if constexpr (Record::ragged_fields != 0) {
        require_offsets(ring.layout(), std::as_const(done).data(), done.size());
      }
      const work_probe probe{trace_stage::consume, trace, info, info.size};
      consume_(done);
    }
    add(copying_, arrived - begun);
    add(consuming_, std::chrono::steady_clock::now() - arrived);
    consumed_.fetch_add(1, std::memory_order_relaxed);
    ring.turns.record_consumed();
  }

  static void add(std::atomic<std::int64_t>& to,
                  std::chrono::steady_clock::duration time) noexcept {
    to.fetch_add(std::chrono::nanoseconds{time}.count(), std::memory_order_relaxed);
  }

  // A copy of this size takes about 10 us, and a worker notices its end 10 us later. So sharing a
  // mark at most doubles the delay of a result.
  static constexpr std::size_t shared_mark_bytes = std::size_t{256} << 10;

  struct last_taken {
    batch_position at;
    std::uint64_t discarded = 0;  // number of discarded slots at the time of that `acquire`
  };

  results_options options_;
  stream_ref stream_;
  consumer_type consume_;
  std::shared_ptr<ring_type> ring_;
  std::optional<last_taken> last_;  // used by the loop's thread
  bool is_reported_ = false;        // used by the loop's thread
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<std::uint64_t> consumed_{0};
  std::atomic<std::int64_t> waited_{0};  // nanoseconds, like the next two members
  std::atomic<std::int64_t> copying_{0};
  std::atomic<std::int64_t> consuming_{0};
  std::mutex mutex_;          // guards error_; also held while failure_ is written
  std::exception_ptr error_;  // the exception that ended the flow
  shared_value<std::optional<failure>> failure_;
  std::vector<std::shared_ptr<trace_sink>> traces_;  // tracks of the loop and of each worker
  // Relaxed: a thread that finds the flow closed under its lock sees the earlier store.
  std::atomic<bool> is_gone_{false};
  std::shared_ptr<result_flow> retained_;
  worker_pool<std::function<void(std::stop_token, std::size_t)>, std::function<void()>>
      pool_;  // last: its threads use the other members
};

}  // namespace detail

/// Carries the results of steps from a device to threads on the host: the opposite of `transfer`. A
/// step writes to a device slot. `send` queues the copy into page-locked memory, which overlaps the
/// next steps. Worker threads consume the results that have arrived.
///
///     using scores = ps::record<ps::field<"score", float, 10>>;
///     ps::results<scores, ps::cuda_device> out{device, stream, 256, [&](auto& done) {
///       write(file, done.indices(), ps::get<"score">(done));
///     }};
///     for (auto& batch : feed.epoch(0)) {
///       auto slot = out.acquire(batch);
///       infer<<<..., stream>>>(ps::get<"image">(batch), ps::get<"score">(slot));
///       slot.send();
///     }
///     out.finish();
///
/// Use the stream that was passed to the feed. For `transfer feed{loader}` on the CPU device, the
/// loop's body is the step and no stream is passed: `results<scores> out{device, 256, consume}`.
///
/// In the loop, a batch costs one event record on its stream. A worker queues the copies of all
/// results that wait, each after its step, and sleeps until they have ended. Small copies share an
/// event. No thread synchronizes with the loop's stream. `acquire` waits while all `depth` slots
/// are in flight or the consumers are behind.
///
/// A worker calls `consume(result_batch<Record, Device>&)` once for each batch that was sent. A
/// single worker consumes batches in the order of `send`. Several workers consume them
/// concurrently, as they arrive. An exception of a consumer ends the flow: no further batch is
/// consumed, and the loop's next `acquire`, `finish` or `close` throws the exception.
/// `last_failure` names the batch. An error of the device has the same effect.
///
/// All memory is allocated at construction: `depth` batches on the device, and `depth` + `workers`
/// in page-locked memory. Only the loop's thread may call `acquire`, `send`, `finish` and `close`.
/// The stream must outlive every slot.
///
/// The destructor waits until all submitted results are consumed, unless progress needs the end of
/// leases that consumers have kept. If an exception was not retrieved, the destructor prints it to
/// stderr. If another thread runs the destructor, as during `exit()`, waiting calls and the next
/// step of a loop over `zip_results` throw `cancelled`. No other call may begin.
///
/// Construction throws `option_error`, `layout_error`, `out_of_memory`, and `std::system_error` if
/// a thread cannot be created. Propagates errors from the device.
template <record_type Record, device Device = cpu_device>
class results {
  using flow_type = detail::result_flow<Record, Device>;

 public:
  using record_type = Record;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;
  /// The type that `acquire` returns.
  using slot_type = result_slot<Record, Device>;
  using batch_type = result_batch<Record, Device>;
  /// The function that a worker calls for each batch.
  using consumer_type = std::function<void(batch_type&)>;

  /// Makes results for batches of at most `layout.batch_size()` samples, which steps on `stream`
  /// compute.
  results(const Device& device, stream_ref stream, const batch_layout<Record>& layout,
          consumer_type consume, results_options options = {})
      : flow_(std::make_shared<flow_type>(device, stream, layout, std::move(consume),
                                          std::move(options))) {}
  /// Makes results of a record whose extents are all fixed.
  results(const Device& device, stream_ref stream, std::size_t batch_size, consumer_type consume,
          results_options options = {})
    requires(!Record::has_dynamic_extents && Record::ragged_fields == 0)
      : results(device, stream, batch_layout<Record>{{}, batch_size}, std::move(consume),
                std::move(options)) {}
  /// Makes results for a loop whose body is the step, on the CPU device.
  results(const Device& device, std::size_t batch_size, consumer_type consume,
          results_options options = {})
    requires(!Record::has_dynamic_extents && Record::ragged_fields == 0 &&
             requires { device.inline_stream(); })
      : results(device, device.inline_stream(), batch_size, std::move(consume),
                std::move(options)) {}
  results(results&&) = delete;
  ~results() { flow_->shut_down(flow_); }

  /// Returns a slot for the results of `batch`: a lease of a transfer's or a loader's batch, or its
  /// `batch_info`. Waits while all slots are in flight. A program that orders the streams itself
  /// passes `batch.info()`. Throws
  ///
  /// - the exception of a consumer or of the device, if there was one;
  /// - `cancelled` after a stop request;
  /// - `leases_exhausted`, see `on_slots_exhausted`, and if the loop has taken all slots and sent
  ///   none;
  /// - `results_error` if the batch has more samples than a slot has room for, if the batch already
  ///   got the most recent slot, or after `close`. Also if the batch of a transfer has another
  ///   stream than the results, unless `also_used_on` was called with the stream of the results.
  template <class Batch = batch_info>
  [[nodiscard]] slot_type acquire(const Batch& batch) {
    return shared()->acquire(batch);
  }
  /// Returns a slot for the results of a batch and stores data with it: one tag and one index for
  /// each sample, or none. Waits and throws in the same way as the other overload.
  [[nodiscard]] slot_type acquire(const batch_info& info, std::span<const std::uint64_t> tags,
                                  std::span<const std::uint64_t> indices) {
    return shared()->acquire(info, tags, indices);
  }

  /// Waits until all submitted results are consumed. Throws the exception of a consumer or of the
  /// device. If consumers have kept leases of all host slots, throws `leases_exhausted`, see
  /// `on_slots_exhausted`, or `cancelled` after a stop request. After these two exceptions, no
  /// results are lost, and the loop may take more slots.
  void finish() { shared()->finish(); }
  /// Throws the exception of a consumer or of the device, if there was one. `acquire` and `finish`
  /// do this first. The loop's thread should call this before it waits for something else. Does not
  /// wait.
  void rethrow() { flow_->rethrow(); }
  /// Waits until all submitted results are consumed, and ends the workers. No slot can be taken
  /// afterwards. Unlike `finish`, does not wait for leases that consumers have kept. If batches get
  /// no host slot because of such leases, they are lost, and the call throws `leases_exhausted`.
  void close() { shared()->close(); }

  /// Returns the batch of the exception that has ended the loop, or `std::nullopt`. Any thread may
  /// call this and `stats`.
  [[nodiscard]] std::optional<failure> last_failure() const noexcept {
    return flow_->last_failure();
  }
  /// Returns statistics since construction.
  [[nodiscard]] results_stats stats() const noexcept { return flow_->stats(); }
  /// Size of all slots in device memory, in bytes.
  [[nodiscard]] std::size_t device_bytes() const noexcept {
    return flow_->ring().on_device.memory.bytes();
  }
  /// Size of all slots in host memory, in bytes.
  [[nodiscard]] std::size_t host_bytes() const noexcept {
    return flow_->ring().on_host.memory.bytes();
  }
  /// Returns true if the host memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return flow_->ring().on_host.memory.pinned(); }

 private:
  template <class Range, class Results>
  friend class zipped_results;

  /// Returns the shared state for a call that may wait: `exit()` on another thread may destroy this
  /// object during the call.
  [[nodiscard]] std::shared_ptr<flow_type> shared() const noexcept { return flow_; }

  std::shared_ptr<flow_type> flow_;  // shared with loops
};

/// Computes the memory of `results` with this layout and these options, without allocating. Throws
/// `option_error` if an option is invalid.
template <record_type Record>
[[nodiscard]] results_footprint footprint(const batch_layout<Record>& layout,
                                          const results_options& options) {
  const results_options all = detail::checked_results(options);
  const auto bytes = [&](std::size_t count) {
    return static_cast<std::size_t>(detail::saturating_product(count, layout.bytes()));
  };
  const std::size_t host_slots = detail::host_slots_of(all);
  return {layout.bytes(), all.depth, bytes(all.depth), host_slots, bytes(host_slots)};
}

/// The batches of a range together with slots for their results: `zip_results(feed.epoch(0), out)`.
template <class Range, class Results>
class zipped_results {
 public:
  /// A batch, and the slot for its results.
  struct step {
    typename Range::batch_type& batch;  ///< the range's lease
    typename Results::slot_type out;    ///< `++` sends it, unless the body has done so
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
    friend class zipped_results;
    explicit iterator(zipped_results* owner) noexcept : owner_(owner) {}
    [[nodiscard]] bool is_at_end() const noexcept { return owner_ == nullptr || !owner_->step_; }
    zipped_results* owner_ = nullptr;
  };

  /// Joins the batches of `range` with slots of `out`. If `out` is destroyed first, the next step
  /// throws `cancelled`.
  zipped_results(Range range, Results& out) : range_(std::move(range)), flow_(out.flow_) {}

  /// Starts reading, see `batch_range::begin`, and takes the first slot.
  [[nodiscard]] iterator begin() {
    step_.reset();
    at_ = range_.begin();
    acquire();
    return iterator{this};
  }
  /// The end, for comparison with the iterator.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  void acquire() {
    if (at_ != std::default_sentinel) step_.emplace(step{*at_, flow_->acquire(*at_)});
  }
  void advance() {
    if (!step_) return;
    // Sends before the batch is released, because both are recorded on the loop's stream after the
    // step.
    if (step_->out) step_->out.send();
    step_.reset();
    flow_->rethrow();  // before the wait for a batch that would get no slot
    ++at_;
    acquire();
  }

  Range range_;
  std::shared_ptr<typename Results::flow_type> flow_;
  typename Range::iterator at_;
  std::optional<step> step_;
};

/// Loops over batches and slots for their results together:
///
///     for (auto& [batch, out] : ps::zip_results(feed.epochs(0, 5), results)) {
///       step(batch, out, stream);
///     }
///
/// `++` sends the slot, unless the body has sent, dropped or moved it, and advances to the next
/// batch. A loop that ends early, by `break` or an exception, discards the slot of its last batch.
/// Call `out.send()` before a `break` if the results of that batch are computed.
template <class Range, class Results>
[[nodiscard]] zipped_results<Range, Results> zip_results(Range range, Results& out) {
  return {std::move(range), out};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
