// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/support/lock_limits.hpp>
#include <penstock/device/cpu_stream.hpp>
#include <penstock/device/device.hpp>
#include <penstock/threads/flush_to_zero.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A device of host memory and threads, with the interface and ordering rules of a GPU, for
/// machines without a GPU. Streams are threads, copies use memcpy, and events are counters.
///
/// `cpu_device_options` can specify a modelled copy bandwidth and launch latency. A modelled
/// operation starts when all operations that it waits for have ended in modelled time, even if a
/// thread wakes up late.
class cpu_device {
 public:
  using stream_type = cpu_stream;
  using stream_ref = cpu_stream_ref;
  using event_type = cpu_event;
  /// The DLPack device type of the memory (see `penstock_ext/interop/dlpack_abi.hpp`).
  static constexpr std::int32_t dlpack_kind = 1;

  cpu_device() = default;
  /// Creates a device with these options.
  explicit cpu_device(const cpu_device_options& options) noexcept : options_(options) {}

  [[nodiscard]] stream_type make_stream() const { return cpu_stream{options_}; }
  /// Creates an event. All `event_wait` values except `timed` are equivalent, because a thread that
  /// waits for an event of this device always sleeps.
  [[nodiscard]] event_type make_event(event_wait waits = event_wait::by_host) const {
    event_type made;
    if (waits == event_wait::timed) {
      made.time_ = std::make_shared<detail::host_clock::time_point>();
    }
    return made;
  }

  /// Returns the stream that represents the calling thread, for a consumer that computes in the
  /// loop body. A wait for a copy blocks the thread, and a release is complete immediately.
  [[nodiscard]] stream_ref inline_stream() const noexcept { return stream_ref::calling_thread(); }

  /// Reports that the device can access all host memory. `as_own` is false, because this device
  /// stands in for a GPU, and its copies must be observable.
  [[nodiscard]] host_access reads_host() const noexcept { return {true, true, false}; }

  /// Accepts any CPU stream.
  void require_usable(stream_ref) const noexcept {}

  void record(event_type& event, stream_ref stream) const {
    if (event.time_ != nullptr) record_time(event, stream);
    if (event.queue_.get() != stream.queue_) {
      // The pointer is null for the inline stream, whose work has always ended already.
      event.queue_ = stream.queue_ == nullptr ? nullptr : stream.queue_->shared_from_this();
    }
    if (stream.queue_ == nullptr) return;
    event.position_.store(stream.queue_->pushed(), std::memory_order_relaxed);
    stream.queue_->record_use();
  }

  /// Returns the time from `begin` to `end`, in modelled time for modelled streams.
  [[nodiscard]] std::chrono::nanoseconds elapsed(const event_type& begin,
                                                 const event_type& end) const {
    return *end.time_ - *begin.time_;
  }

  /// Makes `stream` wait for the current record of `event`. Later records do not affect the wait.
  void wait(stream_ref stream, const event_type& event) const {
    if (is_complete(event)) return;
    if (stream.queue_ == nullptr) {
      event.queue_->wait_until_completed(position_of(event));
    } else if (stream.queue_ != event.queue_.get()) {
      stream.queue_->push(
          [own = stream.queue_, queue = event.queue_, position = position_of(event)]() noexcept {
            own->wait_for(*queue, position);
          });
    }
  }

  /// Blocks until the event is complete.
  void synchronize(const event_type& event) const {
    if (event.queue_ != nullptr) event.queue_->wait_until_completed(position_of(event));
  }

  /// Blocks until all work on the stream has ended. Rethrows exceptions of the work.
  void synchronize(stream_ref stream) const { stream.synchronize(); }

  /// Returns true if `failure`, the exception of an earlier call, means that work no longer runs,
  /// because the process is a child created by fork() or the work has called `exit()`.
  [[nodiscard]] static bool is_dead_after(const std::exception_ptr& failure) noexcept {
    try {
      std::rethrow_exception(failure);
    } catch (const detail::stream_of_parent&) {
      return true;
    } catch (const detail::stream_of_exit&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  [[nodiscard]] bool is_complete(const event_type& event) const noexcept {
    return event.queue_ == nullptr || event.queue_->completed() >= position_of(event);
  }

  /// Copies `bytes` bytes in stream order. Both ranges must remain valid until the copy has
  /// finished. A small copy on an idle stream runs immediately on the calling thread, because
  /// waking the stream thread would take several times as long.
  void copy_async(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    const bool modelled = detail::is_modelled(options_);
    if (!modelled && stream.queue_ == nullptr) {
      std::memcpy(to, from, bytes);
    } else if (!modelled) {
      const auto copy = [to, from, bytes]() noexcept { std::memcpy(to, from, bytes); };
      if (bytes > small_copy || !stream.queue_->run_if_idle(copy)) stream.queue_->push(copy);
    } else if (stream.queue_ == nullptr) {
      detail::modelled_copy(to, from, bytes, options_,
                            detail::host_clock::now() + options_.launch_latency);
    } else {
      stream.queue_->push(
          [to, from, bytes, queue = stream.queue_, queued = detail::host_clock::now()] {
            queue->busy_until(
                detail::modelled_copy(to, from, bytes, queue->options(), queue->start_of(queued)));
          });
    }
  }

  /// Returns zeroed memory on separate pages, so that no two slots share a page. Throws
  /// `out_of_memory` if the allocation fails.
  [[nodiscard]] void* allocate(std::size_t bytes) const { return map_pages(bytes, "device"); }
  /// Returns pageable host memory. Throws `out_of_memory` if the allocation fails.
  [[nodiscard]] void* allocate_pageable(std::size_t bytes) const {
    return map_pages(bytes, "pageable");
  }
  /// Frees memory from `allocate` or `allocate_pageable`.
  void deallocate(void* data, std::size_t bytes) const noexcept {
    if (data != nullptr) ::munmap(data, rounded(bytes));
  }

  /// Returns page-aligned, pre-touched memory, which is locked into RAM if the process limit allows
  /// it (`ulimit -l`). `pinned` is true if the memory was locked. Throws `out_of_memory` if the
  /// allocation fails.
  [[nodiscard]] pinned_block allocate_pinned(std::size_t bytes) const {
    void* data = map_pages(bytes, "pinned");
    return {data, ::mlock(data, rounded(bytes)) == 0};
  }
  void deallocate_pinned(void* data, std::size_t bytes) const noexcept {
    deallocate(data, bytes);  // munmap also unlocks
  }

  /// Locks existing memory into RAM. Used by `registered_memory`, which owns the lock. Locks whole
  /// pages, and locks do not nest. Two ranges must not share a page, which is not checked. Throws
  /// `out_of_memory` if the process limit (`ulimit -l`) does not allow the lock.
  void register_memory(void* data, std::size_t bytes, bool) const {
    if (::mlock(data, bytes) == 0) return;
    const std::string reason = std::strerror(errno);
    throw out_of_memory("pinned", bytes,
                        detail::str_cat({"mlock failed: ", reason, "; ", detail::lock_limits(),
                                         ": raise the limit (ulimit -l) or register less"}));
  }
  void unregister_memory(void* data, std::size_t bytes) const noexcept { ::munlock(data, bytes); }

  /// Sets flush-to-zero and denormals-are-zero on the calling thread.
  void make_current() const noexcept { scoped_flush_to_zero::enable_permanently(); }

  /// Returns the options.
  [[nodiscard]] const cpu_device_options& options() const noexcept { return options_; }

 private:
  // Size limit for copies on the calling thread. Copying this many bytes takes about 2 us, while
  // waking a thread takes 3 to 11 us (measured).
  static constexpr std::size_t small_copy = std::size_t{64} << 10;
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  /// Returns the queue position that `event` marks.
  static std::uint64_t position_of(const event_type& event) noexcept {
    return event.position_.load(std::memory_order_relaxed);
  }

  /// Makes the stream store the time at which it reaches the next record.
  static void record_time(const event_type& event, stream_ref stream) {
    const auto now = detail::host_clock::now();
    if (stream.queue_ == nullptr) {
      *event.time_ = now;
      return;
    }
    const auto stamp = [queue = stream.queue_, queued = now, time = event.time_]() noexcept {
      *time = queue->is_modelled() ? (std::max)(queued, queue->busy_until())
                                   : detail::host_clock::now();
    };
    if (!stream.queue_->run_if_idle(stamp)) stream.queue_->push(stamp);
  }

  static std::size_t rounded(std::size_t bytes) noexcept {
    return (bytes + page - 1) / page * page;
  }

  static void* map_pages(std::size_t bytes, const char* kind) {
    if (bytes == 0 || rounded(bytes) < bytes) {
      throw out_of_memory(kind, bytes, "the size is 0 or larger than the address space");
    }
    const std::size_t length = rounded(bytes);
    void* data =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throw out_of_memory(kind, bytes,
                          std::string{"mmap gave "} + std::strerror(errno) +
                              ": lower prefetch, depth or batch_size, or raise the limit on "
                              "address space (ulimit -v)");
    }
    if (length >= huge_page) ::madvise(data, length, MADV_HUGEPAGE);
    // Touches each page to avoid page faults in the loop.
    for (std::size_t offset = 0; offset < length; offset += page) {
      static_cast<volatile char*>(data)[offset] = 0;
    }
    return data;
  }

  cpu_device_options options_{};
};

inline cpu_device cpu_stream_ref::device() const noexcept {
  return queue_ != nullptr ? cpu_device{queue_->options()} : cpu_device{};
}
inline cpu_device cpu_stream::device() const { return cpu_stream_ref{*this}.device(); }

static_assert(device<cpu_device>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
