// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>

#include <penstock/device/cpu_device.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/transfer/transfer.hpp>

/// An error that a test injects into a device.
class device_fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A CPU device under test control. A test can hold back copies and events, to prove ordering
/// without timing, and can make the k-th call of a kind fail. Copies of the object share one state.
class gated_device {
 public:
  using stream_type = penstock::cpu_stream;
  using stream_ref = penstock::cpu_stream_ref;
  using event_type = penstock::cpu_event;

  /// Holds copies back until `open_copies`.
  void hold_copies() const { state_->gate.store(1); }
  void open_copies() const { state_->gate.store(0); }

  std::size_t copies() const { return state_->copies.load(); }  ///< number of copies that have run
  std::size_t copied_bytes() const { return state_->copied_bytes.load(); }

  /// Makes the k-th `record` call from now, counted from 0, throw `device_fault`.
  void fail_record(std::uint64_t k) const { state_->record_fails.store(k); }
  /// Makes the k-th `synchronize` call on an event fail.
  void fail_synchronize(std::uint64_t k) const { state_->synchronize_fails.store(k); }
  void fail_stream_synchronize(std::uint64_t k) const { state_->stream_synchronize_fails.store(k); }
  void fail_copy(std::uint64_t k) const { state_->copy_fails.store(k); }
  /// Makes the k-th `query` call on an event fail.
  void fail_query(std::uint64_t k) const { state_->query_fails.store(k); }
  /// Makes each later allocation of pinned memory throw `out_of_memory`.
  void reject_pinned() const { state_->rejects_pinned.store(true); }
  /// Makes each later `make_current` throw `device_fault`.
  void reject_threads() const { state_->rejects_threads.store(true); }

  [[nodiscard]] stream_type make_stream() const { return host_.make_stream(); }
  [[nodiscard]] event_type make_event(
      penstock::event_wait waits = penstock::event_wait::by_host) const {
    return host_.make_event(waits);
  }
  [[nodiscard]] stream_ref inline_stream() const { return host_.inline_stream(); }
  void require_usable(stream_ref stream) const { host_.require_usable(stream); }
  void record(event_type& event, stream_ref stream) const {
    count_down(state_->record_fails, "record");
    host_.record(event, stream);
  }
  void wait(stream_ref stream, const event_type& event) const { host_.wait(stream, event); }
  void synchronize(stream_ref stream) const {
    count_down(state_->stream_synchronize_fails, "synchronize");
    host_.synchronize(stream);
  }
  void synchronize(const event_type& event) const {
    count_down(state_->synchronize_fails, "synchronize");
    host_.synchronize(event);
  }
  [[nodiscard]] bool is_complete(const event_type& event) const {
    count_down(state_->query_fails, "is_complete");
    return host_.is_complete(event);
  }
  void copy_async(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    count_down(state_->copy_fails, "copy_async");
    stream.launch(
        [state = state_] { state->gate.wait([](std::uint32_t closed) { return closed == 0; }); });
    host_.copy_async(to, from, bytes, stream);
    stream.launch([state = state_, bytes] {
      state->copied_bytes += bytes;
      ++state->copies;
    });
  }
  [[nodiscard]] void* allocate(std::size_t bytes) const { return host_.allocate(bytes); }
  void deallocate(void* data, std::size_t bytes) const noexcept { host_.deallocate(data, bytes); }
  [[nodiscard]] penstock::pinned_block allocate_pinned(std::size_t bytes) const {
    if (state_->rejects_pinned.load())
      throw penstock::out_of_memory("pinned", bytes, "not on this machine");
    return host_.allocate_pinned(bytes);
  }
  void deallocate_pinned(void* data, std::size_t bytes) const noexcept {
    host_.deallocate_pinned(data, bytes);
  }
  void make_current() const {
    if (state_->rejects_threads.load()) throw device_fault("no thread may use this device");
    host_.make_current();
  }

 private:
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  struct shared {
    penstock::detail::waitable_counter gate;
    std::atomic<std::size_t> copies{0};
    std::atomic<std::size_t> copied_bytes{0};
    std::atomic<std::uint64_t> record_fails{never};
    std::atomic<std::uint64_t> synchronize_fails{never};
    std::atomic<std::uint64_t> stream_synchronize_fails{never};
    std::atomic<std::uint64_t> copy_fails{never};
    std::atomic<std::uint64_t> query_fails{never};
    std::atomic<bool> rejects_pinned{false};
    std::atomic<bool> rejects_threads{false};
  };

  static void count_down(std::atomic<std::uint64_t>& left, const char* call) {
    if (left.load() == never) return;
    if (left.fetch_sub(1) == 0) {
      left.store(never);
      throw device_fault(std::string{call} + " was told to fail");
    }
  }

  penstock::cpu_device host_;
  std::shared_ptr<shared> state_ = std::make_shared<shared>();
};

static_assert(penstock::device<gated_device>);

#if PENSTOCK_TEST_DEVICES  // support/devices.cpp is linked
PENSTOCK_LOADERS_ON(extern template, gated_device)
PENSTOCK_TRANSFERS_ON(extern template, gated_device)
#endif
