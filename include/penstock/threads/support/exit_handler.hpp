// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <thread>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The base of an `exit_handler`, without its function. The handlers of a thread form a list.
class exit_handler_base {
 public:
  exit_handler_base(exit_handler_base&&) = delete;

 protected:
  using caller = void (*)(const exit_handler_base& self) noexcept;
  explicit exit_handler_base(caller call) noexcept
      : call_(call), outer_(std::exchange(newest(), this)) {}
  ~exit_handler_base() { newest() = outer_; }

 private:
  // `exit()` destroys this list before static objects. If the thread ends in another way, the list
  // is empty.
  struct list {
    const exit_handler_base* newest = nullptr;
    ~list() {
      for (const auto* each = newest; each != nullptr; each = each->outer_) each->call_(*each);
    }
  };
  static const exit_handler_base*& newest() noexcept {
    thread_local list all;
    return all.newest;
  }

  caller call_;
  const exit_handler_base* outer_;
};

/// Calls a function if the current thread calls `exit()` during the lifetime of this object. In
/// that case, the work of the thread never returns. The function must release all threads that wait
/// for the work, because a static object's destructor may wait for such a thread.
///
/// The function runs on the same thread before static objects are destroyed, because `exit()` first
/// destroys the thread-local objects of the calling thread. The function must not throw. If a
/// thread has several handlers, the newest is called first.
template <std::invocable Function>
class exit_handler : exit_handler_base {
 public:
  explicit exit_handler(Function function) noexcept
      : exit_handler_base([](const exit_handler_base& self) noexcept {
          static_cast<const exit_handler&>(self).function_();
        }),
        function_(std::move(function)) {}

 private:
  Function function_;
};

/// Joins `thread`. If `thread` is the calling thread, because its work has called `exit()`,
/// detaches it instead.
inline void join_unless_caller(std::thread& thread) {
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
