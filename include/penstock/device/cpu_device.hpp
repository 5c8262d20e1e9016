// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/device/cpu_stream.hpp>
#include <penstock/device/device.hpp>
#include <penstock/threads/float_mode.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A device made of ordinary memory and threads, with the interface and ordering rules of a GPU,
/// for machines without one. Streams are threads, copies are memcpy, events are counters.
///
/// With `cpu_device_options` it models a copy bandwidth and a launch latency. Modelled operations
/// start when everything that they wait for has ended in modelled time, however late a thread wakes
/// up.
class cpu_device {
 public:
  using stream_type = cpu_stream;
  using stream_ref = cpu_stream_ref;
  using event_type = cpu_event;
  /// The DLPack name of its memory, see `penstock_ext/interop/dlpack_abi.hpp`.
  static constexpr std::int32_t dlpack_kind = 1;

  cpu_device() = default;
  /// A device with these options.
  explicit cpu_device(const cpu_device_options& options) noexcept : options_(options) {}

  [[nodiscard]] stream_type make_stream() const { return cpu_stream{options_}; }
  /// All events are alike: a thread that waits for one sleeps.
  [[nodiscard]] event_type make_event(event_wait waits = event_wait::by_host) const {
    event_type made;
    if (waits == event_wait::timed) {
      made.time_ = std::make_shared<detail::host_clock::time_point>();
    }
    return made;
  }

  /// The stream that is the calling thread itself, for a consumer that computes in its loop body.
  /// Waiting for a copy blocks the thread, and a release is complete at once.
  [[nodiscard]] stream_ref inline_stream() const noexcept { return stream_ref::calling_thread(); }

  /// All of it. Not as its own: it stands for a GPU, whose copies are to be seen.
  [[nodiscard]] host_access reads_host() const noexcept { return {true, true, false}; }

  /// Accepts any CPU stream.
  void require_usable(stream_ref) const noexcept {}

  void record(event_type& event, stream_ref stream) const {
    if (event.time_ != nullptr) note_time(event, stream);
    if (stream.queue_ == nullptr) {
      event.queue_.reset();  // all work of the calling thread is done
      return;
    }
    if (event.queue_.get() != stream.queue_) event.queue_ = stream.queue_->shared_from_this();
    event.position_ = stream.queue_->pushed();
    stream.queue_->note_use();
  }

  /// The time from `begin` to `end`; in modelled time for modelled streams.
  [[nodiscard]] std::chrono::nanoseconds elapsed(const event_type& begin,
                                                 const event_type& end) const {
    return *end.time_ - *begin.time_;
  }

  /// Makes `stream` wait for the current record of `event`. Later records do not affect the wait.
  void wait(stream_ref stream, const event_type& event) const {
    if (is_complete(event)) return;
    if (stream.queue_ == nullptr) {
      event.queue_->wait_until_completed(event.position_);
    } else if (stream.queue_ != event.queue_.get()) {
      stream.queue_->push(
          [own = stream.queue_, queue = event.queue_, position = event.position_]() noexcept {
            own->wait_for(*queue, position);
          });
    }
  }

  /// Blocks until the event is complete.
  void synchronize(const event_type& event) const {
    if (event.queue_ != nullptr) event.queue_->wait_until_completed(event.position_);
  }

  /// Blocks until all work of the stream is done; throws what the work has thrown.
  void synchronize(stream_ref stream) const { stream.synchronize(); }

  [[nodiscard]] bool is_complete(const event_type& event) const noexcept {
    return event.queue_ == nullptr || event.queue_->completed() >= event.position_;
  }

  /// Copies `bytes` bytes in stream order. Both ranges must stay alive until the stream is past it.
  /// A small copy on an idle stream runs at once on the calling thread: waking the stream's thread
  /// would cost several times the copy.
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

  /// Zeroed memory on separate pages, so that no two slots share one. Throws `out_of_memory`.
  [[nodiscard]] void* allocate(std::size_t bytes) const { return map_pages(bytes, "device"); }
  /// Ordinary host memory.
  [[nodiscard]] void* allocate_pageable(std::size_t bytes) const {
    return map_pages(bytes, "pageable");
  }
  /// Frees memory of either of the two.
  void deallocate(void* data, std::size_t bytes) const noexcept {
    if (data != nullptr) ::munmap(data, rounded(bytes));
  }

  /// Page-aligned, pre-touched memory, locked into RAM where the process's limit allows it
  /// (`ulimit -l`); `pinned` says whether it was. Throws `out_of_memory`.
  [[nodiscard]] pinned_block allocate_pinned(std::size_t bytes) const {
    void* data = map_pages(bytes, "pinned");
    return {data, ::mlock(data, rounded(bytes)) == 0};
  }
  void deallocate_pinned(void* data, std::size_t bytes) const noexcept {
    deallocate(data, bytes);  // munmap unlocks
  }

  /// Locks existing memory into RAM; see `registered_memory`, which owns this. Whole pages are
  /// locked and locks do not nest: two ranges must not share a page, which is not checked. Throws
  /// `out_of_memory` if the process's limit (`ulimit -l`) does not allow it.
  void register_memory(void* data, std::size_t bytes, bool) const {
    if (::mlock(data, bytes) == 0) return;
    const std::string reason = std::strerror(errno);
    ::rlimit limit{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    throw out_of_memory(
        "pinned", bytes,
        detail::joined({"mlock gave ", reason, "; the process may lock ",
                        limit.rlim_cur == RLIM_INFINITY ? detail::text_piece{"any number of"}
                                                        : detail::text_piece{limit.rlim_cur},
                        " bytes: raise the limit (ulimit -l) or register less"}));
  }
  void unregister_memory(void* data, std::size_t bytes) const noexcept { ::munlock(data, bytes); }

  /// Sets flush-to-zero and denormals-are-zero on the calling thread.
  void make_current() const noexcept { flushed_denormals::keep_on(); }

  /// The options.
  [[nodiscard]] const cpu_device_options& options() const noexcept { return options_; }

 private:
  // Copied in about 2 us; a wake-up was measured at 3 to 11 us.
  static constexpr std::size_t small_copy = std::size_t{64} << 10;
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  /// Makes the stream note the time at which it reaches the next record.
  static void note_time(const event_type& event, stream_ref stream) {
    const auto now = detail::host_clock::now();
    if (stream.queue_ == nullptr) {
      *event.time_ = now;
      return;
    }
    const auto note = [queue = stream.queue_, queued = now, time = event.time_]() noexcept {
      *time = queue->is_modelled() ? (std::max)(queued, queue->busy_until())
                                   : detail::host_clock::now();
    };
    if (!stream.queue_->run_if_idle(note)) stream.queue_->push(note);
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
                              ": take fewer slots (prefetch, depth) or a smaller batch_size, or "
                              "raise the process's limit (ulimit -v)");
    }
    if (length >= huge_page) ::madvise(data, length, MADV_HUGEPAGE);
    // Touched here to avoid page faults in the loop.
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
