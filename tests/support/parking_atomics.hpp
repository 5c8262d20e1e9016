// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

#include <penstock/threads/support/atomics.hpp>

/// Atomics that can stop a thread inside a lock-free call. A `parked_thread` stops before a chosen
/// step, as if the scheduler had preempted it there.
struct parking_atomics {
  /// A gate that stops a thread until the test lets it continue.
  class place {
   public:
    void stop_here() {
      std::unique_lock lock{mutex_};
      has_stopped_ = true;
      changed_.notify_all();
      changed_.wait(lock, [&] { return may_go_on_; });
    }
    void on_end() {
      const std::lock_guard lock{mutex_};
      has_ended_ = true;
      changed_.notify_all();
    }
    bool wait_for_stop_or_end() {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return has_stopped_ || has_ended_; });
      return has_stopped_;
    }
    void let_go() {
      const std::lock_guard lock{mutex_};
      may_go_on_ = true;
      changed_.notify_all();
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool has_stopped_ = false;
    bool has_ended_ = false;
    bool may_go_on_ = false;
  };

  /// The gate at which the calling thread stops, and the number of steps until then.
  static inline thread_local std::uint64_t steps_left = 0;
  static inline thread_local place* stopping = nullptr;

  static void step() {
    if (steps_left != 0 && --steps_left == 0) stopping->stop_here();
  }

  template <class T>
  class atomic : public std::atomic<T> {
    using base = std::atomic<T>;

   public:
    using base::base;

    T load(std::memory_order order) const noexcept { return step(), base::load(order); }
    void store(T value, std::memory_order order) noexcept { step(), base::store(value, order); }
    T exchange(T value, std::memory_order order) noexcept {
      return step(), base::exchange(value, order);
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order success,
                                 std::memory_order failure) noexcept {
      return step(), base::compare_exchange_strong(expected, value, success, failure);
    }
  };

  using word = atomic<std::uint32_t>;

  static void pause() noexcept { penstock::detail::std_atomics::pause(); }
  static void yield() noexcept { penstock::detail::std_atomics::yield(); }
  static void fence() noexcept { penstock::detail::std_atomics::fence(); }
};

/// A thread that runs `call` and stops before its `step`-th atomic operation. The destructor
/// resumes and joins the thread.
class parked_thread {
 public:
  template <class Call>
  parked_thread(std::uint64_t step, Call call)
      : thread_([this, step, call = std::move(call)] {
          parking_atomics::stopping = &place_;
          parking_atomics::steps_left = step;
          call();
          parking_atomics::steps_left = 0;
          place_.on_end();
        }) {
    has_stopped_ = place_.wait_for_stop_or_end();
  }
  parked_thread(parked_thread&&) = delete;
  ~parked_thread() {
    if (thread_.joinable()) finish();
  }

  /// Returns true if the thread has stopped inside the call, or false if the call has ended before
  /// that step.
  [[nodiscard]] bool has_stopped() const noexcept { return has_stopped_; }
  /// Resumes the thread and waits for the end of its call.
  void finish() {
    place_.let_go();
    thread_.join();
  }

 private:
  parking_atomics::place place_;
  bool has_stopped_ = false;
  std::thread thread_;
};
