// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The end of a copy out of a host slot, marked once for both sides: for the thread that refills
/// the host slot, and for the streams that use the device slot. The event belongs to the host slot,
/// which records it for copy after copy; a device slot holds the mark as long as it may still have
/// a stream wait for the record.
///
/// One thread at a time records, and it alone lets device slots hold the mark. Waiting for the
/// event changes nothing, and any threads may do it at once.
template <class Event>
class copy_mark {
 public:
  /// Takes an event that threads can sleep on.
  explicit copy_mark(Event made) : event_(std::move(made)) {}
  copy_mark(copy_mark&&) = delete;

  /// What marks the copy's end.
  [[nodiscard]] Event& event() noexcept { return event_; }
  [[nodiscard]] const Event& event() const noexcept { return event_; }

  /// Whether a device slot needs the last record, so that there must not be another one.
  [[nodiscard]] bool is_held() const noexcept { return is_held_.load(std::memory_order_acquire); }
  /// A device slot needs it from now on. On the thread that has recorded the event.
  void hold() noexcept { is_held_.store(true, std::memory_order_relaxed); }
  /// It does not any more. From any thread.
  void let_go() noexcept { is_held_.store(false, std::memory_order_release); }

 private:
  Event event_;
  // Invariant: the event is recorded only while this is false. It goes down after the last use by a
  // device slot's lease: a thread that finds it down, and records, comes after that use.
  std::atomic<bool> is_held_{false};
};

/// How the end of the last copy out of a host slot is known: by the mark, or by an event of the
/// slot's own while the mark is held.
template <class Event>
struct end_of_copy {
  std::shared_ptr<copy_mark<Event>> mark;
  Event alone;
  bool is_marked = false;  // which of the two was recorded last

  /// The one to wait for.
  [[nodiscard]] const Event& last() const noexcept {
    return is_marked ? std::as_const(*mark).event() : alone;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
