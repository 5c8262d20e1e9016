// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/load/batch_range.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/detail/feed.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

// What `transfer{...}` says when its arguments are not those of a transfer, as `loader.hpp` does
// for a loader.

/// Whether a type is a `transfer`, which is moved by `transfer{std::move(feed)}`.
template <class T>
inline constexpr bool is_transfer = false;

/// Stands for the stream of a transfer that names none.
struct no_stream {};

/// The arguments of a transfer, each of which must be what its place asks for.
template <class Source, class Stream = no_stream, class Transform = no_transform>
struct carried {
  using unqualified = std::remove_reference_t<Source>;
  // A transfer: clang 14 looks in here before it looks at what a guide requires.
  static_assert(batch_source<unqualified> || is_transfer<std::remove_const_t<unqualified>>,
                "penstock::transfer: the first argument must be a source of batches that is not "
                "const: a ps::loader, or a type that models ps::batch_source");
  static constexpr bool is_fed_to_a_stream = [] {
    if constexpr (batch_source<unqualified> && !std::same_as<Stream, no_stream>) {
      using device = typename unqualified::device_type;
      return std::convertible_to<Stream, typename device::stream_ref> ||
             std::convertible_to<Stream, const device&> ||
             std::convertible_to<Stream, transfer_options>;
    }
    return true;
  }();
  static_assert(
      is_fed_to_a_stream,
      "penstock::transfer: the second argument must be the stream that your step runs on, "
      "one of the loader's device; or that device, where the loop's body is the step");
  static constexpr bool is_transformed = [] {
    if constexpr (batch_source<unqualified> && !std::same_as<Transform, no_transform> &&
                  !std::same_as<Transform, transfer_options>) {  // clang 14, as above
      return device_transform<Transform, typename unqualified::record_type,
                              typename unqualified::device_type>;
    }
    return true;
  }();
  static_assert(is_transformed,
                "penstock::transfer: the third argument must be a transform of the loader's record "
                "on its device, as ps::on_stream or ps::on_device makes one; or options");
  using source_type = Source;
};

/// Arguments whose options do not come last.
template <class Source>
struct carried_with_early_options : carried<Source> {
  static_assert(
      !batch_source<std::remove_reference_t<Source>>,
      "penstock::transfer: options come last: transfer feed{loader, stream, {.depth = 3}}");
};

/// What the ranges of `transfer::replay` run on: keeps the leases of a range's first batches, and
/// gives them out in turn. For the consumer's thread.
template <class Feed>
class replay {
 public:
  using batch_type = typename Feed::batch_type;

  explicit replay(std::shared_ptr<Feed> flow) : flow_(std::move(flow)) {
    kept_.reserve(flow_->depth());
  }
  replay(replay&&) = delete;
  ~replay() { end(); }

  /// Brings batches to the device, as many as there are slots, ends the reading, and waits for the
  /// copies. Returns the serial number of the range over the transfer that is live meanwhile.
  std::uint64_t start(const batch_position& from, std::uint64_t batches) {
    // Each epoch has a batch; a loader knows of 2^32 epochs, and says so of one that lies beyond.
    constexpr std::uint64_t end = std::uint64_t{1} << 32;
    serial_ = flow_->start(
        from, (std::max)(from.epoch + 1, (std::min)(from.epoch + flow_->depth() + 1, end)),
        flow_->next_position());  // what is replayed is no part of a training
    left_ = batches;
    given_ = 0;
    try {
      while (kept_.empty() || flow_->has_room()) {
        auto batch = flow_->next();
        if (!batch) break;
        kept_.push_back(std::move(batch));
      }
      flow_->rest();
      flow_->synchronize();
    } catch (...) {
      abandon();
      throw;
    }
    begin_ = clock::now();
    return serial_;
  }

  /// Goes on to the next batch; false after the last, once the stream's work is done.
  bool advance() {
    if (!flow_->is_live(serial_)) {
      kept_.clear();
      return false;
    }
    if (flow_->is_stopped()) {
      abandon();
      throw cancelled("cancelled: a stop of the source was requested during a replay");
    }
    if (left_ == 0 || kept_.empty()) {
      try {
        flow_->synchronize();
      } catch (...) {
        abandon();
        throw;
      }
      end();
      return false;
    }
    --left_;
    place_ = static_cast<std::size_t>(given_++ % kept_.size());
    if (batch_type& again = kept_[place_]) {
      if constexpr (checked) again = batch_type{std::move(again)};  // for whichever thread uses it
      return true;
    }
    abandon();
    throw leases_exhausted(
        "transfer: a lease was moved out of a replay, which hands it out again: loop over epochs "
        "to keep batches");
  }

  /// The lease that the consumer looks at.
  [[nodiscard]] batch_type& current() noexcept { return kept_.empty() ? none_ : kept_[place_]; }

  /// Ends the range `range`, unless another one was started since.
  void finish(std::uint64_t range) noexcept {
    if (range != 0 && range == serial_) end();
  }

 private:
  using clock = std::chrono::steady_clock;

  /// Ends the range, and counts what it gave.
  void end() noexcept {
    if (!flow_->is_live(serial_)) return kept_.clear();
    try {
      flow_->synchronize();  // for the time; a loop that was left has work under way
      if (given_ != 0) flow_->note_replay(given_, clock::now() - begin_);
    } catch (...) {  // NOLINT: the device tells it again, where an exception may leave
    }
    abandon();
  }
  /// Ends the range.
  void abandon() noexcept {
    kept_.clear();
    flow_->finish(serial_);
  }

  std::shared_ptr<Feed> flow_;
  std::vector<batch_type> kept_;
  batch_type none_;  // after the end
  std::size_t place_ = 0;
  std::uint64_t serial_ = 0;
  std::uint64_t left_ = 0;
  std::uint64_t given_ = 0;
  clock::time_point begin_;
};

/// A source whose epochs have a number of batches that is known.
template <class Source>
concept counted_source = requires(const Source& source) {
  { source.batches_per_epoch() } -> std::convertible_to<std::uint64_t>;
};

/// The stream of a consumer that names none: its loop's body is the step.
template <class Device>
[[nodiscard]] typename Device::stream_ref body_stream(const Device& device) {
  constexpr bool is_host = requires {
    { device.inline_stream() } -> std::convertible_to<typename Device::stream_ref>;
  };
  static_assert(is_host,
                "penstock::transfer: this device needs the stream that your step runs on: transfer "
                "feed{loader, stream}. Only on the CPU device may the loop's body be the step");
  if constexpr (is_host) return device.inline_stream();
}

}  // namespace detail

/// Carries batches from a source to a device: a range of leases whose copies run on a stream of
/// their own, under the work that the consumer gives to its stream.
///
///     ps::transfer feed{loader, stream};
///     for (auto& batch : feed.epochs(0, 5)) train_step(ps::get<"image">(batch), ..., stream);
///
/// On the CPU device the step may be the loop's body, as plain C++ and libtorch on the CPU are:
/// then no stream is named, a batch is handed out when its copy is complete, and released by the
/// body's end.
///
///     ps::transfer feed{loader};
///
/// A program that names a stream there and reads a batch in the body has to synchronise with the
/// stream first.
///
/// `++` releases the current batch, queues the copies of all batches that are ready and have a free
/// slot, and makes the consumer's stream wait for the next batch's copy. It synchronises nothing
/// and allocates nothing; it waits only while the source has no batch ready (a loader without
/// workers reads it then), and without a stream for the copy. The next copy into a slot waits for
/// the work that the consumer's stream had been given when the lease was released.
///
/// With a transform, what arrives is made into what the consumer gets on the device, after its copy
/// and under the copy of the next batch and the consumer's work; see `device_transform`:
///
///     ps::transfer feed{loader, stream, ps::on_device<"image">(to_float{}), {.depth = 3}};
///
/// An lvalue source is referred to, must outlive the feed and must not be moved meanwhile, nor
/// assigned to while a range is live; an rvalue is moved in. The consumer's stream must outlive
/// every lease. All memory is taken at construction: on the device `depth` times the bytes of a
/// batch, and twice those of a batch as it travels where there is a transform; only
/// `depth = automatic` takes slots later. Movable; one thread consumes.
///
/// Construction throws `option_error`, `out_of_memory`, and what the device throws.
template <class Source, class Transform = no_transform>
  requires detail::transferable<std::remove_reference_t<Source>, Transform>
class transfer {
  using source_type = std::remove_reference_t<Source>;
  using flow = detail::feed<typename detail::fed<Source>::type, Transform>;

 public:
  /// What the consumer's batches consist of.
  using record_type = typename flow::record_type;
  using device_type = typename flow::device_type;
  using stream_ref = typename flow::stream_ref;
  using batch_type = typename flow::batch_type;
  using range_type = batch_range<flow>;
  /// What `replay` gives.
  using replay_range_type = batch_range<detail::replay<flow>>;

  /// `stream` is the stream that the consumer's work runs on.
  transfer(Source&& source, stream_ref stream, const transfer_options& options = {})
    requires std::same_as<Transform, no_transform>
      : flow_(std::make_shared<flow>(std::forward<Source>(source), stream, Transform{}, options)) {}

  /// A transfer with a transform, which is moved in.
  transfer(Source&& source, stream_ref stream, Transform transform,
           const transfer_options& options = {})
    requires(!std::same_as<Transform, no_transform>)
      : flow_(std::make_shared<flow>(std::forward<Source>(source), stream, std::move(transform),
                                     options)) {}

  /// The loop's body is the step: for the CPU device.
  explicit transfer(Source&& source, const transfer_options& options = {})
    requires std::same_as<Transform, no_transform>
      : transfer(std::forward<Source>(source), detail::body_stream<device_type>(source.device()),
                 options) {}
  /// A transfer whose device is named; it must be the source's.
  transfer(Source&& source, const device_type& device, const transfer_options& options = {})
    requires std::same_as<Transform, no_transform>
      : transfer(std::forward<Source>(source), detail::body_stream(device), options) {}
  /// A transfer with a transform, which still runs on a stream of its own.
  transfer(Source&& source, const device_type& device, Transform transform,
           const transfer_options& options = {})
    requires(!std::same_as<Transform, no_transform>)
      : transfer(std::forward<Source>(source), detail::body_stream(device), std::move(transform),
                 options) {}

  transfer(transfer&&) noexcept = default;
  transfer& operator=(transfer&&) = delete;

  /// Ends the range that is live and what its source reads. Leases stay valid, ranges end.
  ~transfer() {
    if (flow_) flow_->shut_down();
  }

  /// The batches of the epochs `first` to `last`, the latter not included, without a pause at the
  /// borders; nothing after `last` is read.
  [[nodiscard]] range_type epochs(std::uint64_t first, std::uint64_t last) & {
    return range_type{flow_, {first, 0}, last};
  }
  /// The batches of one epoch.
  [[nodiscard]] range_type epoch(std::uint64_t which) & { return epochs(which, which + 1); }
  /// From any batch on, in constant time.
  [[nodiscard]] range_type batches(const batch_position& from, std::uint64_t last_epoch) & {
    return range_type{flow_, from, last_epoch};
  }

  /// The floor beneath this loop: `batches` batches, of which only the first `depth()` from `from`
  /// on are copied; then nothing is read any more, and these are handed out again and again.
  /// A loop over them, with the body as it is, takes what its steps alone take; `stats().replay`
  /// has the time, up to the end of the stream's work, and `diagnose` compares with it. What such a
  /// loop learns means nothing: train on a copy, or go back to a checkpoint afterwards.
  ///
  ///     for (auto& batch : feed.replay({0, 0}, 200)) train_step(...);
  ///
  /// It is a range over this transfer, in everything else as `batches`; `state()` stays what it
  /// was. Take the first snapshot after it: that its batches are read and copied is counted. A body
  /// that writes to a batch gets that back; one that moves a lease out gets `leases_exhausted`.
  [[nodiscard]] replay_range_type replay(const batch_position& from, std::uint64_t batches) & {
    return {std::make_shared<detail::replay<flow>>(flow_), from, batches};
  }

  /// @cond misuse
  // A feed is no range, its epochs are: calling these does not compile, and says so.
  __attribute__((unavailable("penstock: loop over feed.epoch(e) or feed.epochs(first, last)"))) void
  begin() const;
  __attribute__((unavailable("penstock: loop over feed.epoch(e) or feed.epochs(first, last)"))) void
  end() const;
  /// @endcond

  /// The position of the next batch, for a checkpoint: the one after the batch that the consumer
  /// got last, whatever was read or copied ahead; after an epoch's last one its end, see
  /// `loader_state`. For sources that have states, as the loader has. From any thread, where the
  /// source's `state_at` is.
  [[nodiscard]] auto state() const
    requires resumable_source<source_type>
  {
    return flow_->source().state_at(flow_->next_position());
  }

  /// The state of a loop whose next batch is `next`, as `loader::state_at`:
  /// `feed.state_at(batch.position())` before a step goes on with that batch if the step fails.
  [[nodiscard]] auto state_at(const batch_position& next) const
    requires resumable_source<source_type>
  {
    return flow_->source().state_at(next);
  }

  /// Continues after the batch at which `state` was taken; see `loader::resume`.
  template <class State>
  [[nodiscard]] range_type resume(const State& state, std::uint64_t last_epoch) &
    requires resumable_source<source_type>
  {
    if constexpr (requires { flow_->source().position_of(state); }) {
      return batches(flow_->source().position_of(state), last_epoch);
    } else {
      require_same_order(state, flow_->source().state_at({}));
      return batches({state.epoch, state.batch}, last_epoch);
    }
  }

  /// Where the batches come from, to be asked: of a source that was moved in `failures()`,
  /// `footprint()` and the like. A loader is an `any_loader` here.
  [[nodiscard]] const typename flow::source_type& source() const noexcept {
    return flow_->source();
  }
  /// How many batches an epoch has. For sources that say so, as the loader does.
  [[nodiscard]] std::uint64_t batches_per_epoch() const
    requires detail::counted_source<source_type>
  {
    return flow_->source().batches_per_epoch();
  }

  /// Where the exception came from that ended the last range; nothing if none did, or if it belongs
  /// to no batch: a device that fails between two. From any thread.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return flow_->last_failure();
  }

  /// What has been copied and waited for so far, see `transfer_stats`; with the source's statistics
  /// where it is a loader. From any thread, also while a loop runs.
  [[nodiscard]] transfer_stats stats() const { return flow_->stats(); }

  /// What `depth` has come to where it is `automatic`, and by which moves. From any thread.
  [[nodiscard]] tuning_history tuning() const { return flow_->tuning(); }
  /// How many batches are on the device or on their way at most; with `depth = automatic` at the
  /// moment. From any thread, as `device_bytes`.
  [[nodiscard]] std::size_t depth() const noexcept { return flow_->depth(); }
  /// Whether batches are not copied: the device works on them in their host slots, see
  /// `transfer_options::zero_copy`.
  [[nodiscard]] bool zero_copy() const noexcept { return flow_->zero_copy(); }
  /// The device memory in bytes that the slots take, and the two places of arrival before a
  /// transform.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return flow_->device_bytes(); }

 private:
  std::shared_ptr<flow> flow_;  // on the heap: ranges and iterators refer to it
};

namespace detail {

template <class Source, class Transform>
inline constexpr bool is_transfer<transfer<Source, Transform>> = true;

}  // namespace detail

/// An lvalue source is referred to, an rvalue is moved in.
template <class Source, class Stream>
transfer(Source&&, Stream&&,
         transfer_options = {}) -> transfer<typename detail::carried<Source, Stream>::source_type>;
/// Without a stream: the loop's body is the step.
template <class Source>
  requires(!detail::is_transfer<std::remove_cvref_t<Source>>)
transfer(Source&&,
         transfer_options = {}) -> transfer<typename detail::carried<Source>::source_type>;
/// With a transform on the device.
template <class Source, class Stream, class Transform>
  requires(!std::same_as<std::remove_cvref_t<Transform>, transfer_options>)
transfer(Source&&, Stream&&, Transform&&, transfer_options = {})
    -> transfer<
        typename detail::carried<Source, Stream, std::remove_cvref_t<Transform>>::source_type,
        std::remove_cvref_t<Transform>>;

/// For options that do not come last: says so in a sentence.
template <class Source, class Stream>
transfer(Source&&, transfer_options,
         Stream&&) -> transfer<typename detail::carried_with_early_options<Source>::source_type>;

/// The memory of a loader and of a transfer over it. With `zero_copy_use::always` there is none on
/// the device, but what a transform fills; `by_device` counts as if batches were copied, the most
/// that is taken: `transfer::zero_copy` and `device_bytes` say what it has come to.
struct feed_footprint {
  loader_footprint host;              ///< of the loader
  std::size_t device_slots = 0;       ///< what `transfer::depth` says then; of `automatic` the most
  std::size_t device_slot_bytes = 0;  ///< bytes of each: a batch as the consumer gets it
  std::size_t staging_bytes = 0;      ///< two batches as they travel, where there is a transform
  std::size_t device_bytes = 0;  ///< device memory in all: what `transfer::device_bytes` says then

  /// An upper bound in bytes for what the feed allocates in host memory: 4 KiB and 1 KiB a device
  /// slot, 16 KiB more where `depth` is `automatic`, 16 bytes a sample of each slot where the
  /// loader has `observe.indices`. Without the device's own streams and events, and what a
  /// transform allocates itself.
  std::size_t bookkeeping = 0;

  friend bool operator==(const feed_footprint&, const feed_footprint&) = default;
};

namespace detail {

/// A feed of `depth` batches of `out_bytes` bytes, with `staging` bytes on their way.
inline feed_footprint feed_of(const loader_footprint& host, std::size_t depth,
                              std::size_t out_bytes, std::size_t staging,
                              const loader_options& load, const transfer_options& feed) {
  constexpr std::size_t kib = 1024;
  const std::size_t fixed = (feed.depth == automatic ? 20 : 4) * kib;
  return {.host = host,
          .device_slots = depth,
          .device_slot_bytes = out_bytes,
          .staging_bytes = staging,
          .device_bytes = saturating_sum(depth, out_bytes, staging),
          .bookkeeping = saturating_sum(
              depth, saturating_sum(load.observe.indices ? 16 : 0, load.batch_size, kib), fixed)};
}

}  // namespace detail

/// The memory that a loader with these options takes, and a transfer over it, in bytes, before
/// anything is taken; see `footprint` of a loader alone. Throws `option_error`, and `layout_error`.
template <record_type Record>
[[nodiscard]] feed_footprint footprint(const record_extents<Record>& extents,
                                       const loader_options& load, const transfer_options& feed) {
  const loader_footprint host = footprint<Record>(extents, load);
  const std::size_t depth = detail::checked_depth(feed).most;
  if (feed.tuning.zero_copy != zero_copy_use::always) {
    return detail::feed_of(host, depth, host.slot_bytes, 0, load, feed);
  }
  return detail::feed_of(host, (std::min)(depth, host.slot_count), 0, 0, load, feed);
}

/// The memory of a loader and a transfer with a transform on the device.
template <record_type Record, class Transform>
[[nodiscard]] feed_footprint footprint(const record_extents<Record>& extents,
                                       const loader_options& load, const Transform& transform,
                                       const transfer_options& feed) {
  const loader_footprint host = footprint<Record>(extents, load);
  const batch_layout<detail::transformed_record_t<Transform, Record>> out{
      detail::transformed_extents<Record>(transform, extents), load.batch_size};
  const bool is_copied = feed.tuning.zero_copy != zero_copy_use::always;
  const std::size_t staging = is_copied ? detail::saturating_sum(2, host.slot_bytes, 0) : 0;
  return detail::feed_of(host, detail::checked_depth(feed).most, out.bytes(), staging, load, feed);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock

/// What all transfers to a device share, whatever their batches are: the ring of slots, the engine.
/// See `PENSTOCK_LOADERS_ON`. A transfer with a transform has an engine of its own.
#define PENSTOCK_TRANSFERS_ON(kind, ...)                                                \
  kind class penstock::device_lease<__VA_ARGS__>;                                       \
  kind class penstock::detail::device_slots<__VA_ARGS__>;                               \
  kind class penstock::detail::feed_watch<__VA_ARGS__>;                                 \
  kind class penstock::detail::feed_engine<penstock::detail::loader_core<__VA_ARGS__>,  \
                                           penstock::detail::plain_slots<__VA_ARGS__>>; \
  kind penstock::detail::slot_plan penstock::detail::planned_slots(                     \
      const penstock::detail::loader_core<__VA_ARGS__>&, const penstock::transfer_options&, bool);

#if PENSTOCK_COMPILED
PENSTOCK_TRANSFERS_ON(extern template, penstock::cpu_device)
#endif
