// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <penstock/device/cpu_device.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/transfer/transfer.hpp>

/// A CPU device that records the size and kind of each memory block, and detects incorrect frees.
/// Copies of the object share one ledger.
class ledger_device {
 public:
  using stream_type = penstock::cpu_stream;
  using stream_ref = penstock::cpu_stream_ref;
  using event_type = penstock::cpu_event;

  /// Makes pinning fail: `pinned` is false for all later allocations.
  void fail_to_pin() const { ledger_->pins = false; }

  [[nodiscard]] std::size_t device_bytes() const { return total(ledger_->device); }
  [[nodiscard]] std::size_t pinned_bytes() const { return total(ledger_->pinned); }
  /// Returns the number of blocks that were freed twice, as the wrong kind or with the wrong size.
  [[nodiscard]] std::size_t bad_frees() const { return ledger_->bad_frees; }
  /// Returns the number of requested allocations.
  [[nodiscard]] std::size_t requested() const { return ledger_->requested; }

  [[nodiscard]] stream_type make_stream() const { return host_.make_stream(); }
  [[nodiscard]] event_type make_event(
      penstock::event_wait waits = penstock::event_wait::by_host) const {
    return host_.make_event(waits);
  }
  [[nodiscard]] stream_ref inline_stream() const { return host_.inline_stream(); }
  [[nodiscard]] penstock::host_access reads_host() const { return host_.reads_host(); }
  void require_usable(stream_ref stream) const { host_.require_usable(stream); }
  void record(event_type& event, stream_ref stream) const { host_.record(event, stream); }
  void wait(stream_ref stream, const event_type& event) const { host_.wait(stream, event); }
  void synchronize(stream_ref stream) const { host_.synchronize(stream); }
  void synchronize(const event_type& event) const { host_.synchronize(event); }
  [[nodiscard]] bool is_complete(const event_type& event) const { return host_.is_complete(event); }
  void copy_async(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    host_.copy_async(to, from, bytes, stream);
  }
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    ++ledger_->requested;
    void* data = host_.allocate(bytes);
    note(ledger_->device, data, bytes);
    return data;
  }
  void deallocate(void* data, std::size_t bytes) const noexcept {
    strike(ledger_->device, data, bytes);
    host_.deallocate(data, bytes);
  }
  [[nodiscard]] penstock::pinned_block allocate_pinned(std::size_t bytes) const {
    ++ledger_->requested;
    const auto block = host_.allocate_pinned(bytes);
    note(ledger_->pinned, block.data, bytes);
    return {block.data, ledger_->pins.load()};
  }
  void deallocate_pinned(void* data, std::size_t bytes) const noexcept {
    strike(ledger_->pinned, data, bytes);
    host_.deallocate_pinned(data, bytes);
  }
  void make_current() const { host_.make_current(); }

 private:
  using blocks = std::map<void*, std::size_t>;

  struct ledger {
    std::mutex mutex;
    blocks device;
    blocks pinned;
    std::atomic<std::size_t> bad_frees{0};
    std::atomic<std::size_t> requested{0};
    std::atomic<bool> pins{true};
  };

  [[nodiscard]] std::size_t total(const blocks& kind) const {
    const std::lock_guard lock{ledger_->mutex};
    std::size_t sum = 0;
    for (const auto& [data, bytes] : kind) sum += bytes;
    return sum;
  }
  void note(blocks& kind, void* data, std::size_t bytes) const {
    const std::lock_guard lock{ledger_->mutex};
    kind.emplace(data, bytes);
  }
  void strike(blocks& kind, void* data, std::size_t bytes) const noexcept {
    const std::lock_guard lock{ledger_->mutex};
    const auto found = kind.find(data);
    if (found == kind.end() || found->second != bytes) {
      ++ledger_->bad_frees;
    } else {
      kind.erase(found);
    }
  }

  penstock::cpu_device host_;
  std::shared_ptr<ledger> ledger_ = std::make_shared<ledger>();
};

static_assert(penstock::device<ledger_device>);

#if PENSTOCK_TEST_DEVICES  // support/devices.cpp is linked
PENSTOCK_LOADERS_ON(extern template, ledger_device)
PENSTOCK_TRANSFERS_ON(extern template, ledger_device)
#endif
