// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/device/device.hpp>
#include <penstock_ext/serve/detail/request_board.hpp>
#include <penstock_ext/serve/detail/request_memory.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A lease of a batch of requests in host memory, as a `batcher` gives it. Move-only; its
/// destruction gives the slot back for new requests. It may be kept beyond the batcher: the memory
/// lives as long. Used by one thread at a time; may be destroyed on any.
template <record_type Record, device Device>
class request_batch
    : public lease<Record, detail::request_board<detail::request_memory<Record, Device>>,
                   std::uint32_t> {
  using board_type = detail::request_board<detail::request_memory<Record, Device>>;
  using base = lease<Record, board_type, std::uint32_t>;
  using base::guard_;
  using base::slot_;
  using base::slots_;

 public:
  using device_type = Device;

  /// An empty lease.
  request_batch() = default;
  /// A lease of `slot`, which holds the batch.
  request_batch(std::shared_ptr<board_type> board, std::uint32_t slot, const batch_info& info)
      : base(std::move(board), slot, info, detail::lease_guard{info.epoch, info.batch}) {}
  request_batch(request_batch&&) noexcept = default;
  /// A copy, as `auto batch` in a loop makes one, does not compile, and says why.
  template <std::same_as<request_batch> Lease>
  request_batch(Lease&) {  // NOLINT: implicit, as a copy is
    detail::refuse_copy_of_lease<Lease>();
  }
  request_batch& operator=(request_batch&& other) noexcept {
    if (this != &other) {
      release();
      base::operator=(std::move(other));
    }
    return *this;
  }
  ~request_batch() { release(); }

  /// The tags of the requests, in the order of the samples. As long as the lease.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    base::use();
    return slots_->tags(slot_);
  }
  /// Whether the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept {
    base::use();
    return slots_->memory().pinned();
  }

  /// Gives the slot back as soon as `stream` has done what it was given so far: for a copy out of
  /// the slot that is still under way. The lease is empty then. Throws what the device throws.
  void release_after(typename Device::stream_ref stream) {
    base::use();
    guard_.end();
    const auto board = std::move(slots_);
    try {
      board->memory().mark_copy(slot_, stream);
    } catch (...) {
      board->give_back(slot_, false);
      throw;
    }
    board->give_back(slot_, true);
  }

 private:
  void release() noexcept {
    if (slots_ == nullptr) return;
    guard_.end();
    slots_->give_back(slot_, false);
    slots_.reset();
  }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
