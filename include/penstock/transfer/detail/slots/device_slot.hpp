// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/shared_event.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A batch whose source has given each sample a word.
template <class Batch>
concept has_tags = requires(const Batch& batch) {
  { batch.tags() } -> std::convertible_to<std::span<const std::uint64_t>>;
};

/// The words of the samples of the batch in a device slot: copied, since the host's memory is
/// refilled earlier.
class sample_tags {
 public:
  /// Makes room for those of a batch.
  void reserve(std::size_t most) { words_.reserve(most); }
  /// Those of `batch`, for which there is room. Without words it does nothing.
  template <class Batch>
  void keep([[maybe_unused]] const Batch& batch) noexcept {
    if constexpr (has_tags<Batch>) {
      const std::span<const std::uint64_t> words = batch.tags();
      words_.assign(words.begin(), words.end());
    }
  }

  /// One for each sample; none where the source gives none.
  [[nodiscard]] std::span<const std::uint64_t> all() const noexcept { return words_; }

 private:
  std::vector<std::uint64_t> words_;
};

/// Makes room in all device slots for the words of batches of this type, if they have any.
template <class Batch, class Ring>
void reserve_tags([[maybe_unused]] Ring& ring, [[maybe_unused]] std::size_t most) {
  if constexpr (has_tags<Batch>) {
    for (std::size_t slot = 0; slot < ring.most(); ++slot) ring.tags(slot).reserve(most);
  }
}

/// How often something has been done to a stream by which the host may know how far it is; nothing
/// for a stream that does not count, as the calling thread.
template <class StreamRef>
[[nodiscard]] std::optional<std::uint64_t> uses_of([[maybe_unused]] StreamRef stream) noexcept {
  if constexpr (requires {
                  { stream.uses() } -> std::same_as<std::optional<std::uint64_t>>;
                }) {
    return stream.uses();
  } else {
    return std::nullopt;
  }
}

/// Whether `stream` is the calling thread: then the loop's body is the step.
template <class Device>
[[nodiscard]] bool is_body(const Device& device, typename Device::stream_ref stream) noexcept {
  if constexpr (requires {
                  { stream == device.inline_stream() } -> std::convertible_to<bool>;
                }) {
    return stream == device.inline_stream();
  } else {
    return false;
  }
}

/// Whether a batch in host memory can mark the end of copies for both sides.
template <class HostBatch, class Device>
inline constexpr bool shares_mark = requires(HostBatch& from, typename Device::stream_ref stream) {
  { from.mark_copies(stream) } -> std::same_as<shared_event<typename Device::event_type>*>;
  from.release_behind(from.mark_copies(stream));
};

/// What is known of one device slot: the batch in it, and the events that order the streams which
/// fill and use it. The feed's thread fills a slot that is released; whoever ends its lease
/// releases it.
template <class Device>
struct device_slot {
  using stream_ref = typename Device::stream_ref;
  using event_type = typename Device::event_type;

  struct extra_stream {
    std::optional<stream_ref> stream;
    event_type released;
  };

  event_type copied;  // the slot is filled, unless a mark says so:
  shared_event_ref<event_type>
      mark;             // of its copy, until the lease ends; host slots wait for it too
  event_type released;  // its lease's stream is past it, unless it ended with others:
  bool is_released_together = false;  // then the ring's event says so
  std::vector<extra_stream> extras;   // so are those that it was also used on
  std::size_t extras_used = 0;
  batch_info info;
  sample_tags tags;
  std::optional<stream_ref> filled_by;
  [[no_unique_address]] lease_guard lease;  // until the batch is handed out
  std::optional<std::uint64_t> uses;        // of its stream by then, in a checked build
  // Invariant: true from the end of a lease, after its records and all that the lease did, to the
  // next copy; stored with release, and acquired by the feed's thread before it touches the slot.
  std::atomic<bool> is_released{true};

  /// Makes the events. Throws what the device throws.
  void make_events(const Device& device) {
    copied = device.make_event(event_wait::by_streams);
    released = device.make_event(event_wait::by_streams);
  }

  /// What is recorded where the slot is filled.
  [[nodiscard]] const event_type& arrival() const noexcept { return mark ? mark.event() : copied; }

  /// The slot is for this batch from now on.
  void take(const batch_info& held) noexcept {
    info = held;
    is_released.store(false, std::memory_order_relaxed);  // the feed's thread reads it itself
  }
  /// Nothing came of it, and no stream uses the slot.
  void put_back() noexcept {
    mark.let_go();
    is_released.store(true, std::memory_order_relaxed);  // as above
  }

  /// In a checked build: the lease of what was copied begins, and `stream` gets to its arrival
  /// before the record of that.
  void note_arrival([[maybe_unused]] const batch_info& arriving,
                    [[maybe_unused]] stream_ref stream) {
    if constexpr (checked) {
      lease.end();  // of a copy whose record was refused
      lease = lease_guard{arriving.epoch, arriving.batch, stream};
    }
  }

  /// As above, of what is there already.
  void note_arrival([[maybe_unused]] const batch_info& arriving) {
    if constexpr (checked) lease = lease_guard{arriving.epoch, arriving.batch};
  }

  /// In a checked build: `ended` is over for the host, and for each stream after the work that it
  /// has been given by now; the last one does `then` to the slot's memory. Where an exception ends
  /// it, the body may not have come to its use of the stream.
  template <class Guard, class Then>
  void end(Guard& ended, stream_ref stream, const Then& then) const noexcept {
    if (ended.was_seen_in_body() && extras_used == 0 && uses && uses == uses_of(stream) &&
        std::uncaught_exceptions() == 0) {
      ended.fail(
          "a thread took its data, but the feed was given a stream, which nobody has used since: "
          "nothing has waited for the copy. Leave the stream out (transfer feed{loader}) where the "
          "loop's body is the step, or synchronise first");
    }
    const auto last = ended.end_behind(1 + extras_used);
    last.behind(stream, then);
    for (std::size_t i = 0; i < extras_used; ++i) last.behind(*extras[i].stream, then);
  }

  /// Makes `stream`, which fills the slot next, wait for all who have used it.
  void wait_for_release(const Device& device, stream_ref stream) {
    device.wait(stream, released);
    for (std::size_t i = 0; i < extras_used; ++i) device.wait(stream, extras[i].released);
    extras_used = 0;
  }

  /// Records that the slot is released after what `stream` and the extra ones have been given.
  void record_release(const Device& device, stream_ref stream) {
    record_usable(device, released, stream);
    for (std::size_t i = 0; i < extras_used; ++i) {
      record_usable(device, extras[i].released, *extras[i].stream);
    }
  }

  /// Waits for them instead; whether they are idle then.
  [[nodiscard]] bool settle_users(const Device& device, stream_ref stream) noexcept {
    bool is_idle = settle(device, stream);
    for (std::size_t i = 0; i < extras_used; ++i) {
      is_idle = settle(device, *extras[i].stream) && is_idle;
    }
    extras_used = 0;
    return is_idle;
  }

  /// Waits for all that fills and uses the slot: its memory goes.
  void settle_all(const Device& device) noexcept {
    settle(device, copied);
    if (mark) settle(device, mark.event());
    settle(device, released);
    for (auto& extra : extras) settle(device, extra.released);
  }

  /// Whether the release waits for `stream` beside the lease's own.
  [[nodiscard]] bool is_extra(stream_ref stream) const noexcept {
    for (std::size_t i = 0; i < extras_used; ++i) {
      if (*extras[i].stream == stream) return true;
    }
    return false;
  }

  /// The release shall wait for `stream` too. Allocates an event the first time.
  void also_release_after(const Device& device, stream_ref stream) {
    if (extras_used == extras.size()) {
      extras.push_back({std::nullopt, device.make_event(event_wait::by_streams)});
    }
    extras[extras_used].stream = stream;
    ++extras_used;
  }

 private:
  static void record_usable(const Device& device, event_type& event, stream_ref stream) {
    require_still_usable(device, stream);
    device.record(event, stream);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
