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
/// What a checked build does with a lease and its views; `checked_off.hpp` has the same names
/// without anything in them.

/// Defined by what runs kernels on the host, as the double in tests/fake_cuda does: whether the
/// calling thread runs one now. Null without.
extern "C" [[gnu::weak, gnu::visibility("default")]] bool penstock_runs_device_code() noexcept;

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

inline constexpr bool checked = true;

/// Whether the calling thread runs device code, in which nothing is checked.
[[nodiscard]] inline bool runs_device_code() noexcept {
  return penstock_runs_device_code != nullptr && penstock_runs_device_code();
}

/// What a view knows of its lease: nothing, where it comes from none.
class lease_tag {
 public:
  lease_tag() = default;
  lease_tag(const lease_record* record, std::uint64_t serial) noexcept
      : record_(record), serial_(serial) {}

  /// The view is used: on the host the lease has to live.
  PENSTOCK_HOST_DEVICE constexpr void require_alive() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->require_alive(serial_);
#endif
  }
  /// An element is used: its copy has to be complete as well.
  PENSTOCK_HOST_DEVICE constexpr void require_data() const noexcept {
#if !defined(__CUDA_ARCH__)
    if (is_watched()) record_->require_data(serial_);
#endif
  }
  /// The address of the data is taken.
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

/// Fills free memory with what no one takes for data.
inline void poison(void* data, std::size_t bytes) noexcept { std::memset(data, 0xFF, bytes); }

/// From now on no thread may touch the memory, as far as AddressSanitizer sees.
inline void forbid([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  __asan_poison_memory_region(data, bytes);
#endif
}
/// Until now.
inline void allow([[maybe_unused]] const void* data, [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(PENSTOCK_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

/// A device lease that has ended, while streams may still work on its memory.
class ended_lease {
 public:
  explicit ended_lease(lease_record* record) noexcept : record_(record) {}

  /// Called once a stream: queues the end in it; the last one to get there does `then` to the
  /// memory. A stream that does not run functions of the host's, as CUDA's, does neither, and its
  /// device code checks nothing.
  template <class Stream, class Then>
  void behind(Stream stream, const Then& then) const {
    const auto end = [record = record_, then]() noexcept {
      if (!record->is_behind_last_stream()) return;
      record->end();
      then();
      lease_records::all().give_back(record);
    };
    if constexpr (requires { stream.launch(end); }) {
      stream.launch(end);
    } else if (record_->is_behind_last_stream()) {
      lease_records::all().give_back(record_);
    }
  }

 private:
  lease_record* record_;
};

/// The part of a lease that a checked build watches. Moves with it.
class lease_guard {
 public:
  lease_guard() = default;
  /// A lease of this batch begins, whose data is complete. May throw std::bad_alloc: to be made
  /// where that can be told, before the lease.
  lease_guard(std::uint64_t epoch, std::uint64_t index) {
    std::tie(record_, serial_) = lease_records::all().take(epoch, index);
    record_->arrive(serial_);
  }
  /// A lease of this batch begins, whose data is complete once `copies` gets here: before an event
  /// that is recorded next. A stream that does not run functions of the host's is not looked at.
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

  /// The calling thread uses the lease.
  void use() const noexcept {
    if (record_ == nullptr) {
      checked_failure(lease_without_batch);
    }
    record_->require_one_user(serial_);
  }

  /// What the lease's views carry.
  [[nodiscard]] lease_tag tag() const noexcept { return {record_, serial_}; }

  /// Whether a thread that runs no stream's work has taken the data.
  [[nodiscard]] bool was_seen_in_body() const noexcept { return record_->was_seen_in_body(); }

  /// Reports a wrong use.
  [[noreturn]] void fail(const char* what) const noexcept { record_->fail(serial_, what); }

  /// The lease ends, if there is one: its views are dead.
  void end() noexcept {
    if (record_ == nullptr) return;
    record_->end();
    lease_records::all().give_back(std::exchange(record_, nullptr));
  }

  /// The lease ends for the host, and later for each of so many streams.
  [[nodiscard]] ended_lease end_behind(std::size_t streams) noexcept {
    record_->end_behind(streams);
    return ended_lease{std::exchange(record_, nullptr)};
  }

 private:
  lease_record* record_ = nullptr;
  std::uint64_t serial_ = 0;
};

/// Sees to it that one thread at a time goes through. Copies are of one gate.
class call_gate {
 public:
  /// None; only to be assigned to.
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

  /// The calling thread goes through until the returned object goes.
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
