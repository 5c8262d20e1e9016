// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/device/device.hpp>
#include <penstock/transfer/detail/device_slots.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A lease of one batch in device memory, whatever its record.
template <device Device>
class device_lease : public slot_lease<detail::device_slots<Device>, std::size_t> {
  using slots_type = detail::device_slots<Device>;
  using base = slot_lease<slots_type, std::size_t>;

 protected:
  using base::guard_;
  using base::slot_;
  using base::slots_;
  using base::use;

 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  /// An empty lease.
  device_lease() = default;
  /// A lease of `slot`, whose end is ordered after the work on `stream`.
  device_lease(std::shared_ptr<slots_type> ring, std::size_t slot, stream_ref stream) noexcept
      : base(std::move(ring), slot, ring->info(slot), ring->hand_out(slot, stream)),
        stream_(stream) {}  // NOLINT: moved from after the other two have looked at it
  device_lease(device_lease&&) noexcept = default;
  device_lease& operator=(device_lease&& other) noexcept {
    if (this != &other) {
      release();
      stream_ = other.stream_;
      base::operator=(std::move(other));
    }
    return *this;
  }
  ~device_lease() { release(); }

  /// Whether there is a batch, and it lies in `ring`: for the feed whose ring it is.
  [[nodiscard]] bool is_in(const slots_type& ring) const noexcept { return slots_.get() == &ring; }

  /// Ends the lease, if there is one: for the feed, between two batches.
  void release() noexcept {
    if (slots_ == nullptr) return;
    slots_->end(guard_, slot_, *stream_);
    slots_->release(slot_, *stream_);
    slots_.reset();
  }
  /// The loop's body was left, and its lease, if there is one, ends next: for the feed too.
  void note_left() noexcept {
    if (slots_ != nullptr) slots_->note_left(slot_);
  }
  /// Ends the lease, whose release is recorded with that of others: for the feed too.
  void end_later() noexcept {
    slots_->end(guard_, slot_, *stream_);
    slots_->end_later(slot_, *stream_);
    slots_.reset();
  }

  /// The slot that holds the batch, as `slot_lease::slot`; the host slot where the device works on
  /// the batch there (`transfer_options::zero_copy`).
  [[nodiscard]] std::size_t slot() const noexcept {
    return slots_ == nullptr ? slot_ : slots_->number(slot_);
  }

  /// The device whose memory holds the batch.
  [[nodiscard]] const Device& device() const noexcept {
    use();
    return slots_->device();
  }

  /// Which samples the batch has, as `host_batch::indices` says it: in host memory, valid until the
  /// lease ends. Empty unless the source is a loader whose `loader_options::observe.indices` is
  /// set.
  [[nodiscard]] std::span<const std::uint64_t> indices() const noexcept {
    use();
    return slots_->lists.indices(slot_, base::size());
  }
  /// The places whose sample was substituted by another, as `host_batch::substituted` says it.
  [[nodiscard]] std::span<const std::uint64_t> substituted() const noexcept {
    use();
    return slots_->lists.substituted(slot_);
  }

  /// The stream that the batch was handed to: work given to it from now on sees the copied data.
  [[nodiscard]] stream_ref stream() const noexcept {
    use();
    return *stream_;
  }

  /// A word for each sample that the batch's source has given it, as `batcher` does, in the order
  /// of the samples; none where the source gives none. In host memory, as long as the lease.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    use();
    return slots_->tags(slot_);
  }

  /// Makes `other` wait for the batch's copy too, and the release wait for `other`: for work on a
  /// second stream. Allocates an event the first time in each slot. Throws what the device throws.
  void also_used_on(stream_ref other) {
    use();
    slots_->also_used_on(slot_, other, *stream_);
  }

 protected:
  /// @cond derived
  /// Checks that the lease's end is ordered after work on `stream`.
  void require_ordered([[maybe_unused]] stream_ref stream) const noexcept {
    if constexpr (detail::checked && std::equality_comparable<stream_ref>) {
      guard_.use();
      if (stream == *stream_ || slots_->is_extra(slot_, stream)) return;
      guard_.fail(
          "its release does not wait for the stream that it is used on. Use it on the stream that "
          "the feed was given, or call also_used_on(stream) first");
    }
  }
  /// @endcond

 private:
  std::optional<stream_ref> stream_;
};

/// A lease of one batch in device memory. Move-only; its destruction is the release: the slot is
/// overwritten only after the work that the consumer's stream had been given by then.
///
/// It may be moved out of the loop and kept, also beyond feed and loader; the consumer's stream
/// must outlive it. Used by one thread at a time: to go on with it on another thread, move it. May
/// be destroyed on any, also by work on a host stream. A CUDA stream's host functions may not call
/// CUDA, and so not destroy it.
template <record_type Record, device Device>
class device_batch : public lease<Record, device_lease<Device>> {
  using base = lease<Record, device_lease<Device>>;

 public:
  using typename base::stream_ref;

  using base::base;
  device_batch() = default;
  /// What `untyped` holds, a batch of `Record`: for the feed.
  template <std::same_as<device_lease<Device>> Lease>
  explicit device_batch(Lease untyped) noexcept {
    device_lease<Device>::operator=(std::move(untyped));
  }
  device_batch(device_batch&&) noexcept = default;
  /// A copy, as `auto batch` in a loop makes one, does not compile, and says why.
  template <std::same_as<device_batch> Lease>
  device_batch(Lease&) {  // NOLINT: implicit, as a copy is
    detail::refuse_copy_of_lease<Lease>();
  }
  device_batch& operator=(device_batch&&) noexcept = default;

  /// Says that work on `stream` uses the batch: `get<"x">(batch.used_on(stream))`. A checked build
  /// reports a stream that neither is the lease's own nor was given to `also_used_on`: nothing
  /// orders that work after the copy, nor the slot's reuse after the work. Does nothing otherwise.
  device_batch& used_on(stream_ref stream) noexcept {
    base::require_ordered(stream);
    return *this;
  }
  /// Says that work on `stream` reads the batch.
  const device_batch& used_on(stream_ref stream) const noexcept {
    base::require_ordered(stream);
    return *this;
  }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
