// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <penstock/threads/support/waitable_counter.hpp>

#include "contract/device_contract/subject.hpp"

namespace contract {

/// Something that holds a stream until it is let go. Made after the streams, so that a check that
/// is left by an exception lets go of them before they are destroyed.
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

/// How many turns the other threads get to do what they must not. A turn is long where the machine
/// is busy: a caller that runs the checks many times gives few.
inline int turns = 1000;

/// Whether `happened` comes true although it must not: gives the other threads turns enough for
/// what nothing holds back. A right device can't fail by it, however slow.
inline bool happens(const std::atomic<bool>& happened) {
  for (int turn = 0; turn < turns; ++turn) {
    if (happened.load()) return true;
    std::this_thread::yield();
  }
  return happened.load();
}

/// Runs a call that must block on a thread of its own.
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
