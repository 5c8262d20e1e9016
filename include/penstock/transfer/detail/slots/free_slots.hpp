// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/support/joined.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// No slot of `count` device slots is free, and none is waited for any more.
[[noreturn, gnu::cold]] inline void throw_no_slot(std::size_t count, bool is_stopped) {
  if (is_stopped) {
    throw cancelled(joined({"cancelled: a stop of the source was requested while all ", count,
                            " device slots were held as leases"}));
  }
  throw leases_exhausted(
      joined({"transfer: all ", count,
              " device slots are held as leases: release one, raise depth, or let it wait for "
              "leases that end on other threads (when_held)"}));
}

/// Finds device slots that a batch may be copied into, the one first that has been free for
/// longest. For the consumer's thread.
class free_slots {
 public:
  explicit free_slots(held_action when_all_are) noexcept : when_held_(when_all_are) {}

  /// A free slot of `ring`, usually the next in turn; nothing while all are leased.
  template <class Slots>
  [[nodiscard]] std::optional<std::size_t> find(const Slots& ring) const noexcept {
    for (std::size_t i = 0; i < ring.count(); ++i) {
      const std::size_t slot = (next_ + i) % ring.count();
      if (ring.is_released(slot)) return slot;
    }
    return std::nullopt;
  }

  /// A free slot once there is one: where all are leased a new one if there may be more, else see
  /// `when_held`; `timing` gives what times a wait. Throws `leases_exhausted`, or `cancelled` once
  /// `stop` is requested, or the error of a release that the device has refused.
  template <class Slots, class Timing>
  [[nodiscard]] std::size_t wait(Slots& ring, const std::stop_token& stop, Timing timing) const {
    std::optional<std::size_t> slot = find(ring);
    // A slot that was done without may still be leased, and then the next one is looked at.
    for (std::size_t had = 0; !slot && had < ring.count() && ring.count() < ring.most();) {
      had = ring.count();
      ring.open(had + 1);
      slot = find(ring);
    }
    if (!slot && when_held_ == held_action::wait) {
      const std::stop_callback on_stop{stop, [&ring]() noexcept { ring.wake(); }};
      [[maybe_unused]] const auto timed = timing();
      ring.wait_for_release([&] {
        slot = find(ring);
        return slot || ring.is_poisoned() || stop.stop_requested();
      });
      if (!slot) ring.rethrow_poison();
    }
    if (!slot) throw_no_slot(ring.count(), stop.stop_requested());
    return *slot;
  }

  /// `slot` gets a copy: the one after it comes next.
  void note_taken(std::size_t slot) noexcept { next_ = slot + 1; }

 private:
  held_action when_held_;
  std::size_t next_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
