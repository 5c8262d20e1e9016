// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Device memory, or memory for a copy engine, could not be allocated.
class [[gnu::visibility("default")]] out_of_memory : public error {
 public:
  [[gnu::cold]] out_of_memory(std::string_view kind, std::size_t bytes, std::string_view reason)
      : error(
            detail::joined({kind, " memory: ", bytes, " bytes could not be allocated: ", reason})),
        bytes_(bytes) {}
  /// The number of bytes requested.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
};

/// Host memory for asynchronous copies.
struct pinned_block {
  /// The first byte.
  void* data = nullptr;
  /// Whether it is page-locked.
  bool pinned = false;
  /// Whether the system refused registration, the usual way to lock memory, and a slower one was
  /// used.
  bool registration_refused = false;
};

/// Who waits for an event.
enum class event_wait {
  by_streams,  ///< streams only; a thread that waits for it may spin
  by_host,     ///< threads as well, without spinning
  timed,       ///< as `by_streams`, and `elapsed` measures the time between two such events
};

/// Which memory of the host a device's kernels may use, at the address that it has there, and what
/// the host writes is there for work that is queued later.
struct host_access {
  bool pinned = false;    ///< page-locked memory
  bool pageable = false;  ///< any other
  /// Whether it is as near as the device's own memory, caches included: then a copy gains nothing.
  bool as_own = false;
};

/// The order in which a device schedules streams that have work waiting.
enum class stream_priority {
  normal,   ///< the priority of the program's own streams
  highest,  ///< ahead of waiting work of other streams; for short work that others wait for
};

/// The requirements on a device. A device object is a cheap, copyable handle; names and semantics
/// follow the CUDA runtime:
///
/// - a `stream_type` owns a queue of work that runs in order; a `stream_ref` refers to one;
/// - an `event_type` marks a point in a stream. `record` sets it; `wait(stream, event)` makes the
///   stream wait for the latest record at the time of the call; an event that was never recorded is
///   complete. Neither blocks the calling thread, nor does `copy_async`, as long as the device can
///   queue them;
/// - `synchronize` blocks the calling thread until an event, or all work of a stream, is complete;
///   `make_event` is told who will wait for the event, see `event_wait`;
/// - `require_usable` throws if the stream can't order this device's work, now or ever. A device
///   may also have `require_still_usable`, which checks only what may have changed since, once per
///   batch;
/// - `allocate` returns device memory aligned to 256 bytes, `allocate_pinned` host memory aligned
///   likewise; both throw `out_of_memory`, both are slow and meant for construction;
/// - `make_current` prepares a thread for work on the device; every thread of the library calls it
///   first.
///
/// Optional members:
///
/// - `copy_to_device(to, from, bytes, stream)`: a `copy_async` from host memory;
/// - `synchronize()`: waits for all work of the device; used where a stream can't be waited for;
/// - `grouped_bytes`, a `static constexpr std::size_t`, of a device whose calls cost more than
///   small copies: batches of up to this many bytes in total share calls
///   (`transfer_options::tuning.group`);
/// - `make_stream(stream_priority)`;
/// - `elapsed(begin, end)`, see `times_work`;
/// - `reads_host()`, a `host_access`: for `transfer_options::zero_copy`; none without it;
/// - `host_node`, a `std::optional<int>`: the host's NUMA node next to the device, to which a
///   loader binds its workers, see `loader_options::tuning.placement`. The node's cores are looked
///   up below "/sys", or below `sysfs_root()`, which a test's device may have;
/// - `dlpack_kind`, a `static constexpr std::int32_t`, of a device whose batches become tensors of
///   other libraries (`to_dlpack`): the DLPack name of its memory; `dlpack_pinned_kind`, if
///   page-locked memory has a different name; and `ordinal()`, if there are several devices.
///
/// An event is recorded by one thread while no other uses it; several may wait for it and query it
/// at once. Streams and devices may be used from several threads. A stream must outlive the work
/// queued on it: its destructor waits.
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

/// A device that measures the time of its work. `elapsed` gives the nanoseconds between two events
/// that were made as `timed`, are recorded, and are complete.
template <class D>
concept times_work = requires(const D& d, const typename D::event_type& event) {
  { d.elapsed(event, event) } -> std::same_as<std::chrono::nanoseconds>;
};

namespace detail {

/// Throws if a stream that was usable no longer is.
template <class Device>
void require_still_usable(const Device& device, typename Device::stream_ref stream) {
  if constexpr (requires { device.require_still_usable(stream); }) {
    device.require_still_usable(stream);
  } else {
    device.require_usable(stream);
  }
}

/// Which memory of the host the device's kernels may use. Throws what the device throws.
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

/// A stream of this priority, if the device supports priorities. Throws what the device throws.
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

/// Waits for the work of a stream, or for an event. Returns whether the wait succeeded.
template <class Device, class StreamOrEvent>
bool settle(const Device& device, const StreamOrEvent& work) noexcept {
  try {
    device.synchronize(work);
    return true;
  } catch (...) {  // most likely a device in error, which does no work any more
    return false;
  }
}

/// Waits for all work of the device, where it can do that, for work whose stream can't be waited
/// for: before memory goes. It ends a capture.
template <class Device>
void settle_everything([[maybe_unused]] const Device& device) noexcept {
  if constexpr (requires { device.synchronize(); }) {
    try {
      device.synchronize();
    } catch (...) {  // as above
    }
  }
}

/// The host's NUMA node next to the device; `std::nullopt` if there is none. Throws what the device
/// does.
template <class Device>
[[nodiscard]] std::optional<int> host_node_of(const Device& device) {
  if constexpr (requires { device.host_node(); }) {
    return device.host_node();
  } else {
    return std::nullopt;
  }
}

/// The path of sysfs; another folder for devices of tests.
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
