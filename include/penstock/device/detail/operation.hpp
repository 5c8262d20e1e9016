// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include <penstock/core/checked.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A place for the work of one operation of a CPU stream, which is held inline.
class operation {
 public:
  static constexpr std::size_t bytes = PENSTOCK_CHECKED ? 240 : 112;  // larger views

  /// Moves `work` in, until `run`. The place holds nothing before.
  template <class Work>
  void hold(Work work) noexcept {
    static_assert(sizeof(Work) <= bytes && alignof(Work) <= alignof(std::max_align_t),
                  "penstock: work for a CPU stream is held inline: capture at most 96 bytes, "
                  "larger state by pointer");
    static_assert(std::is_nothrow_move_constructible_v<Work>);
    ::new (static_cast<void*>(storage_)) Work(std::move(work));
    run_ = [](void* storage) {
      struct destroyed_after_run {
        Work& work;
        ~destroyed_after_run() { work.~Work(); }
      } holder{*std::launder(static_cast<Work*>(storage))};
      holder.work();
    };
  }

  /// Runs the work, and destroys it, also where it throws.
  void run() { run_(storage_); }

 private:
  void (*run_)(void*);
  alignas(std::max_align_t) std::byte storage_[bytes];
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
