// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/device/device.hpp>
#include <penstock/transfer/detail/device_slots.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A lease of one batch in device memory. Move-only; its destruction is the release: the slot is
/// overwritten only after the work that the consumer's stream had been given by then.
///
/// It may be moved out of the loop and kept, also beyond feed and loader; the consumer's stream
/// must outlive it. Used by one thread at a time; may be destroyed on any, also by work on a host
/// stream. A CUDA stream's host functions may not call CUDA, and so not destroy it.
template <record_type Record, device Device>
class device_batch {
 public:
  using record_type = Record;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  /// An empty lease.
  device_batch() = default;
  /// A lease of `slot`, whose end is ordered behind the work on `stream`.
  device_batch(std::shared_ptr<device_slots<Record, Device>> ring, std::size_t slot,
               stream_ref stream) noexcept
      : slots_(std::move(ring)),
        slot_(slot),
        stream_(stream),
        info_(slots_->info(slot)),
        lease_(slots_->hand_out(slot, stream)) {}
  device_batch(device_batch&&) noexcept = default;
  /// A copy, as `auto batch` in a loop makes one, does not compile, and says why.
  template <std::same_as<device_batch> Lease>
  device_batch(Lease&) {  // NOLINT: implicit, as a copy is
    static_assert(
        sizeof(Lease) == 0,
        "penstock: a batch is a lease and is not copied: loop with `auto& batch`; to keep "
        "it, std::move(batch)");
  }
  device_batch& operator=(device_batch&& other) noexcept {
    if (this != &other) {
      release();
      slots_ = std::move(other.slots_);
      slot_ = other.slot_;
      stream_ = other.stream_;
      info_ = other.info_;
      lease_ = std::move(other.lease_);
    }
    return *this;
  }
  ~device_batch() { release(); }

  /// Whether there is a batch. An empty lease may be assigned to, destroyed, and asked which batch
  /// it held last; whatever needs a batch ends the program with a sentence.
  [[nodiscard]] explicit operator bool() const noexcept { return slots_ != nullptr; }

  /// The samples of the batch; only the last one of an epoch may have fewer than `batch_size`.
  [[nodiscard]] std::size_t size() const noexcept { return info().size; }
  /// The samples that are not filling (`partial_batch::pad`).
  [[nodiscard]] std::size_t valid() const noexcept { return info().valid; }
  /// The batch's epoch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return info().epoch; }
  /// The batch's number within its epoch.
  [[nodiscard]] std::uint64_t index() const noexcept { return info().index; }
  /// Which batch it is.
  [[nodiscard]] const batch_info& info() const noexcept { return info_; }
  /// The device slot that holds the batch, in [0, depth): its addresses are the same every time.
  [[nodiscard]] std::size_t slot() const noexcept { return slot_; }
  /// The stream that the batch was handed to: work given to it from now on sees the copied data.
  [[nodiscard]] stream_ref stream() const noexcept {
    use();
    return *stream_;
  }

  /// The slab in device memory: all fields, see `batch_layout`.
  [[nodiscard]] std::byte* data() noexcept {
    use();
    return slots_->data(slot_);
  }
  /// The slab on the device, to read.
  [[nodiscard]] const std::byte* data() const noexcept {
    use();
    return slots_->data(slot_);
  }

  /// All samples of the batch, on the device.
  [[nodiscard]] batch_view<Record> view() noexcept {
    return {data(), slots_->layout(), 0, info().size, lease_.tag()};
  }
  /// All samples of the batch, on the device, to read.
  [[nodiscard]] const_batch_view<Record> view() const noexcept {
    return {data(), slots_->layout(), 0, info().size, lease_.tag()};
  }

  /// A `tensor_view` of one field in device memory, the samples as outermost dimension; of const for
  /// a const lease.
  template <name Name>
  [[nodiscard]] auto get() noexcept {
    return view().template get<Name>();
  }
  /// The same of const.
  template <name Name>
  [[nodiscard]] auto get() const noexcept {
    return view().template get<Name>();
  }

  /// Makes `other` wait for the batch's copy too, and the release wait for `other`: for work on a
  /// second stream. Allocates an event the first time in each slot. Throws what the device throws.
  void also_used_on(stream_ref other) {
    use();
    slots_->wait_for_copy_anew(slot_, other);
    if constexpr (std::equality_comparable<stream_ref>) {
      if (other == *stream_ || slots_->is_extra(slot_, other)) return;
    }
    slots_->also_release_after(slot_, other);
  }

  /// Says that work on `stream` uses the batch: `get<"x">(batch.used_on(stream))`. A checked build
  /// reports a stream that neither is the lease's own nor was given to `also_used_on`: nothing orders
  /// that work behind the copy, nor the slot's reuse behind the work. Does nothing otherwise.
  device_batch& used_on(stream_ref stream) noexcept {
    require_ordered(stream);
    return *this;
  }
  /// The same, to read.
  const device_batch& used_on(stream_ref stream) const noexcept {
    require_ordered(stream);
    return *this;
  }

 private:
  void use() const noexcept {
    lease_.use();
    if (slots_ == nullptr) detail::no_batch();
  }

  void require_ordered([[maybe_unused]] stream_ref stream) const noexcept {
    if constexpr (detail::checked && std::equality_comparable<stream_ref>) {
      lease_.use();
      if (stream == *stream_ || slots_->is_extra(slot_, stream)) return;
      lease_.fail(
          "its release does not wait for the stream that it is used on. Use it on the stream that "
          "the feed was given, or call also_used_on(stream) first");
    }
  }

  void release() noexcept {
    if (slots_ == nullptr) return;
    slots_->end(lease_, slot_, *stream_);
    slots_->release(slot_, *stream_);
    slots_.reset();
  }

  std::shared_ptr<device_slots<Record, Device>> slots_;
  std::size_t slot_ = 0;
  std::optional<stream_ref> stream_;
  batch_info info_;
  [[no_unique_address]] detail::lease_guard lease_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
