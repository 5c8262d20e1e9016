// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Deletes what the last lease has held: slots, whose destructor waits for streams. Where that is
/// the work of one of them, which would wait for itself, the stream does it after all that it was
/// given before. No event of the slots can be recorded later than that: no lease is left.
template <class StreamRef>
struct delete_outside_of_work {
  template <class T>
  void operator()(T* last) const noexcept {
    run(last, [](void* one) noexcept { delete static_cast<T*>(one); });
  }
  static void run(void* last, void (*destroy)(void*) noexcept) noexcept;
};

template <class StreamRef>
void delete_outside_of_work<StreamRef>::run(void* last, void (*destroy)(void*) noexcept) noexcept {
  if constexpr (requires { StreamRef::running(); }) {
    if (const auto stream = StreamRef::running()) {
      try {
        stream->launch([=]() noexcept { destroy(last); });
      } catch (...) {  // no memory for the launch: it stays, since work may still use it
      }
      return;
    }
  }
  destroy(last);
}

/// An object that leases share, on the heap. Its destructor may wait for work on streams of
/// `StreamRef`.
template <class T, class StreamRef, class... Args>
[[nodiscard]] std::shared_ptr<T> shared_by_leases(Args&&... args) {
  return std::shared_ptr<T>{new T(std::forward<Args>(args)...),
                            delete_outside_of_work<StreamRef>{}};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
