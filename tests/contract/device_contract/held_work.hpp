// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <penstock/threads/support/waitable_counter.hpp>

#include "contract/device_contract/subject.hpp"

namespace contract {

/// Blocks a stream until `let_go` is called. Construct this object after the streams, so that an
/// exception releases the streams before they are destroyed.
class hold {
 public:
  hold() = default;
  hold(hold&&) = delete;
  ~hold() { let_go(); }

  template <subject S>
  void on(const S& s, typename S::device_type::stream_ref stream) const {
    s.launch(stream, [gate = gate_] { gate->wait([](std::uint32_t open) { return open != 0; }); });
  }
  void let_go() const noexcept { gate_->store(1); }

 private:
  std::shared_ptr<penstock::detail::waitable_counter> gate_ =
      std::make_shared<penstock::detail::waitable_counter>();
};

/// Number of times that `happens` yields to other threads. A caller that runs the checks many times
/// sets a smaller number, because yields are slow on a busy machine.
inline int turns = 1000;

/// Returns true if `happened` returns true, which it must not. Yields often enough for work that is
/// not blocked to run. A correct device never fails this check, however slow it is.
inline bool happens(const std::atomic<bool>& happened) {
  for (int turn = 0; turn < turns; ++turn) {
    if (happened.load()) return true;
    std::this_thread::yield();
  }
  return happened.load();
}

/// A call on its own thread that must block.
class blocked_call {
 public:
  template <class Device, class Call>
  blocked_call(const Device& device, Call call)
      : thread_([this, device, call] {
          device.make_current();
          call();
          returned_.store(true);
        }) {}
  blocked_call(blocked_call&&) = delete;
  ~blocked_call() { join(); }

  [[nodiscard]] bool returns() const { return happens(returned_); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] bool has_returned() const { return returned_.load(); }

 private:
  std::atomic<bool> returned_{false};
  std::thread thread_;
};

}  // namespace contract
