// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <penstock/core/error.hpp>
#include <penstock/core/support/joined.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Device memory, or memory that a copy engine can reach, could not be allocated.
class [[gnu::visibility("default")]] out_of_memory : public error {
 public:
  [[gnu::cold]] out_of_memory(std::string_view kind, std::size_t bytes, std::string_view reason)
      : error(
            detail::joined({kind, " memory: ", bytes, " bytes could not be allocated: ", reason})),
        bytes_(bytes) {}
  /// How many bytes were asked for.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
};

/// Host memory for asynchronous copies, and whether it really is page-locked.
struct pinned_block {
  /// The first byte.
  void* data = nullptr;
  /// Whether it is page-locked.
  bool pinned = false;
  /// Whether the system refused the usual way to lock so much, registration, and it was taken in a
  /// slower one.
  bool registration_refused = false;
};

/// What waits for an event.
enum class event_wait {
  by_streams,  ///< streams alone; a thread that waits for it all the same may spin
  by_host,     ///< threads too, which do not spin
  timed,       ///< as `by_streams`; and `elapsed` is asked how long after another one it came
};

/// How soon a device turns to the work of a stream, where that of several waits for it.
enum class stream_priority {
  normal,   ///< as the program's own streams have it
  highest,  ///< before what other streams have not begun: for short work that others wait for
};

/// What the flow needs of a device. A device object is a cheap, copyable handle; the names follow
/// the CUDA runtime, and so do the meanings:
///
/// - a `stream_type` owns a queue of work that runs in order; a `stream_ref` refers to one;
/// - an `event_type` marks a place in a stream. `record` moves it there; `wait(stream, event)`
///   makes the stream wait for the record at the time of the call; an event that was never recorded
/// is
///   complete. Neither blocks the calling thread, nor does `copy_async`, as long as the device has
/// room
///   to queue them;
/// - `synchronize` blocks the calling thread until an event, or all work of a stream, is complete;
///   `make_event` is told what will wait for the event, see `event_wait`;
/// - `require_usable` throws when this device's work can't be ordered by the stream, now or at all.
///   A device may also have `require_still_usable`, which looks only for what may have changed
/// since:
///   it is asked for each batch;
/// - `allocate` gives device memory aligned to 256 bytes, `allocate_pinned` host memory aligned
///   likewise; both throw `out_of_memory`, both are slow and meant for construction;
/// - `make_current` prepares a thread for work on the device; every thread of the library calls it
///   first;
/// - a device may have `copy_to_device(to, from, bytes, stream)`: a `copy_async` out of host
///   memory;
/// - a device whose calls cost more than small copies do has `grouped_bytes`, a `static constexpr
///   std::size_t`: up to so many bytes together, batches share calls (`transfer_options::group`);
/// - a device may have `make_stream(stream_priority)`;
/// - a device may have `copy_all_to_device(to, from, bytes, stream)`, spans of equal length: as many
///   `copy_to_device` in any order, by one call; and `copies_batches()`, whether it can;
/// - a device may have `elapsed(begin, end)`, see `times_work`;
/// - a device may have `host_node`, a `std::optional<int>`: the host's NUMA node next to it, which
///   a loader binds its workers to, see `loader_options::placement`. The node's cores are looked up
///   below "/sys", or below `sysfs_root()`, which tests may give a device;
/// - a device whose batches become tensors of other libraries (`to_dlpack`) has `dlpack_kind`, a
///   `static constexpr std::int32_t`: what DLPack calls its memory; `dlpack_pinned_kind`, where
///   page-locked memory has a name of its own; and `ordinal()`, where there are several.
///
/// An event is recorded by one thread while no other uses it; several may wait for it and query it
/// at once. Streams and devices may be used from several threads.
/// A stream must outlive the work that was given to it: its destructor waits for it.
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

/// A device that can tell how long its work takes. `elapsed` gives the nanoseconds between two
/// events that were made as `timed`, are recorded, and are complete.
template <class D>
concept times_work = requires(const D& d, const typename D::event_type& event) {
  { d.elapsed(event, event) } -> std::same_as<std::chrono::nanoseconds>;
};

namespace detail {

/// Throws when a stream that has been usable is not any more.
template <class Device>
void require_still_usable(const Device& device, typename Device::stream_ref stream) {
  if constexpr (requires { device.require_still_usable(stream); }) {
    device.require_still_usable(stream);
  } else {
    device.require_usable(stream);
  }
}

/// A stream of this priority, where the device knows of priorities. Throws what the device throws.
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

/// The host's NUMA node next to the device; nothing where it has none. Throws what the device does.
template <class Device>
[[nodiscard]] std::optional<int> host_node_of(const Device& device) {
  if constexpr (requires { device.host_node(); }) {
    return device.host_node();
  } else {
    return std::nullopt;
  }
}

/// Where the system's folder of devices is: another place for a test's device.
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
