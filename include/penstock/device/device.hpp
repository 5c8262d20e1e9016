// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if device memory, or host memory for asynchronous copies, cannot be allocated.
class [[gnu::visibility("default")]] out_of_memory : public error {
 public:
  [[gnu::cold]] out_of_memory(std::string_view kind, std::size_t bytes, std::string_view reason)
      : error(
            detail::str_cat({kind, " memory: ", bytes, " bytes could not be allocated: ", reason})),
        bytes_(bytes) {}
  /// Returns the number of bytes requested.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
};

/// Host memory for asynchronous copies.
struct pinned_block {
  /// The address.
  void* data = nullptr;
  /// True if the memory is page-locked.
  bool pinned = false;
  /// True if the memory was locked in a slower way, because registration, the usual way, failed.
  bool registration_failed = false;
};

/// Specifies what will wait for an event.
enum class event_wait {
  by_streams,  ///< streams only; a thread that waits for the event may spin
  by_host,     ///< threads as well, without spinning
  timed,       ///< like `by_streams`, and `elapsed` measures the time between two such events
};

/// Specifies which host memory a device's kernels can access at its host address. Writes by the
/// host must be visible to work that is queued later.
struct host_access {
  bool pinned = false;    ///< page-locked memory
  bool pageable = false;  ///< any other memory
  /// True if the device accesses this memory as fast as its own memory, including caches, in which
  /// case a copy gains nothing.
  bool as_own = false;
};

/// The priority of a stream: the order in which the device schedules streams that have waiting
/// work.
enum class stream_priority {
  normal,   ///< the priority of the program's own streams
  highest,  ///< before waiting work of other streams; for short work on which other work depends
};

/// The requirements on a device. A device object is a cheap, copyable handle. Names and semantics
/// follow the CUDA runtime:
///
/// - a `stream_type` owns a queue of work that runs in order; a `stream_ref` refers to a stream;
/// - an `event_type` marks a point in a stream. `record` sets the point. `wait(stream, event)`
///   makes the stream wait for the latest record at the time of the call. An event that was never
///   recorded is complete. `record`, `wait` and `copy_async` do not block the calling thread, as
///   long as the device can queue them;
/// - `synchronize` blocks the calling thread until an event, or all work of a stream, is complete.
///   When `synchronize` has returned, or `is_complete` has returned true, work that is queued later
///   on any stream sees the results of that work. The argument of `make_event` specifies which side
///   waits for the event, see `event_wait`;
/// - `require_usable` throws if the stream cannot order this device's work, in general or in its
///   current state. A device may also have `require_still_usable`, which is called once for each
///   batch and checks only what may have changed since;
/// - `allocate` returns device memory, and `allocate_pinned` host memory. Both are aligned to 256
///   bytes. Both functions throw `out_of_memory`, are slow, and are meant for construction;
/// - `make_current` prepares a thread for work on the device. Every thread of the library calls it
///   first.
///
/// Optional members:
///
/// - `copy_to_device(to, from, bytes, stream)`: a `copy_async` from host memory;
/// - `synchronize()`: waits for all work of the device; used if a stream cannot be waited for;
/// - `synchronize(event, nap)`, for a device that polls: calls `nap(time)` instead of sleeping for
///   that time between two polls. `nap` may return early and may throw;
/// - `is_dead_after(failure)`, noexcept: returns true if `failure`, the exception that ended a
///   wait, means that no work runs any more, so that memory may be freed. Without this member,
///   memory is leaked if its work cannot be waited for;
/// - `grouped_bytes`, a `static constexpr std::size_t`, for a device whose calls cost more than
///   small copies: up to 16 ready batches of up to this many bytes in total share calls;
/// - `make_stream(stream_priority)`;
/// - `elapsed(begin, end)`, see `times_work`;
/// - `reads_host()`, a `host_access`, for `transfer_options::tuning.zero_copy`. Without this member
///   the library assumes that the device reads no host memory;
/// - `host_node`, a `std::optional<int>`: the host's NUMA node that is closest to the device. A
///   loader binds its workers to this node, see `loader_options::tuning.affinity`. The library
///   finds the node's cores in "/sys", or in `sysfs_root()`, which a device for tests may have;
/// - `dlpack_kind`, a `static constexpr std::int32_t`, for a device whose batches become tensors of
///   other libraries (`to_dlpack`): the DLPack name of its memory. `dlpack_pinned_kind`, if
///   page-locked memory has a different name. `ordinal()`, if there are several devices.
///
/// One thread at a time records an event. Several threads may wait for the event and query it at
/// the same time, even while another thread records it again on the same stream. They see the
/// previous record or the new record. While an event is recorded for the first time, or on another
/// stream than before, no other thread may use it. Several threads may use streams and devices at
/// the same time. A stream must outlive the work queued on it: its destructor waits.
template <class D>
concept device = std::copyable<D> && std::movable<typename D::stream_type> &&
                 !std::copyable<typename D::stream_type> && std::movable<typename D::event_type> &&
                 std::copyable<typename D::stream_ref> &&
                 std::convertible_to<typename D::stream_type&, typename D::stream_ref> &&
                 requires(const D& d, typename D::stream_ref stream, typename D::event_type& event,
                          const typename D::event_type& recorded, void* to, const void* from,
                          std::size_t bytes) {
                   { d.make_stream() } -> std::same_as<typename D::stream_type>;
                   { d.make_event(event_wait::by_streams) } -> std::same_as<typename D::event_type>;
                   d.require_usable(stream);
                   d.record(event, stream);
                   d.wait(stream, recorded);
                   d.synchronize(stream);
                   d.synchronize(recorded);
                   { d.is_complete(recorded) } -> std::same_as<bool>;
                   d.copy_async(to, from, bytes, stream);
                   { d.allocate(bytes) } -> std::same_as<void*>;
                   { d.deallocate(to, bytes) } noexcept;
                   { d.allocate_pinned(bytes) } -> std::same_as<pinned_block>;
                   { d.deallocate_pinned(to, bytes) } noexcept;
                   d.make_current();
                 };

/// A device that measures the time of its work. `elapsed` returns the nanoseconds between two
/// events. Both must be made as `timed`, recorded, and complete.
template <class D>
concept times_work = requires(const D& d, const typename D::event_type& event) {
  { d.elapsed(event, event) } -> std::same_as<std::chrono::nanoseconds>;
};

namespace detail {

/// The alignment of all memory of a device in bytes.
inline constexpr std::size_t device_alignment = 256;

/// True if streams can run host functions that access the device's memory, like the streams of the
/// CPU device.
template <class StreamRef>
inline constexpr bool runs_host_functions =
    requires(StreamRef stream) { stream.launch([]() noexcept {}); };

/// Throws if `stream`, which was usable before, is no longer usable.
template <class Device>
void require_still_usable(const Device& device, typename Device::stream_ref stream) {
  if constexpr (requires { device.require_still_usable(stream); }) {
    device.require_still_usable(stream);
  } else {
    device.require_usable(stream);
  }
}

/// Returns true if `stream` stands for the calling thread, in which case the loop body is the step.
template <class Device>
[[nodiscard]] bool runs_inline(const Device& device, typename Device::stream_ref stream) noexcept {
  if constexpr (requires {
                  { stream == device.inline_stream() } -> std::convertible_to<bool>;
                }) {
    return stream == device.inline_stream();
  } else {
    return false;
  }
}

/// Returns a name of `stream` for messages.
template <class Device>
[[nodiscard]] std::string stream_name(const Device& device, typename Device::stream_ref stream) {
  if (runs_inline(device, stream)) return "no stream";
  std::string name = "a stream";
  if constexpr (requires {
                  { stream.get() } -> std::convertible_to<const void*>;
                }) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "stream %p", static_cast<const void*>(stream.get()));
    name = text.data();
  }
  if constexpr (requires {
                  { device.ordinal() } -> std::convertible_to<int>;
                }) {
    name += str_cat({" of device ", device.ordinal()});
  }
  return name;
}

/// Returns the host memory that the device's kernels may use. Propagates errors from the device.
template <class Device>
[[nodiscard]] host_access host_access_of([[maybe_unused]] const Device& device) {
  if constexpr (requires {
                  { device.reads_host() } -> std::same_as<host_access>;
                }) {
    return device.reads_host();
  } else {
    return {};
  }
}

/// Makes a stream with this priority, if the device supports priorities. Propagates errors from the
/// device.
template <class Device>
[[nodiscard]] typename Device::stream_type make_stream(const Device& device,
                                                       [[maybe_unused]] stream_priority how) {
  if constexpr (requires {
                  { device.make_stream(how) } -> std::same_as<typename Device::stream_type>;
                }) {
    return device.make_stream(how);
  } else {
    return device.make_stream();
  }
}

/// Waits for the work of a stream, or for an event. Returns true if the wait succeeded.
template <class Device, class StreamOrEvent>
bool try_synchronize(const Device& device, const StreamOrEvent& work) noexcept {
  try {
    device.synchronize(work);
    return true;
  } catch (...) {  // most likely, the device is in an error state and no longer runs work
    return false;
  }
}

/// Waits for work before the memory that it uses is freed: for the given events or streams, or for
/// all work of the device if there are no arguments. Returns false if two attempts to wait have
/// failed. In that case, the work may still be running, and the caller must leak the memory. The
/// function does not wait for all work of the device instead, because that would invalidate a
/// stream capture.
template <class Device, class... StreamOrEvent>
[[nodiscard]] bool synchronize_before_free(const Device& device,
                                           const StreamOrEvent&... work) noexcept {
  for (int rejections = 0; rejections < 2; ++rejections) {
    try {
      if constexpr (sizeof...(work) != 0 || requires { device.synchronize(); }) {
        device.synchronize(work...);
      }
      return true;
    } catch (...) {
      if constexpr (requires { device.is_dead_after(std::current_exception()); }) {
        if (device.is_dead_after(std::current_exception())) return true;
      }
    }
  }
  return false;
}

/// True if devices of this type report the closest NUMA node of the host.
template <class Device>
inline constexpr bool has_host_node = requires(const Device& device) { device.host_node(); };

/// Returns the host's NUMA node that is closest to the device, or `std::nullopt` if no node is
/// known. Propagates errors from the device.
template <class Device>
[[nodiscard]] std::optional<int> host_node_of(const Device& device) {
  if constexpr (has_host_node<Device>) {
    return device.host_node();
  } else {
    return std::nullopt;
  }
}

/// Returns the path of sysfs, or the folder that replaces sysfs if the device is a device for
/// tests.
template <class Device>
[[nodiscard]] std::string sysfs_root_of(const Device& device) {
  if constexpr (requires { device.sysfs_root(); }) {
    return device.sysfs_root();
  } else {
    return "/sys";
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
