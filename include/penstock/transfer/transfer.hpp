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
#include <penstock/load/support/pull_loop.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/transfer/batch_source.hpp>
#include <penstock/transfer/detail/depth_tuner.hpp>
#include <penstock/transfer/detail/feed.hpp>
#include <penstock/transfer/device_batch.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// True for a `transfer`, because `transfer{std::move(feed)}` moves a transfer.
template <class T>
inline constexpr bool is_transfer = false;

/// The stream type of a transfer without a stream.
struct no_stream {};

/// Checks the arguments of `transfer{...}`, like `loader_args_check` for a loader.
/// `HasEarlyOptions` is true if the options precede the stream.
template <class Source, class Stream = no_stream, class Transform = no_transform,
          bool HasEarlyOptions = false>
struct transfer_args_check {
  using unqualified = std::remove_reference_t<Source>;
  static constexpr bool is_source = batch_source<unqualified>;
  // Accepts a transfer, because clang 14 instantiates this class before it checks the constraints
  // of a guide.
  static_assert(is_source || is_transfer<std::remove_const_t<unqualified>>,
                "penstock::transfer: the first argument must be a source of batches that is not "
                "const: a ps::loader, or a type that models ps::batch_source");
  static_assert(
      !is_source || std::same_as<Stream, no_stream> ||
          std::convertible_to<Stream, transfer_options> ||
          requires {
            requires std::convertible_to<Stream, typename unqualified::device_type::stream_ref> ||
                         std::convertible_to<Stream, const typename unqualified::device_type&>;
          },
      "penstock::transfer: the second argument must be the stream on which your step runs, a "
      "stream of the loader's device; or the device itself, if the loop's body is the step. 0 and "
      "nullptr are not accepted: for CUDA's default stream write cudaStreamLegacy");
  static_assert(
      !is_source || std::same_as<Transform, no_transform> ||
          std::same_as<Transform, transfer_options> ||  // for clang 14, for the same reason
          requires {
            requires device_transform<Transform, typename unqualified::record_type,
                                      typename unqualified::device_type>;
          },
      "penstock::transfer: the third argument must be a transform of the loader's record "
      "on its device, made by ps::on_stream or ps::on_device; or options");
  static_assert(
      !is_source || !HasEarlyOptions,
      "penstock::transfer: options come last: transfer feed{loader, stream, {.depth = 3}}");
  using source_type = Source;
};

/// Implements the ranges of `transfer::replay`. Stores the leases for the first batches of a range,
/// and returns them repeatedly. Only the consumer thread may use this object.
template <class Feed>
class replay {
 public:
  using batch_type = typename Feed::batch_type;

  explicit replay(std::shared_ptr<Feed> flow) : flow_(std::move(flow)) {
    retained_.reserve(flow_->engine().depth());
  }
  replay(replay&&) = delete;
  ~replay() { end(); }

  /// Fills all device slots with batches, stops reading, and waits for the copies. Returns the
  /// serial number of the range over the transfer, which is live during the replay.
  std::uint64_t start(const batch_position& from, std::uint64_t batches) {
    // Each epoch has at least one batch. A loader has 2^32 epochs, and rejects later epochs.
    constexpr std::uint64_t end = std::uint64_t{1} << 32;
    serial_ = flow_->start(
        from, (std::max)(from.epoch + 1, (std::min)(from.epoch + flow_->engine().depth() + 1, end)),
        flow_->engine().next_position());  // the training position is unchanged
    left_ = batches;
    given_ = 0;
    try {
      while (retained_.empty() || flow_->engine().has_room()) {
        auto batch = flow_->next();
        if (!batch) break;
        retained_.push_back(std::move(batch));
      }
      flow_->engine().drain();
      flow_->engine().synchronize();
    } catch (...) {
      abandon();
      throw;
    }
    begin_ = clock::now();
    return serial_;
  }

  /// Advances to the next batch. After the last batch, waits for the work on the stream and returns
  /// false.
  bool advance() {
    if (!flow_->engine().is_live(serial_)) {
      retained_.clear();
      flow_->engine().require_whole();
      return false;
    }
    if (flow_->engine().is_stopped()) {
      abandon();
      throw cancelled("cancelled: a stop of the source was requested during a replay");
    }
    if (left_ == 0 || retained_.empty()) {
      try {
        flow_->engine().synchronize();
      } catch (...) {
        abandon();
        throw;
      }
      end();
      return false;
    }
    --left_;
    place_ = static_cast<std::size_t>(given_++ % retained_.size());
    if (batch_type& again = retained_[place_]) {
      if constexpr (checked) again = batch_type{std::move(again)};  // any thread may use the lease
      return true;
    }
    abandon();
    throw leases_exhausted(
        "transfer: a lease was moved out of a replay, which reuses its leases: loop over epochs to "
        "keep batches");
  }

  /// Returns the current lease of the consumer.
  [[nodiscard]] batch_type& current() noexcept {
    return retained_.empty() ? none_ : retained_[place_];
  }

  /// Ends the range `range`, unless another range has been started since.
  void finish(std::uint64_t range) noexcept {
    if (range != 0 && range == serial_) end();
  }

 private:
  using clock = std::chrono::steady_clock;

  /// Ends the range, and counts its batches.
  void end() noexcept {
    if (!flow_->engine().is_live(serial_)) return retained_.clear();
    try {
      flow_->engine().synchronize();  // The loop may have ended early.
      if (given_ != 0) flow_->engine().record_replay(given_, clock::now() - begin_);
    } catch (...) {  // NOLINT: the device reports it again, where it may leave
    }
    abandon();
  }
  /// Ends the range.
  void abandon() noexcept {
    retained_.clear();
    flow_->finish(serial_);
  }

  std::shared_ptr<Feed> flow_;
  std::vector<batch_type> retained_;
  batch_type none_;  // result of `current` after the end
  std::size_t place_ = 0;
  std::uint64_t serial_ = 0;
  std::uint64_t left_ = 0;
  std::uint64_t given_ = 0;
  clock::time_point begin_;
};

/// A source with a known number of batches in each epoch.
template <class Source>
concept counted_source = requires(const Source& source) {
  { source.batches_per_epoch() } -> std::convertible_to<std::uint64_t>;
};

/// Returns the stream of a consumer that does not pass a stream, because the loop body is the step.
template <class Device>
[[nodiscard]] typename Device::stream_ref body_stream(const Device& device) {
  constexpr bool is_host = requires {
    { device.inline_stream() } -> std::convertible_to<typename Device::stream_ref>;
  };
  static_assert(
      is_host,
      "penstock::transfer: this device needs the stream on which your step runs: transfer "
      "feed{loader, stream}. Only on the CPU device may the loop's body be the step");
  if constexpr (is_host) return device.inline_stream();
}

}  // namespace detail

/// Copies the batches of a source to a device, and delivers them as ranges of leases. The copies
/// run on their own stream, and overlap with the work that the consumer queues on its stream.
///
///     ps::transfer feed{loader, stream};
///     for (auto& batch : feed.epochs(0, 5)) train_step(ps::get<"image">(batch), ..., stream);
///
/// On the CPU device, the step may be the loop body, such as plain C++ or libtorch on the CPU. In
/// that case, the program does not pass a stream. A batch is delivered when its copy is complete,
/// and released at the end of the body.
///
///     ps::transfer feed{loader};
///
/// A program that passes a CPU stream and reads a batch in the body must synchronize with the
/// stream first.
///
/// `++` releases the current batch, queues the copies of all batches that are ready and have a free
/// slot, and makes the consumer stream wait for the copy of the next batch. `++` does not
/// synchronize or allocate. `++` waits only while the source has no batch ready, or while a loader
/// without workers reads the batch. If the transfer has no stream, `++` also waits for the copy.
/// The next copy into a slot waits for the work queued on the consumer stream when the lease was
/// released.
///
/// Work on a CPU stream may use `batch.view()` even after the feed and the loader are destroyed.
/// The destructors wait for that work, or the memory remains allocated until the work has ended.
///
/// A transform converts each batch on the device after its copy. The transform overlaps with the
/// copy of the next batch and with the work of the consumer (see `device_transform`):
///
///     ps::transfer feed{loader, stream, ps::on_device<"image">(to_float{}), {.depth = 3}};
///
/// An lvalue source is referenced and must outlive the transfer, and an rvalue source is moved in.
/// An lvalue source must not be moved, or assigned to while a range is live. Between two ranges,
/// another loader may be assigned to it. If the batches of that loader have another layout, the
/// next range throws `source_mismatch`. The consumer stream must outlive every lease.
///
/// The constructor allocates all memory: `depth` batches on the device and, with a transform, two
/// staging buffers for batches before the transform. Only `depth = automatic` allocates slots
/// later. Movable. Only one thread may consume.
///
/// The constructor throws `option_error`, `out_of_memory`, and errors from the device.
template <class Source, class Transform = no_transform>
  requires detail::transferable<std::remove_reference_t<Source>, Transform>
class transfer {
  using source_type = std::remove_reference_t<Source>;
  using flow =
      detail::feed<typename detail::erased_source<Source>::type,
                   detail::transformed_record_t<Transform, typename source_type::record_type>>;

 public:
  /// The record type of the batches that the consumer receives.
  using record_type = typename flow::record_type;
  using device_type = typename flow::device_type;
  using stream_ref = typename flow::stream_ref;
  using batch_type = typename flow::batch_type;
  using range_type = batch_range<flow>;
  /// The range type of `replay`.
  using replay_range_type = batch_range<detail::replay<flow>>;

  /// Creates a transfer for a consumer whose work runs on `stream`.
  transfer(Source&& source, stream_ref stream, const transfer_options& options = {})
    requires std::same_as<Transform, no_transform>
      : flow_(std::make_shared<flow>(std::forward<Source>(source), stream, Transform{}, options)) {}

  /// Creates a transfer with a transform, which is moved in.
  transfer(Source&& source, stream_ref stream, Transform transform,
           const transfer_options& options = {})
    requires(!std::same_as<Transform, no_transform>)
      : flow_(std::make_shared<flow>(std::forward<Source>(source), stream, std::move(transform),
                                     options)) {}

  /// Creates a transfer for a loop whose body is the step. Only for the CPU device.
  explicit transfer(Source&& source, const transfer_options& options = {})
    requires std::same_as<Transform, no_transform>
      : transfer(std::forward<Source>(source), detail::body_stream<device_type>(source.device()),
                 options) {}
  /// Creates a transfer with an explicit device, which must be the device of the source.
  transfer(Source&& source, const device_type& device, const transfer_options& options = {})
    requires std::same_as<Transform, no_transform>
      : transfer(std::forward<Source>(source), detail::body_stream(device), options) {}
  /// Creates a transfer with a transform, which runs on its own stream.
  transfer(Source&& source, const device_type& device, Transform transform,
           const transfer_options& options = {})
    requires(!std::same_as<Transform, no_transform>)
      : transfer(std::forward<Source>(source), detail::body_stream(device), std::move(transform),
                 options) {}

  transfer(transfer&&) noexcept = default;
  transfer& operator=(transfer&&) = delete;

  /// Stops the source if a range is live, and ends the lease of a loop on this thread. Leases that
  /// were moved out stay valid. The next step of an unfinished loop throws `cancelled`.
  ~transfer() {
    if (flow_) flow_->engine().shut_down();
  }

  /// Returns the batches of the epochs `first` up to but not including `last`, without a pause
  /// between epochs. Samples of epoch `last` are not read.
  [[nodiscard]] range_type epochs(std::uint64_t first, std::uint64_t last) & {
    return range_type{flow_, {first, 0}, last};
  }
  /// Returns the batches of one epoch.
  [[nodiscard]] range_type epoch(std::uint64_t which) & { return epochs(which, which + 1); }
  /// Returns the batches from `from` up to the start of epoch `end`, like `loader::batches`.
  [[nodiscard]] range_type batches(const batch_position& from, until_epoch end) & {
    return range_type{flow_, from, end.value};
  }

  /// Releases the current batch, unless it was moved out, and returns the next batch. Intended for
  /// programs without a loop over batches. The first call returns batch 0 of epoch 0, or the batch
  /// set by `reset` or `resume`. Does not pause between epochs. Returns an empty batch if the
  /// source has no more batches, which never happens with a loader.
  ///
  ///     for (int step = 0; step != steps; ++step) {
  ///       for (int micro = 0; micro != accumulate; ++micro) train(feed.next());
  ///       if (feed.at_epoch_end()) validate();
  ///     }
  ///
  /// Throws the same errors as `++` of a range. After an exception, call `resume(state())` to try
  /// the same batch again. Otherwise `next` throws `std::logic_error`. The calls of `next` form a
  /// range, so no other range over the transfer may be live. `reset` ends this range.
  [[nodiscard]] batch_type& next() & { return pulled_.next(flow_); }
  /// Ends the range of `next` and releases its batch. The next call to `next` returns the batch at
  /// `from`.
  void reset(const batch_position& from = {}) & { pulled_.reset(from); }
  /// Ends the range of `next` and releases its batch. The next call to `next` returns the batch
  /// after the batch at which `state` was saved. Throws `state_mismatch`, like `resume` with two
  /// arguments.
  template <class State>
  void resume(const State& state) &
    requires resumable_source<source_type>
  {
    reset(position_of(state));
  }
  /// Returns true if the last batch returned is the last batch of its epoch.
  [[nodiscard]] bool at_epoch_end() const
    requires detail::counted_source<source_type>
  {
    const batch_position next = flow_->engine().next_position();
    return next.batch != 0 && next.batch == batches_per_epoch();
  }

  /// Measures the minimum time of this loop. Copies only the first `depth()` batches from `from`,
  /// stops reading, and returns these batches repeatedly, `count` in total. With the same body, the
  /// loop takes only the time of its steps. `stats().replay` contains the time up to the end of the
  /// work on the stream, for comparison by `diagnose`. The results of such a loop are meaningless,
  /// so train a copy of the model, or return to a checkpoint afterwards.
  ///
  ///     for (auto& batch : feed.replay({0, 0}, ps::batch_count{200})) train_step(...);
  ///
  /// The range behaves like `batches`, except that `state()` does not change. Take the first
  /// snapshot of the statistics after the replay, because reading and copying its batches is
  /// counted. If the body writes to a batch, the batch contains those values when it is returned
  /// again. If the body moves a lease out, the loop throws `leases_exhausted`.
  [[nodiscard]] replay_range_type replay(const batch_position& from, batch_count count) & {
    return {std::make_shared<detail::replay<flow>>(flow_), from, count.value};
  }

  /// @cond misuse
  // Calls to these functions do not compile. The error message names the alternative.
  __attribute__((unavailable(
      "penstock: specify the end of the range: feed.batches(from, ps::until_epoch{e}) ends "
      "before epoch e; feed.replay(from, ps::batch_count{n}) gives n batches"))) void
  batches(const batch_position& from, std::uint64_t) const;
  __attribute__((unavailable(
      "penstock: specify the length: feed.replay(from, ps::batch_count{n}) gives n batches; "
      "feed.batches(from, ps::until_epoch{e}) ends before epoch e"))) void
  replay(const batch_position& from, std::uint64_t) const;
  __attribute__((unavailable("penstock: loop over feed.epoch(e) or feed.epochs(first, last)"))) void
  begin() const;
  __attribute__((unavailable("penstock: loop over feed.epoch(e) or feed.epochs(first, last)"))) void
  end() const;
  /// @endcond

  /// Returns the position of the next batch for a checkpoint, which is the batch after the last
  /// batch delivered, regardless of read-ahead. After the last batch of an epoch, this is the end
  /// of the epoch (see `loader_state`). Requires a source with states, such as a loader. Any thread
  /// may call this if any thread may call `state_at` of the source.
  [[nodiscard]] auto state() const
    requires resumable_source<source_type>
  {
    return flow_->source().state_at(flow_->engine().next_position());
  }

  /// Returns the state of a loop whose next batch is `next`, like `loader::state_at`. To be able to
  /// repeat a batch whose step fails, call `feed.state_at(batch.position())` before the step.
  [[nodiscard]] auto state_at(const batch_position& next) const
    requires resumable_source<source_type>
  {
    return flow_->source().state_at(next);
  }

  /// Continues after the batch at which `state` was saved (see `loader::resume`).
  template <class State>
  [[nodiscard]] range_type resume(const State& state, std::uint64_t last_epoch) &
    requires resumable_source<source_type>
  {
    return batches(position_of(state), until_epoch{last_epoch});
  }

  /// Returns the source of the batches, for example to call `failures()` or `footprint()` of a
  /// source that was moved in. A loader is returned as its `any_loader` base.
  [[nodiscard]] const typename flow::source_type& source() const noexcept {
    return flow_->source();
  }
  /// Returns the number of batches in an epoch. Requires a source with a known number, such as a
  /// loader.
  [[nodiscard]] std::uint64_t batches_per_epoch() const
    requires detail::counted_source<source_type>
  {
    return flow_->source().batches_per_epoch();
  }

  /// Returns the origin of the error that ended the last range. Empty without an error, or if the
  /// error does not belong to a batch, such as a device error between two batches. Any thread may
  /// call this.
  [[nodiscard]] std::optional<penstock::failure> last_failure() const noexcept {
    return flow_->engine().last_failure();
  }

  /// Returns the counts and waits so far (see `transfer_stats`). Includes the statistics of the
  /// source if it is a loader. Any thread may call this, even while a loop runs.
  [[nodiscard]] transfer_stats stats() const { return flow_->engine().stats(); }

  /// Returns the current `depth` and, if it is `automatic`, the changes. Any thread may call this.
  [[nodiscard]] tuning_history tuning() const { return flow_->engine().tuning(); }
  /// Returns the maximum number of batches that are on the device or being copied. With `depth =
  /// automatic`, this is the current value. Any thread may call this and `device_bytes`.
  [[nodiscard]] std::size_t depth() const noexcept { return flow_->engine().depth(); }
  /// Returns true if the device works on batches in their host slots without a copy (see
  /// `transfer_options::tuning.zero_copy`).
  [[nodiscard]] bool zero_copy() const noexcept { return flow_->engine().zero_copy(); }
  /// Returns the device memory used by all slots and staging buffers, in bytes.
  [[nodiscard]] std::size_t device_bytes() const noexcept { return flow_->engine().device_bytes(); }

 private:
  /// Returns the next batch position of a loop that continues from `state`.
  template <class State>
  [[nodiscard]] batch_position position_of(const State& state) const {
    if constexpr (requires { flow_->source().position_of(state); }) {
      return flow_->source().position_of(state);
    } else {
      require_same_order(state, flow_->source().state_at({}));
      return {state.epoch, state.batch};
    }
  }

  std::shared_ptr<flow> flow_;  // shared with ranges and iterators
  detail::pull_loop<flow> pulled_;
};

namespace detail {

template <class Source, class Transform>
inline constexpr bool is_transfer<transfer<Source, Transform>> = true;

}  // namespace detail

/// Creates a transfer that references an lvalue source, or owns an rvalue source.
template <class Source, class Stream>
transfer(Source&&, Stream&&, transfer_options = {})
    -> transfer<typename detail::transfer_args_check<Source, Stream>::source_type>;
/// Creates a transfer without a stream. The loop body is the step.
template <class Source>
  requires(!detail::is_transfer<std::remove_cvref_t<Source>>)
transfer(Source&&, transfer_options = {})
    -> transfer<typename detail::transfer_args_check<Source>::source_type>;
/// Creates a transfer with a transform on the device.
template <class Source, class Stream, class Transform>
  requires(!std::same_as<std::remove_cvref_t<Transform>, transfer_options>)
transfer(Source&&, Stream&&, Transform&&, transfer_options = {})
    -> transfer<typename detail::transfer_args_check<Source, Stream,
                                                     std::remove_cvref_t<Transform>>::source_type,
                std::remove_cvref_t<Transform>>;

/// Rejects options that are not the last argument, with a one-sentence compile-time message.
template <class Source, class Stream>
transfer(Source&&, transfer_options, Stream&&)
    -> transfer<typename detail::transfer_args_check<Source, detail::no_stream, no_transform,
                                                     true>::source_type>;

/// The memory used by a loader and by a transfer over the loader. With `zero_copy_use::always`,
/// only a transform uses device memory. With `keep_host`, the number of device slots is limited to
/// the number of host slots. For `by_device`, the values assume that batches are copied, which is
/// the maximum. `transfer::zero_copy` and `transfer::device_bytes` return the actual values.
struct feed_footprint {
  loader_footprint host;         ///< memory of the loader
  std::size_t device_slots = 0;  ///< number of device slots; the maximum if `automatic`
  /// size of a device slot in bytes, for a batch after the transform
  std::size_t device_slot_bytes = 0;
  std::size_t staging_bytes = 0;  ///< size in bytes of two batches before the transform, or 0
  /// total device memory in bytes (see `transfer::device_bytes`)
  std::size_t device_bytes = 0;

  /// An upper bound in bytes on the host memory that the feed allocates: 5 KiB, and 1 KiB per
  /// device slot. An automatic `depth` adds 16 KiB. The loader option `instrumentation.indices`
  /// adds 16 bytes per sample of each slot. Excludes the streams and events of the device, and the
  /// memory that a transform allocates.
  std::size_t bookkeeping = 0;

  friend bool operator==(const feed_footprint&, const feed_footprint&) = default;
};

namespace detail {

/// Returns the footprint of a feed with `depth` batches of `out_bytes` bytes, and `staging` bytes
/// in staging buffers.
inline feed_footprint feed_of(const loader_footprint& host, std::size_t depth,
                              std::size_t out_bytes, std::size_t staging,
                              const loader_options& load, const transfer_options& feed) {
  constexpr std::size_t kib = 1024;
  const std::size_t fixed = (feed.depth.is_automatic() ? 21 : 5) * kib;
  return {.host = host,
          .device_slots = depth,
          .device_slot_bytes = out_bytes,
          .staging_bytes = staging,
          .device_bytes = saturating_sum(depth, out_bytes, staging),
          .bookkeeping = saturating_sum(
              depth, saturating_sum(load.instrumentation.indices ? 16 : 0, load.batch_size, kib),
              fixed)};
}

}  // namespace detail

/// Returns the memory used by a loader with these options and by a transfer over the loader, in
/// bytes. Does not allocate. For a loader alone, use the other overloads of `footprint`. Throws
/// `option_error` and `layout_error`.
template <record_type Record>
[[nodiscard]] feed_footprint footprint(const record_extents<Record>& extents,
                                       const loader_options& load, const transfer_options& feed) {
  const loader_footprint host = footprint<Record>(extents, load);
  const bool is_copied = feed.tuning.zero_copy != zero_copy_use::always;
  std::size_t depth = detail::checked_depth(feed).max;
  if (!is_copied || feed.keep_host) depth = (std::min)(depth, host.slot_count);
  return detail::feed_of(host, depth, is_copied ? host.slot_bytes : 0, 0, load, feed);
}

/// Returns the memory used by a loader and by a transfer with a transform on the device. Throws
/// `option_error` and `layout_error`.
template <record_type Record, class Transform>
[[nodiscard]] feed_footprint footprint(const record_extents<Record>& extents,
                                       const loader_options& load, const Transform& transform,
                                       const transfer_options& feed) {
  const loader_footprint host = footprint<Record>(extents, load);
  const batch_layout<detail::transformed_record_t<Transform, Record>> out{
      detail::transformed_extents<Record>(transform, extents), load.batch_size};
  const bool is_copied = feed.tuning.zero_copy != zero_copy_use::always;
  const std::size_t staging = is_copied ? detail::saturating_sum(2, host.slot_bytes, 0) : 0;
  std::size_t depth = detail::checked_depth(feed).max;
  if (feed.keep_host) depth = (std::min)(depth, host.slot_count);
  return detail::feed_of(host, depth, out.bytes(), staging, load, feed);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock

/// Declares or instantiates the code that all transfers to a device share, such as the slot ring
/// and the engine (see `PENSTOCK_LOADERS_ON`).
#define PENSTOCK_TRANSFERS_ON(kind, ...)                                                \
  kind class penstock::slot_lease<penstock::detail::device_slots<__VA_ARGS__>>;         \
  kind class penstock::device_lease<__VA_ARGS__>;                                       \
  kind class penstock::detail::transform_stage<__VA_ARGS__>;                            \
  kind class penstock::detail::device_slots<__VA_ARGS__>;                               \
  kind class penstock::detail::feed_watch<__VA_ARGS__>;                                 \
  kind class penstock::detail::feed_engine<penstock::detail::loader_core<__VA_ARGS__>>; \
  kind penstock::transfer_options penstock::detail::resolved_options(                   \
      const penstock::detail::loader_core<__VA_ARGS__>&, penstock::transfer_options, bool);

#if PENSTOCK_COMPILED
PENSTOCK_TRANSFERS_ON(extern template, penstock::cpu_device)
#endif
