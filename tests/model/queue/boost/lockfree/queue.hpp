// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "checker.hpp"

/// Stands before Boost's header in a model: the same interface, each call one step. It promises what
/// our headers may rely on and no more: what was written before a push is seen behind its pop, and who
/// sees a push sees those before it, since each links its node to the one before. Else a call may miss
/// what another thread has done to the queue, unless that comes before it in the memory model's sense;
/// then a push finds no room or a pop no ticket.
namespace boost::lockfree {

template <bool>
struct fixed_sized {};

template <class T, class Option>
class queue {
 public:
  explicit queue(std::size_t capacity) : capacity_(static_cast<std::uint32_t>(capacity)) {
    model::require(capacity <= cells_.size(), "the model of a queue is as large as the queue");
    for (std::uint32_t i = 0; i < capacity_; ++i)
      cells_[i].turn.store(2 * i, std::memory_order_relaxed);
  }

  bool bounded_push(const T& ticket) {
    const step one;
    cell& to = cells_[pushed_ % capacity_];
    if (to.turn.load(std::memory_order_relaxed) != 2 * pushed_) return false;
    links_.fetch_add(1, std::memory_order_acquire);
    to.ticket = ticket;
    to.turn.store(2 * pushed_++ + 1, std::memory_order_release);
    links_.fetch_add(1, std::memory_order_release);
    return true;
  }

  bool pop(T& ticket) {
    const step one;
    cell& from = cells_[popped_ % capacity_];
    if (from.turn.load(std::memory_order_acquire) != 2 * popped_ + 1) return false;
    ticket = from.ticket;
    from.turn.store(2 * (popped_++ + capacity_), std::memory_order_relaxed);
    return true;
  }

  bool empty() const {
    const step one;
    return cells_[popped_ % capacity_].turn.load(std::memory_order_acquire) != 2 * popped_ + 1;
  }

 private:
  /// Another thread may run before it, none within.
  class step {
   public:
    step() { rl::ctx().sched(), rl::ctx().disable_preemption(); }
    step(const step&) = delete;
    ~step() { rl::ctx().enable_preemption(); }
  };

  struct cell {
    model::atomic<std::uint32_t> turn;  // 2n: free for push n; 2n + 1: holds what it pushed
    T ticket{};
  };

  std::uint32_t capacity_;
  std::array<cell, 4> cells_;
  model::atomic<std::uint32_t> links_;
  std::uint32_t pushed_ = 0;
  std::uint32_t popped_ = 0;
};

}  // namespace boost::lockfree
