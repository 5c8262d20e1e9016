// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

#if PENSTOCK_CHECKED

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>

#include <penstock/core/detail/lease_record.hpp>
#include <penstock/core/detail/wrong_use.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define PENSTOCK_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PENSTOCK_ADDRESS_SANITIZER
#endif
#endif
#if defined(PENSTOCK_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

#include <penstock/core/support/host_device_begin.hpp>

/// @file
/// The checks of a checked build on leases and their views; `checked_off.hpp` has empty versions.

/// Defined by programs that run kernels on the host, such as the double in tests/fake_cuda: whether
/// the calling thread is running one. A null pointer elsewhere.
extern "C" [[gnu::weak, gnu::visibility("default")]] bool penstock_runs_device_code() noexcept;

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

inline constexpr bool checked = true;

/// Whether the calling thread is running device code, where nothing is checked.
[[nodiscard]] inline bool runs_device_code() noexcept {
  return penstock_runs_device_code != nullptr && penstock_runs_device_code();
}

/// A view's reference to its lease; empty if the view does not come from a lease.
class lease_tag {
 public:
  lease_tag() = default;
  lease_tag(const lease_record* record, std::uint64_t serial) noexcept
      : record_(record), serial_(serial) {}

  /// Called when the view is used: on the host, the lease must still be held.
  PENSTOCK_HOST_DEVICE constexpr void require_alive() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->require_alive(serial_);
#endif
  }
  /// Called when an element is accessed: its copy must be complete as well.
  PENSTOCK_HOST_DEVICE constexpr void require_data() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->require_data(serial_);
#endif
  }
  /// Called when the address of the data is taken.
  PENSTOCK_HOST_DEVICE constexpr void note_address() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->note_address(serial_);
#endif
  }

 private:
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr bool is_watched() const noexcept {
#if defined(__CUDA_ARCH__)
    return false;
#else
    return record_ != nullptr && !runs_device_code();
#endif
  }

  const lease_record* record_ = nullptr;
  std::uint64_t serial_ = 0;
};

/// Fills free memory with a pattern that is recognisable as no data.
inline void poison(void* data, std::size_t bytes) noexcept { std::memset(data, 0xFF, bytes); }

/// Marks the memory as inaccessible for AddressSanitizer.
inline void forbid([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  __asan_poison_memory_region(data, bytes);
#endif
}
/// Ends `forbid`.
inline void allow([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

/// A device lease that has ended on the host while streams may still use its memory.
class ended_lease {
 public:
  explicit ended_lease(lease_record* record) noexcept : record_(record) {}

  /// Called once per stream: queues the end of the lease in it, and the last stream to reach it
  /// calls `then` on the memory. A stream that can't run host functions, such as CUDA's, does
  /// neither; its device code is not checked.
  template <class Stream, class Then>
  void behind(Stream stream, const Then& then) const {
    const auto end = [record = record_, then]() noexcept {
      if (!record->is_behind_last_stream()) return;
      record->end();
      then();
      lease_records::all().give_back(record);
    };
    // Without a wait for room: what makes room may wait for what the caller does next.
    if constexpr (requires { stream.launch_without_wait(end); }) {
      stream.launch_without_wait(end);
    } else if constexpr (requires { stream.launch(end); }) {
      stream.launch(end);
    } else if (record_->is_behind_last_stream()) {
      lease_records::all().give_back(record_);
    }
  }

 private:
  lease_record* record_;
};

/// The part of a lease that a checked build keeps track of. Moves with the lease.
class lease_guard {
 public:
  lease_guard() = default;
  /// Begins a lease of this batch, whose data is complete. May throw std::bad_alloc, so it is made
  /// before the lease, where the error can be reported.
  lease_guard(std::uint64_t epoch, std::uint64_t index) {
    std::tie(record_, serial_) = lease_records::all().take(epoch, index);
    record_->arrive(serial_);
  }
  /// Begins a lease of this batch, whose data is complete once `copies` reaches this point. Must be
  /// called before the event is recorded. Streams that can't run host functions are not tracked.
  template <class Stream>
  lease_guard(std::uint64_t epoch, std::uint64_t index, Stream copies) {
    std::tie(record_, serial_) = lease_records::all().take(epoch, index);
    const auto arrive = [record = record_, serial = serial_]() noexcept { record->arrive(serial); };
    if constexpr (requires { copies.launch(arrive); }) {
      copies.launch(arrive);
    } else {
      arrive();
    }
  }
  lease_guard(lease_guard&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), serial_(other.serial_) {
    if (record_ != nullptr) record_->pass_on();
  }
  lease_guard& operator=(lease_guard&& other) noexcept {
    record_ = std::exchange(other.record_, nullptr);
    serial_ = other.serial_;
    if (record_ != nullptr) record_->pass_on();
    return *this;
  }

  /// Called when the calling thread uses the lease.
  void use() const noexcept {
    if (record_ == nullptr) {
      checked_failure(lease_without_batch);
    }
    record_->require_one_user(serial_);
  }

  /// The tag that the lease's views carry.
  [[nodiscard]] lease_tag tag() const noexcept { return {record_, serial_}; }

  /// Whether a thread other than a stream's has accessed the data.
  [[nodiscard]] bool was_seen_in_body() const noexcept { return record_->was_seen_in_body(); }

  /// Reports a misuse and ends the program.
  [[noreturn]] void fail(const char* what) const noexcept { record_->fail(serial_, what); }

  /// Ends the lease, if there is one, and invalidates its views.
  void end() noexcept {
    if (record_ == nullptr) return;
    record_->end();
    lease_records::all().give_back(std::exchange(record_, nullptr));
  }

  /// Ends the lease for the host now, and for `streams` streams when they get there.
  [[nodiscard]] ended_lease end_behind(std::size_t streams) noexcept {
    record_->end_behind(streams);
    return ended_lease{std::exchange(record_, nullptr)};
  }

 private:
  lease_record* record_ = nullptr;
  std::uint64_t serial_ = 0;
};

/// Checks that only one thread at a time is inside. Copies share one gate.
class call_gate {
 public:
  /// No gate; may only be assigned to.
  call_gate() = default;
  explicit call_gate(std::in_place_t) : busy_(std::make_shared<std::atomic<bool>>(false)) {}

  class inside {
   public:
    explicit inside(const std::shared_ptr<std::atomic<bool>>& busy) noexcept : busy_(busy) {
      if (!busy_->exchange(true, std::memory_order_relaxed)) return;
      checked_failure(
          "two threads advance one loop at once. Let one thread take the batches and move them to "
          "the others");
    }
    inside(inside&&) = delete;
    ~inside() { busy_->store(false, std::memory_order_relaxed); }

   private:
    std::shared_ptr<std::atomic<bool>> busy_;
  };

  /// The calling thread is inside for the lifetime of the returned object.
  [[nodiscard]] inside enter() const noexcept { return inside{busy_}; }

 private:
  std::shared_ptr<std::atomic<bool>> busy_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
#undef PENSTOCK_ADDRESS_SANITIZER

#endif
