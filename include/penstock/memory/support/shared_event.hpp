// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The end of copies out of host slots, marked once for both sides: for the threads that refill the
/// host slots, and for the streams that use the device slots. The event belongs to the host slot of
/// one of the copies, which records it for one burst of copies after the other. Each device slot,
/// and each host slot's ticket, holds the mark as long as it may still wait for the record. The
/// mark goes with the last `shared_event_ref`, that of its owner or another.
///
/// One thread at a time records, and it alone begins to hold. Waiting for the event changes
/// nothing, and any threads may do it at once.
template <class Event>
class shared_event {
 public:
  /// Takes an event that threads can sleep on. The caller owns it, and lets it go too.
  explicit shared_event(Event made) : event_(std::move(made)) {}
  shared_event(shared_event&&) = delete;

  /// What marks the end of the copies.
  [[nodiscard]] Event& event() noexcept { return event_; }
  [[nodiscard]] const Event& event() const noexcept { return event_; }

  /// Whether one beside the owner still needs the last record, so that there must not be another.
  [[nodiscard]] bool is_held() const noexcept {
    return holders_.load(std::memory_order_acquire) != 1;
  }
  /// One more needs it from now on. On the thread that has recorded the event.
  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  /// One of them does not any more. From any thread.
  void let_go() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  ~shared_event() = default;

  Event event_;
  // Invariant: the event is recorded only while this is 1. It counts the owner, the device slots
  // whose leases, and the tickets whose takers, may still wait for the last record; each goes down
  // after its last wait: a thread that finds 1, and records, comes after all of them.
  std::atomic<std::size_t> holders_{1};
};

/// A mark that is held as long as this object has it; or none.
template <class Event>
class shared_event_ref {
 public:
  shared_event_ref() = default;
  /// Makes a mark, and owns it.
  explicit shared_event_ref(Event made) : mark_(new shared_event<Event>(std::move(made))) {}
  /// Holds a mark that the calling thread has recorded.
  explicit shared_event_ref(shared_event<Event>* recorded) noexcept : mark_(recorded) {
    mark_->hold();
  }
  shared_event_ref(shared_event_ref&& other) noexcept
      : mark_(std::exchange(other.mark_, nullptr)) {}
  shared_event_ref& operator=(shared_event_ref&& other) noexcept {
    let_go();
    mark_ = std::exchange(other.mark_, nullptr);
    return *this;
  }
  ~shared_event_ref() { let_go(); }

  explicit operator bool() const noexcept { return mark_ != nullptr; }
  /// The mark; null where there is none.
  [[nodiscard]] shared_event<Event>* get() const noexcept { return mark_; }
  /// What to wait for; there must be a mark.
  [[nodiscard]] const Event& event() const noexcept { return mark_->event(); }
  /// Waits for it no more.
  void let_go() noexcept {
    if (mark_ != nullptr) std::exchange(mark_, nullptr)->let_go();
  }

 private:
  shared_event<Event>* mark_ = nullptr;
};

/// How the end of the last copy out of a host slot is known.
template <class Event>
struct end_of_copy {
  shared_event_ref<Event> own;     ///< records the end of this slot's copy, and of others
  Event alone;                     ///< does so while others hold that: of this slot's copy alone
  shared_event_ref<Event> marked;  ///< the one that has told it, until that was waited for

  /// The one to wait for.
  [[nodiscard]] const Event& last() const noexcept { return marked ? marked.event() : alone; }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
