// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/threads/support/shared_value.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/detail/depth_tuner.hpp>
#include <penstock/transfer/detail/device_slots.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/detail/feed_observer.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What `transfer` asks of its source and its transform.
template <class Source, class Transform>
concept transferable =
    batch_source<Source> &&
    (std::same_as<Transform, no_transform> ||
     device_transform<Transform, typename Source::record_type, typename Source::device_type>);

/// What stands between the copy and the device slots when a transform does: the transform, the
/// stream that it runs on, and device memory for two batches as they travel: into one goes the next
/// copy while the transform reads the other. They serve all slots, because either stream runs in
/// order.
template <class Transform, record_type In, device Device>
class transform_stage {
 public:
  using out_record = transformed_record_t<Transform, In>;
  using stream_ref = typename Device::stream_ref;

  /// Without that memory where the transform reads the host's (`reads_host`).
  transform_stage(const Device& device, const batch_layout<In>& layout, Transform transform,
                  bool reads_host)
      : device_(device),
        transform_(std::move(transform)),
        in_(layout),
        out_(transformed_extents<In>(transform_, layout.extents()), layout.batch_size()),
        arrived_(device.make_event(event_wait::by_streams)),
        // So that a transform need not wait for all blocks of the step that runs.
        stream_(make_stream(device, stream_priority::highest)) {
    for (place& one : places_) {
      if (!reads_host) one.memory.emplace(device, layout.bytes(), memory_kind::device);
    }
    if constexpr (requires { transform_.prepare(device, layout); }) {
      transform_.prepare(device, in_.template as<In>());
    }
  }

  [[nodiscard]] const batch_layout<out_record>& out_layout() const noexcept { return out_; }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return reads_host() ? 0 : places_[0].memory->bytes() + places_[1].memory->bytes();
  }
  /// Of the batches as they travel.
  [[nodiscard]] const slot_layout& in_layout() const noexcept { return in_; }

  /// What records them; null: nothing does.
  void trace_to(trace_writer* trace) noexcept { trace_ = trace; }

  /// What times them; null: nothing does.
  void time_by(device_timer<Device>* timer) noexcept { timer_ = timer; }

  /// What transforms run on.
  [[nodiscard]] stream_ref stream() noexcept { return stream_; }
  /// Whether the transform reads host slots, and nothing is copied.
  [[nodiscard]] bool reads_host() const noexcept { return !places_[0].memory; }
  /// Where the next batch is copied to.
  [[nodiscard]] std::byte* data() const noexcept { return places_[next_].memory->data(); }
  /// The device slot that was made of the last batch there; nothing before the first.
  [[nodiscard]] std::optional<std::size_t> reader() const noexcept { return places_[next_].reader; }

  /// Marks the end of the copy that `copies` was given last, for the host memory of `from`, and
  /// makes the transforms wait for it.
  template <class HostBatch>
  void wait_for_copy(HostBatch& from, stream_ref copies) {
    if constexpr (shares_mark<HostBatch, Device>) {
      if (auto* const mark = from.mark_copies(copies)) {
        from.release_behind(mark);
        return device_.wait(stream(), mark->event());
      }
    }
    from.release_after(copies);
    device_.record(arrived_, copies);
    device_.wait(stream(), arrived_);
  }

  /// Queues the transform of the batch at `arrived` into `slab`.
  void enqueue(const std::byte* arrived, std::byte* slab, const batch_info& batch) {
    const trace_scope traced{trace_, trace_stage::transform, batch, batch.size};
    [[maybe_unused]] const auto current = enter();
    if (timer_ != nullptr) timer_->begin_transform(stream());
    transform_.enqueue(const_batch_view<In>{arrived, in_.template as<In>(), 0, batch.size},
                       batch_view<out_record>{slab, out_, 0, batch.size}, stream());
    if (timer_ != nullptr) timer_->end_transform(stream());
  }
  /// Device slot `slot` is made of that batch; the next one goes to the other place.
  void note_reader(std::size_t slot) noexcept {
    places_[next_].reader = slot;
    next_ = 1 - next_;
  }

 private:
  struct place {
    std::optional<slab<Device>> memory;
    std::optional<std::size_t> reader{};
  };

  /// Makes the device the thread's current one for a scope, where a device has such a notion.
  [[nodiscard]] auto enter() const {
    if constexpr (requires { device_.enter_scope(); }) {
      return device_.enter_scope();
    } else {
      return nullptr;
    }
  }

  Device device_;
  Transform transform_;
  slot_layout in_;
  batch_layout<out_record> out_;
  std::array<place, 2> places_;
  std::size_t next_ = 0;
  trace_writer* trace_ = nullptr;
  device_timer<Device>* timer_ = nullptr;
  typename Device::event_type arrived_;  // for a copy whose batch brings no event of its own
  typename Device::stream_type stream_;  // goes first: it waits for its work
};

/// The device memory of a feed: the slots, after a stage that makes what goes into them.
template <class Transform, record_type In, device Device>
class transformed_slots {
 public:
  transformed_slots(const Device& device, const batch_layout<In>& layout, const depth_range& depth,
                    Transform transform, bool zero_copy)
      : stage_(device, layout, std::move(transform), zero_copy),
        ring(device, stage_.out_layout(), depth.first, depth.most) {}

  template <class HostBatch, class Around>
  void copy_in(std::span<slot_filling<HostBatch>> batches, const Around& around) {
    ring.copy_in(batches, stage_, around);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return ring.bytes() + stage_.bytes(); }
  void trace_to(trace_writer* trace) noexcept { stage_.trace_to(trace); }
  void time_by(device_timer<Device>* timer) noexcept {
    ring.time_by(timer);
    stage_.time_by(timer);
  }

 private:
  transform_stage<Transform, In, Device> stage_;

 public:
  device_slots<Device> ring;  // goes first: it waits for all that uses the stage
};

/// The device memory of a feed without a transform: the slots, whatever the record.
template <device Device>
class plain_slots {
 public:
  template <record_type In>
  plain_slots(const Device& device, const batch_layout<In>& layout, const depth_range& depth,
              no_transform, bool zero_copy)
      : ring(device, layout, depth.first, depth.most, zero_copy) {}

  template <class HostBatch, class Around>
  void copy_in(std::span<slot_filling<HostBatch>> batches, const Around& around) {
    ring.copy_in(batches, around);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return ring.bytes(); }
  void trace_to(trace_writer*) noexcept {}
  void time_by(device_timer<Device>* timer) noexcept { ring.time_by(timer); }

  device_slots<Device> ring;
};

/// The device memory of a feed, and the record of what lies in it.
template <class Transform, record_type In, device Device>
struct feed_memory {
  using type = transformed_slots<Transform, In, Device>;
  using record_type = transformed_record_t<Transform, In>;
};
template <record_type In, device Device>
struct feed_memory<no_transform, In, Device> {
  using type = plain_slots<Device>;
  using record_type = In;
};

/// A source that gives its errors as values, as a loader's core does.
template <class Source>
concept source_of_values = requires(Source& source, failed_batch& failed) {
  source.next(failed);
  source.try_next(failed);
};

/// Where a feed gets batches from: a source, with answers to what it may not tell. An error of the
/// source waits for its turn, after the batches that came before it.
template <class Source>
class feed_source {
 public:
  using batch_type = typename Source::batch_type;

  explicit feed_source(std::shared_ptr<Source> source) : source_(std::move(source)) {}
  feed_source(feed_source&&) = delete;

  /// Asks `source` from now on: the one that was asked, unless a loader was assigned to.
  void ask(std::shared_ptr<Source> source) noexcept {
    if (source != source_) source_ = std::move(source);  // else other threads may read it
  }

  /// Begins a range, which `stop` ends.
  void start(const batch_position& from, std::uint64_t last_epoch) {
    source_->start(from, last_epoch);
    is_over_ = false;
  }
  void stop() noexcept {
    failed_ = {};
    // One that failed has stopped, and may serve another feed.
    if (!std::exchange(is_over_, true)) source_->stop();
  }

  /// Whether the source has failed, and is not to be asked any more.
  [[nodiscard]] bool is_over() const noexcept { return is_over_; }
  /// Takes what the source has failed with, which comes after the batches that it has given.
  [[nodiscard]] failed_batch take_failed() noexcept { return std::exchange(failed_, {}); }

  /// Whether `next` may give a batch.
  [[nodiscard]] bool may_have_more() const noexcept {
    if constexpr (requires {
                    { source_->at_end() } -> std::same_as<bool>;
                  }) {
      return !is_over_ && !source_->at_end();
    } else {
      return !is_over_;
    }
  }

  /// The next batch: waits for it, or is empty unless it is ready. Empty too at the end, and where
  /// the source fails.
  template <bool Waits>
  [[nodiscard]] batch_type next() noexcept {
    const auto ask = [this](auto&... failed) {
      return Waits ? source_->next(failed...) : source_->try_next(failed...);
    };
    if constexpr (source_of_values<Source>) {
      batch_type batch = ask(failed_);
      is_over_ = static_cast<bool>(failed_);
      return batch;
    } else {
      try {
        return ask();
      } catch (...) {
        is_over_ = true;
        failed_.error = std::current_exception();
        if constexpr (requires {
                        {
                          source_->last_failure()
                        } -> std::convertible_to<std::optional<penstock::failure>>;
                      }) {
          failed_.place = source_->last_failure();
        }
        return {};
      }
    }
  }

  /// A batch that the source has given is handed to no consumer; for a source that wants to know.
  void take_back([[maybe_unused]] const batch_info& batch,
                 [[maybe_unused]] std::span<const std::uint64_t> tags) noexcept {
    if constexpr (requires {
                    { source_->take_back(batch, tags) } noexcept;
                  }) {
      source_->take_back(batch, tags);
    }
  }

  /// Gives back the slots of the batches that were copied and not handed out.
  template <class Issued, class Ring>
  void discard(Issued& issued, Ring& ring) noexcept {
    for (; !issued.empty(); issued.pop()) {
      const std::size_t slot = issued.front().slot;
      take_back(ring.info(slot), ring.tags(slot));
      ring.discard(slot);
    }
  }

  /// The statistics of the source, where it has those of a loader. From any thread.
  [[nodiscard]] std::optional<loader_stats> stats() const {
    if constexpr (requires {
                    { source_->stats() } -> std::same_as<loader_stats>;
                  }) {
      return source_->stats();
    } else {
      return std::nullopt;
    }
  }

  /// What its batches are called in a trace of `recorder`; 0 where it records none there.
  [[nodiscard]] std::uint64_t trace_flow(const trace_recorder* recorder) const noexcept {
    if constexpr (requires {
                    { source_->trace_flow(recorder) } -> std::same_as<std::uint64_t>;
                  }) {
      return source_->trace_flow(recorder);
    } else {
      return 0;
    }
  }

  /// By what a wait for a lease is ended.
  [[nodiscard]] std::stop_token stop_token() const {
    if constexpr (requires {
                    { source_->stop_token() } -> std::same_as<std::stop_token>;
                  }) {
      return source_->stop_token();
    } else {
      return {};
    }
  }

 private:
  std::shared_ptr<Source> source_;  // of a loader kept alive, as long as it is asked
  bool is_over_ = false;
  failed_batch failed_;  // kept until its turn
};

/// What goes along with a feed's loop and changes no batch of it: the step as it is traced, the
/// depth as it is tuned, and the device's times. For the consumer's thread.
template <device Device>
class feed_watch {
 public:
  using stream_ref = typename Device::stream_ref;

  /// As the options say: what `seen` counts of the batches that go to `ring` is traced and timed
  /// too; a source that is traced itself calls them `flow`, another one 0. Both must outlive it.
  /// Throws what the device throws, and `option_error` where it can't tell times.
  feed_watch(device_slots<Device>& ring, stream_ref consumer, const transfer_options& options,
             feed_observer& seen, std::uint64_t flow);

  /// What times the device's work; or null.
  [[nodiscard]] device_timer<Device>* timer() noexcept { return timer_ ? &*timer_ : nullptr; }

  /// Has `queue` queue the copy of this batch, or what it gets instead of one. Throws what that
  /// throws.
  template <class Queue>
  void fill_of(const batch_info& batch, bool is_copied, const Queue& queue) {
    const noted_copy noted{is_copied ? seen_->trace() : nullptr, batch};
    if (timer_) timer_->choose(batch);
    queue();
    if (timer_) timer_->end_choice();
  }

  /// @name A range
  /// @{
  void begin_range() noexcept {
    if (tuner_) tuner_->begin();
    if (timer_) timer_->abandon();
  }
  void end_range() noexcept {
    if (tuner_) tuner_->end();
    if (timer_) timer_->abandon();
  }
  /// @}

  /// @name A loop's body
  /// @{
  void end_step(stream_ref consumer) noexcept {
    step_.end();
    if (!timer_) return;
    if (const auto times = timer_->end_step(consumer)) seen_->note_device(*times);
  }
  /// It begins with a batch that `ring` has a slot of. Throws what the device throws.
  void begin_step(device_slots<Device>& ring, stream_ref consumer, const batch_info& batch) {
    step_.begin(seen_->trace(), batch);
    if (timer_) timer_->begin_step(consumer, batch);
    if (tuner_) tuner_->take(ring, seen_->batches(), is_body(ring.device(), consumer));
  }
  /// The range ends within the body.
  void leave_step() noexcept { step_.end(); }
  /// @}

  /// What an automatic depth has come to; of another one, that it is `depth`. From any thread.
  [[nodiscard]] tuning_history tuning(std::size_t depth) const {
    return tuner_ ? tuner_->history() : tuning_history{.now = {.depth = depth}, .moves = {}};
  }

 private:
  feed_observer* seen_;
  noted_step step_;
  std::unique_ptr<depth_tuner> tuner_;  // large, and mostly not there
  std::optional<device_timer<Device>> timer_;
};

template <device Device>
feed_watch<Device>::feed_watch(device_slots<Device>& ring, stream_ref consumer,
                               const transfer_options& options, feed_observer& seen,
                               std::uint64_t flow)
    : seen_(&seen) {
  if (trace_recorder* const recorder = options.observe.trace) {
    if (flow == 0) flow = recorder->new_flow();
    seen.trace_to(recorder->add_track("penstock transfer", flow, recorder->capacity()));
    ring.leases.trace_to(recorder, flow, "device slot", ring.most());
  }
  seen.set_body(is_body(ring.device(), consumer));
  if (options.depth == automatic) tuner_ = std::make_unique<depth_tuner>(options, seen);
  if (options.observe.time_device) timer_.emplace(ring.device());
}

/// A batch in host memory that can say which samples it has.
template <class Batch>
concept batch_of_listed_samples = requires(const Batch& batch) {
  { batch.indices() } -> std::convertible_to<std::span<const std::uint64_t>>;
  { batch.substituted() } -> std::convertible_to<std::span<const std::uint64_t>>;
};

/// Takes memory for lists in `ring` where the batches of `source` will have some.
template <class Source, class Slots>
void list_samples_of([[maybe_unused]] const Source& source, [[maybe_unused]] Slots& ring) {
  if constexpr (batch_of_listed_samples<typename Source::batch_type> && requires {
                  { source.options().observe.indices } -> std::convertible_to<bool>;
                }) {
    if (source.options().observe.indices) {
      ring.lists = sample_lists{ring.most(), source.layout().batch_size()};
    }
  }
}

/// What the options come to for a source and its device.
struct slot_plan {
  transfer_options options;
  bool zero_copy = false;  ///< batches stay in their host slots
};

/// Whether batches of `source` stay in their host slots, as the options say, which have no more
/// slots than the source then, unless there is a transform. Throws `option_error`, and what the
/// device throws.
template <class Source>
[[nodiscard]] slot_plan planned_slots(const Source& source, const transfer_options& options,
                                      bool transforms) {
  const depth_range depth = checked_depth(options);
  slot_plan plan{options, false};
  const auto without = [&](const detail::text_piece& why) {
    if (options.tuning.zero_copy == zero_copy_use::always) refuse_option("tuning.zero_copy", {why});
    return plan;
  };
  if (options.tuning.zero_copy == zero_copy_use::never) return plan;
  if constexpr (!is_host_lease<typename Source::batch_type, typename Source::device_type> ||
                !requires {
                  { source.footprint() } -> std::convertible_to<loader_footprint>;
                }) {
    return without("needs a source that is a loader, whose batches may outlive it");
  } else {
    const host_access access = host_access_of(source.device());
    if (options.tuning.zero_copy == zero_copy_use::by_device && !access.as_own) return plan;
    const loader_footprint host = source.footprint();
    if (!access.pageable && !(access.pinned && host.pinned)) {
      return without(access.pinned
                         ? "needs page-locked slots, which the loader has not (pinned = false)"
                         : "needs a device whose kernels may use the host's memory by its "
                           "addresses: leave it out, and batches are copied");
    }
    plan.zero_copy = true;
    if (transforms) return plan;
    // A batch is asked for only where the source has a slot for it.
    if (host.slot_count < depth.first) {
      plan.options.depth = host.slot_count;
      plan.options.tuning.most_depth = automatic;
    } else if (host.slot_count < depth.most) {
      plan.options.tuning.most_depth = host.slot_count;
    }
    return plan;
  }
}

/// No slot of `count` device slots is free, and none is waited for any more.
[[noreturn, gnu::cold]] inline void throw_no_slot(std::size_t count, bool is_stopped) {
  if (is_stopped) {
    throw cancelled(joined({"cancelled: a stop of the source was requested while all ", count,
                            " device slots were held as leases"}));
  }
  throw leases_exhausted(
      joined({"transfer: all ", count,
              " device slots are held as leases: release one, raise depth, or let it wait for "
              "leases that end on other threads (when_held)"}));
}

/// Finds device slots that a batch may be copied into, the one first that has been free for
/// longest. For the consumer's thread.
class free_slots {
 public:
  explicit free_slots(held_action when_all_are) noexcept : when_held_(when_all_are) {}

  /// A free slot of `ring`, usually the next in turn; nothing while all are leased.
  template <class Slots>
  [[nodiscard]] std::optional<std::size_t> find(const Slots& ring) const noexcept {
    const std::size_t count = ring.count();
    std::size_t slot = next_;
    for (std::size_t left = count; left != 0; --left, ++slot) {
      if (slot >= count) slot = 0;
      if (ring.is_released(slot)) return slot;
    }
    return std::nullopt;
  }

  /// A free slot once there is one: where all are leased a new one if there may be more, else see
  /// `when_held`; `timing` gives what times a wait. Throws `leases_exhausted`, or `cancelled` once
  /// `stop` is requested, or the error of a release that the device has refused.
  template <class Slots, class Timing>
  [[nodiscard]] std::size_t wait(Slots& ring, const std::stop_token& stop, Timing timing) const {
    std::optional<std::size_t> slot = find(ring);
    // A slot that was done without may still be leased, and then the next one is looked at.
    for (std::size_t had = 0; !slot && had < ring.count() && ring.count() < ring.most();) {
      had = ring.count();
      ring.open(had + 1);
      slot = find(ring);
    }
    if (!slot && when_held_ == held_action::wait) {
      const std::stop_callback on_stop{stop, [&ring]() noexcept { ring.wake(); }};
      [[maybe_unused]] const auto timed = timing();
      ring.wait_for_release([&] {
        slot = find(ring);
        return slot || ring.has_error() || stop.stop_requested();
      });
      if (!slot) ring.rethrow_poison();
    }
    if (!slot) throw_no_slot(ring.count(), stop.stop_requested());
    return *slot;
  }

  /// `slot` gets a copy: the one after it comes next.
  void note_taken(std::size_t slot) noexcept { next_ = slot + 1; }

 private:
  held_action when_held_;
  std::size_t next_ = 0;
};

/// The device slots whose copy is queued and that are not handed out yet, the oldest first. As many
/// as there are slots at most; allocates only at construction. For one thread.
class issued_slots {
 public:
  /// Without a wait: one before it was queued together with this.
  static constexpr auto none = (std::numeric_limits<std::size_t>::max)();
  struct entry {
    std::size_t slot;
    std::size_t waits_for;  ///< the last slot of those that were queued together, or `none`
  };

  explicit issued_slots(std::size_t most) : ring_(most) {}

  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  /// The oldest; there must be one, as for `pop`.
  [[nodiscard]] const entry& front() const noexcept { return ring_[first_]; }
  void pop() noexcept {
    first_ = place(first_ + 1);
    --count_;
  }
  /// Adds the youngest.
  void push(std::size_t slot, std::size_t waits_for) noexcept {
    ring_[place(first_ + count_)] = {slot, waits_for};
    ++count_;
  }

 private:
  [[nodiscard]] std::size_t place(std::size_t i) const noexcept {
    return i < ring_.size() ? i : i - ring_.size();
  }

  std::vector<entry> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// What the ranges of a `transfer` run on, but for the type of its leases. `Source` is a
/// `batch_source`, or all loaders of a device as one (`loader_core`). For the consumer's thread.
///
/// Copies are queued in groups. A group takes the batches that are ready, up to `group()`, and is
/// queued when so many slots have come free, or when no more than one batch is on its way. Its end
/// is one mark; the consumer's stream waits for that where the first batch of the group is handed
/// out, and so has waited for the others. Between two groups the leases that `++` ends are kept
/// back (`end_later`): one record releases them before the next group looks for free slots, or when
/// the range ends.
template <class Source, class Memory>
class feed_engine {
 public:
  using device_type = typename Source::device_type;
  using stream_ref = typename device_type::stream_ref;
  using lease_type = device_lease<device_type>;

  /// From `source` to `memory`, whose transforms, if any, take batches of `layout`. The consumer
  /// holds its lease in `held`. Throws what the device throws, and `option_error`.
  feed_engine(std::shared_ptr<Source> source, stream_ref stream, std::shared_ptr<Memory> memory,
              const slot_layout& layout, const slot_plan& plan, bool transforms, lease_type& held);
  feed_engine(feed_engine&&) = delete;
  ~feed_engine();

  /// Ends the range, permanently: the source may be gone from now on.
  void shut_down() noexcept {
    stop();
    range_.close();
  }

  /// Starts a range and returns its serial number, which `finish` takes. Until `advance`, `next` is
  /// the position that a state has: `from` where it is not given.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch,
                      const std::optional<batch_position>& next = {});

  /// Release, issue, hand out. False at the end.
  bool advance();

  /// The next batch as soon as it may be used on the consumer's stream; empty at the end. Whether
  /// the stream is usable has been asked just now (`is_asked`), or is asked here.
  [[nodiscard]] lease_type next(bool is_asked = false);

  /// Ends the range `range`, unless another one was started since.
  void finish(std::uint64_t range) noexcept {
    if (range_.is_current(range)) stop();
  }

  /// Ends what is read and copied for the live range, which lives on: its leases stay.
  void rest() noexcept;
  /// Whether the range `range` is live.
  [[nodiscard]] bool is_live(std::uint64_t range) const noexcept {
    return range_.is_live() && range_.is_current(range);
  }
  /// Whether `next` needs no lease to end.
  [[nodiscard]] bool has_room() const noexcept { return !issued_.empty() || free_.find(*slots_); }
  /// Whether a stop of the source was requested.
  [[nodiscard]] bool is_stopped() const { return source_.stop_token().stop_requested(); }
  /// Waits for all work of the consumer's stream.
  void synchronize() const { slots_->device().synchronize(stream_); }
  /// Counts so many batches that were handed out anew, in so long.
  void note_replay(std::uint64_t batches, std::chrono::nanoseconds time) noexcept {
    seen_.note_replay(batches, time);
  }

  /// The place of the exception that ended the last range. From any thread.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return failure_.load();
  }
  /// What has happened so far, with the source's statistics where it has some. From any thread.
  [[nodiscard]] transfer_stats stats() const {
    transfer_stats all = seen_.snapshot();
    all.depth = depth();
    all.loader = source_.stats();
    return all;
  }
  /// The position after the batch that was handed out last. From any thread.
  [[nodiscard]] batch_position next_position() const noexcept { return next_position_.load(); }
  /// What an automatic depth has come to. From any thread.
  [[nodiscard]] tuning_history tuning() const { return watch_.tuning(depth()); }
  /// How many device slots are filled by turns.
  [[nodiscard]] std::size_t depth() const noexcept { return slots_->count(); }
  /// Whether batches stay in their host slots.
  [[nodiscard]] bool zero_copy() const noexcept { return zero_copy_; }
  /// How many bytes of device memory are taken.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return memory_->bytes(); }

 protected:
  /// Throws `std::logic_error` unless a range may start: after `shut_down` the source may be gone.
  void require_none() const { range_.require_none(); }
  /// Takes batches from `source` from now on, between two ranges.
  void feed_from(std::shared_ptr<Source> source) noexcept { source_.ask(std::move(source)); }

  /// Ends the live range: copies under way go on, and their slots come back after them.
  void stop() noexcept;

 private:
  /// How many copies are queued together at most.
  [[nodiscard]] std::size_t most_in_group(const transfer_options& options) const {
    const std::size_t asked = checked_group<device_type>(options, layout_.bytes());
    if (!shares_mark<typename Source::batch_type, device_type>) return 1;
    if (slots_->holds_host()) return 1;  // there is no call to share
    return is_body(slots_->device(), stream_) ? 1 : asked;
  }
  /// How many are at the moment.
  [[nodiscard]] std::size_t group() const noexcept {
    return (std::min)(most_in_group_, (slots_->count() + 1) / 2);
  }

  /// Ends the lease that the consumer holds, if there is one.
  void end_held() noexcept {
    if (group() > 1 && held_.is_in(*slots_)) return held_.end_later();
    held_.release();
  }

  bool take_ready();
  void issue_ready();
  bool issue_next();
  /// A batch of the next group, which goes into `slot`, which is free.
  void take(std::size_t slot, typename Source::batch_type&& batch) noexcept {
    slots_->take(slot, batch.info());
    free_.note_taken(slot);
    if constexpr (has_tags<typename Source::batch_type>) {
      const std::span<const std::uint64_t> words = batch.tags();
      slots_->tags(slot).assign(words.begin(), words.end());  // there is room, as below
    }
    group_.push_back({slot, std::move(batch)});  // there is room
  }
  void issue();

  feed_source<Source> source_;
  slot_layout layout_;  // of the batches as they travel
  stream_ref stream_;
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<device_slots<device_type>> slots_;  // of the memory, for leases
  bool zero_copy_;
  std::size_t most_in_group_;
  std::vector<slot_filling<typename Source::batch_type>> group_;  // whose copies are queued next
  issued_slots issued_;
  free_slots free_;
  shared_value<std::optional<penstock::failure>> failure_;
  shared_value<batch_position> next_position_;
  feed_observer seen_;
  feed_watch<device_type> watch_;
  active_range range_{"transfer"};
  lease_type& held_;
};

template <class Source, class Memory>
feed_engine<Source, Memory>::feed_engine(std::shared_ptr<Source> source, stream_ref stream,
                                         std::shared_ptr<Memory> memory, const slot_layout& layout,
                                         const slot_plan& plan, bool transforms, lease_type& held)
    : source_(source),
      layout_(layout),
      stream_(stream),
      memory_(std::move(memory)),
      slots_(memory_, &memory_->ring),
      zero_copy_(plan.zero_copy),
      most_in_group_(most_in_group(plan.options)),
      issued_(slots_->most()),
      free_(plan.options.when_held),
      seen_(layout_.fixed_bytes(), slots_->layout().fixed_bytes(), transforms),
      watch_(*slots_, stream, plan.options, seen_, source_.trace_flow(plan.options.observe.trace)),
      held_(held) {
  memory_->trace_to(seen_.trace());
  memory_->time_by(watch_.timer());
  if constexpr (has_tags<typename Source::batch_type>) {
    for (std::size_t slot = 0; slot < slots_->most(); ++slot) {
      slots_->tags(slot).reserve(layout_.batch_size());
    }
  }
  list_samples_of(*source, *slots_);
  group_.reserve((std::min)(most_in_group_, slots_->most()));
}

template <class Source, class Memory>
feed_engine<Source, Memory>::~feed_engine() = default;

template <class Source, class Memory>
std::uint64_t feed_engine<Source, Memory>::start(const batch_position& from,
                                                 std::uint64_t last_epoch,
                                                 const std::optional<batch_position>& next) {
  range_.require_none();
  source_.start(from, last_epoch);
  next_position_.store(next.value_or(from));
  failure_.store(std::nullopt);
  seen_.begin_range();
  watch_.begin_range();
  return range_.start();
}

template <class Source, class Memory>
bool feed_engine<Source, Memory>::advance() {
  watch_.end_step(stream_);
  // Its end asks whether the stream is usable, and `next` tells what that has refused. Not so for
  // a lease of another feed that the body has put there.
  const bool is_asked = held_.is_in(*slots_);
  end_held();
  held_ = next(is_asked);
  if (!held_) {
    stop();
    return false;
  }
  const batch_info& batch = held_.info();
  seen_.note_handed_out(batch.size, issued_.size());
  next_position_.store(batch_position{batch.epoch, batch.batch + 1});
  watch_.begin_step(*slots_, stream_, batch);
  return true;
}

template <class Source, class Memory>
typename feed_engine<Source, Memory>::lease_type feed_engine<Source, Memory>::next(bool is_asked) {
  if (!range_.is_live()) return {};
  try {
    slots_->rethrow_poison();
    if (!is_asked) require_still_usable(slots_->device(), stream_);
    issue_ready();
    if (!issued_.empty() || issue_next()) {
      const auto [slot, waits_for] = issued_.front();
      if (waits_for != issued_slots::none) {
        // Where the calling thread is the stream, this waits for the copy.
        const auto timed = seen_.for_copy(slots_->will_block(waits_for, stream_));
        slots_->wait_for_copy(waits_for, stream_);
      }
      issued_.pop();
      return {slots_, slot, stream_};
    }
  } catch (...) {  // of the device's
    stop();
    throw;
  }
  if (const failed_batch failed = source_.take_failed()) {
    failure_.store(failed.place);
    stop();
    std::rethrow_exception(failed.error);
  }
  return {};
}

template <class Source, class Memory>
void feed_engine<Source, Memory>::stop() noexcept {
  if (!range_.end()) return;
  watch_.leave_step();
  held_.note_left();
  end_held();
  slots_->release_ended(stream_, false);
  rest();
}

template <class Source, class Memory>
void feed_engine<Source, Memory>::rest() noexcept {
  seen_.end_range();
  watch_.end_range();
  source_.discard(issued_, *slots_);
  source_.stop();
}

/// Queues copies as long as a batch is ready and a slot is free, when it is time for a group.
template <class Source, class Memory>
void feed_engine<Source, Memory>::issue_ready() {
  if (issued_.size() > 1 && issued_.size() + group() > slots_->count()) return;
  if (most_in_group_ != 1) {
    // Before free slots are looked for: those whose leases `++` has ended; `next` has asked whether
    // the stream is usable.
    slots_->release_ended(stream_, true);
    slots_->rethrow_poison();
  }
  while (take_ready()) issue();
}

/// Takes batches that are ready; whether the group has any.
template <class Source, class Memory>
bool feed_engine<Source, Memory>::take_ready() {
  for (std::size_t left = group(); left != 0 && !source_.is_over(); --left) {
    const auto slot = free_.find(*slots_);
    if (!slot) break;
    auto batch = source_.template next<false>();
    if (!batch) break;
    take(*slot, std::move(batch));
  }
  return !group_.empty();
}

/// Waits for the next batch and queues its copy; false at the end.
template <class Source, class Memory>
bool feed_engine<Source, Memory>::issue_next() {
  if (!source_.may_have_more()) return false;
  // First: what is taken from the source has a place.
  const std::size_t slot =
      free_.wait(*slots_, source_.stop_token(), [this] { return seen_.for_lease(); });
  {
    const auto timed = seen_.for_batch();
    auto batch = source_.template next<true>();
    if (!batch) return false;
    take(slot, std::move(batch));
  }
  issue();
  return true;
}

/// Queues the copies of the group.
template <class Source, class Memory>
void feed_engine<Source, Memory>::issue() {
  const auto* at = &group_.front();
  try {
    memory_->copy_in(
        std::span{group_}, [&](const auto& one, const auto& queue) __attribute__((always_inline)) {
          at = &one;
          const batch_info& info = slots_->info(one.slot);
          if constexpr (batch_of_listed_samples<typename Source::batch_type>) {
            if (slots_->lists.is_on()) [[unlikely]]
              slots_->lists.take(one.slot, one.from.indices(), one.from.substituted());
          }
          const std::uint64_t values =
              layout_.is_ragged() ? layout_.value_bytes(one.from.data(), info.size) : 0;
          watch_.fill_of(info, !zero_copy_, queue);
          if (zero_copy_) return seen_.note_zero_copy();
          seen_.note_copy(info.size, values);
        });
  } catch (...) {
    const batch_info& info = slots_->info(at->slot);
    failure_.store(penstock::failure{"transfer", info.epoch, info.batch});
    for (const auto& [slot, from] : group_) {
      source_.take_back(slots_->info(slot), slots_->tags(slot));
    }
    group_.clear();
    throw;
  }
  std::size_t waits_for = slots_->holds_host() ? issued_slots::none : group_.back().slot;
  for (const auto& one : group_) {
    issued_.push(one.slot, std::exchange(waits_for, issued_slots::none));
  }
  group_.clear();
}

/// What a feed consists of.
template <class Source, class Transform>
struct feed_parts {
  using source_type = std::remove_reference_t<Source>;
  using device_type = typename source_type::device_type;
  using memory = feed_memory<Transform, typename source_type::record_type, device_type>;
  using batch_type = device_batch<typename memory::record_type, device_type>;
  using engine = feed_engine<typename decltype(fed_by(std::declval<source_type&>()))::element_type,
                             typename memory::type>;

  /// Before the engine, which refers to them.
  struct ends {
    Source source;    ///< or a reference to it
    batch_type held;  ///< the consumer's lease
  };
};

/// What the ranges of a `transfer` run on; `transfer` is its owner and its face. For the consumer's
/// thread.
template <class Source, class Transform>
  requires transferable<std::remove_reference_t<Source>, Transform>
class feed final : feed_parts<Source, Transform>::ends,
                   public feed_parts<Source, Transform>::engine {
  using parts = feed_parts<Source, Transform>;
  using ends = typename parts::ends;
  using engine = typename parts::engine;
  using memory_type = typename parts::memory::type;
  static constexpr bool transforms = !std::same_as<Transform, no_transform>;

 public:
  using source_type = typename parts::source_type;
  using device_type = typename parts::device_type;
  using record_type = typename parts::memory::record_type;
  using stream_ref = typename device_type::stream_ref;
  using batch_type = typename parts::batch_type;

  /// Takes the device slots.
  feed(Source&& source, stream_ref stream, Transform transform, const transfer_options& options)
      : feed(std::forward<Source>(source), stream, std::move(transform),
             planned_slots(*fed_by(source), options, transforms)) {}
  feed(Source&& source, stream_ref stream, Transform transform, const slot_plan& plan)
      : ends{std::forward<Source>(source), {}},
        engine(fed_by(ends::source), stream,
               shared_by_leases<memory_type, stream_ref>(
                   usable(ends::source.device(), stream), ends::source.layout(),
                   checked_depth(plan.options), std::move(transform), plan.zero_copy),
               ends::source.layout(), plan, transforms, ends::held) {}
  ~feed() { engine::stop(); }

  /// As `feed_engine::start`.
  std::uint64_t start(const batch_position& from, std::uint64_t last_epoch,
                      const std::optional<batch_position>& next = {}) {
    engine::require_none();
    engine::feed_from(fed_by(ends::source));
    return engine::start(from, last_epoch, next);
  }
  /// As `feed_engine::next`.
  [[nodiscard]] batch_type next() { return batch_type{engine::next()}; }
  /// The lease that the consumer holds.
  [[nodiscard]] batch_type& current() noexcept { return ends::held; }
  /// Where the batches come from.
  [[nodiscard]] const source_type& source() const noexcept { return ends::source; }

 private:
  static const device_type& usable(const device_type& device, stream_ref stream) {
    device.require_usable(stream);
    return device;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
