#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/sequence.hpp>
#include <penstock/load/worker_pool.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// What can be posted: a callable of at most 40 bytes that may be copied as bytes and does not
/// throw. What it refers to must outlive its run.
template <class F>
concept pool_task = std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F> &&
                    std::is_nothrow_invocable_v<F&> &&(sizeof(F) <= 40) &&
                    (alignof(F) <= 8);

/// How a `task_pool` is made.
struct task_pool_options {
  /// How many threads; 0: whoever waits runs everything.
  std::size_t workers = 1;
  /// How many tasks may wait, a cache line each; rounded up to a power of two, from 2 on.
  std::size_t capacity = 1024;
};

namespace detail {

/// The tasks that wait, first in first out: D. Vyukov's bounded queue. Each slot counts its own
/// turns, so a task costs one compare-and-swap on either side. A thread that is preempted inside
/// `try_push` holds up the tasks behind its own; where that must not be, take `batch_queue`.
class task_ring {
 public:
  struct task {
    void (*run)(void* body) = nullptr;
    alignas(8) std::byte body[48] = {};
  };

  explicit task_ring(std::size_t capacity) : mask_(rounded(capacity) - 1), slots_(mask_ + 1) {
    for (std::uint64_t at = 0; at <= mask_; ++at) {
      slots_[at].turn.store(at, std::memory_order_relaxed);
    }
  }

  template <class F>
  bool try_push(const F& body) noexcept {
    static_assert(sizeof(F) <= sizeof(task::body) && alignof(F) <= 8);
    const auto at = claim(tail_, 0);
    if (!at) return false;
    slot& free = slots_[*at & mask_];
    free.what.run = [](void* copy) { (*static_cast<F*>(copy))(); };
    std::memcpy(free.what.body, &body, sizeof body);
    free.turn.store(*at + 1, std::memory_order_release);
    return true;
  }

  bool try_pop(task& what) noexcept {
    const auto at = claim(head_, 1);
    if (!at) return false;
    slot& full = slots_[*at & mask_];
    what = full.what;
    full.turn.store(*at + mask_ + 1, std::memory_order_release);
    return true;
  }

 private:
  // Whoever is at position p writes the slot when its turn is p, and reads it when its turn is p +
  // 1.
  struct alignas(cache_line) slot {
    std::atomic<std::uint64_t> turn{0};
    task what;
  };

  static std::size_t rounded(std::size_t capacity) {
    constexpr std::size_t most = std::size_t{1} << 20;
    if (capacity == 0 || capacity > most) {
      throw option_error("task_pool: capacity",
                         std::to_string(capacity) + " is not in 1.." + std::to_string(most));
    }
    // From 2 on: the turns of a single slot would be the same for full and for free.
    return std::bit_ceil((std::max)(capacity, std::size_t{2}));
  }

  std::optional<std::uint64_t> claim(std::atomic<std::uint64_t>& end,
                                     std::uint64_t offset) noexcept {
    std::uint64_t at = end.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t turn = slots_[at & mask_].turn.load(std::memory_order_acquire);
      const auto ahead = static_cast<std::int64_t>(turn - at - offset);
      if (ahead < 0) return std::nullopt;  // full, or empty
      if (ahead > 0) {
        at = end.load(std::memory_order_relaxed);  // another thread was faster
      } else if (end.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        return at;
      }
    }
  }

  std::uint64_t mask_;
  std::vector<slot> slots_;
  alignas(cache_line) std::atomic<std::uint64_t> tail_{0};
  alignas(cache_line) std::atomic<std::uint64_t> head_{0};
};

}  // namespace detail

/// Threads that run what is posted, first in first out; idle, they sleep. Beside a loader, for work
/// of one's own: what a dataset prepares, what a step leaves to the host.
///
///     ps::task_pool pool{{.workers = 3}};
///     ps::for_each_index(pool, rows.size(), [&](std::uint64_t i) noexcept { decode(rows[i]); });
///
/// All memory is taken at construction. Any thread may post, tasks too. The destructor runs what is
/// left and joins.
class task_pool {
 public:
  /// Starts the threads. Throws `option_error` for a capacity of 0 or above 2^20, and
  /// `std::system_error` when the system refuses a thread.
  explicit task_pool(const task_pool_options& options = {})
      : ring_(options.capacity), threads_(options.workers, work_on{this}, wake_all{this}) {}
  task_pool(task_pool&&) = delete;
  ~task_pool() {
    while (help()) {
    }
  }

  /// How many threads it has, the callers not counted.
  [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }

  /// Has `task` run by one of the threads; by the caller, at once, when `capacity` tasks wait
  /// already. Never blocks.
  template <pool_task F>
  void post(F task) noexcept {
    put(task);
  }

  /// Runs the oldest task that waits on the calling thread; false if there is none.
  bool help() noexcept {
    detail::task_ring::task oldest;
    if (!ring_.try_pop(oldest)) return false;
    oldest.run(oldest.body);
    return true;
  }

 private:
  friend class task_group;

  struct work_on {
    task_pool* self;
    void operator()(const std::stop_token& stop, std::size_t) const { self->work(stop); }
  };
  struct wake_all {
    task_pool* self;
    void operator()() const noexcept { self->posted_.advance(); }
  };

  template <class F>
  void put(F& task) noexcept {
    if (ring_.try_push(task)) {
      posted_.advance();
    } else {
      task();
    }
  }

  void work(const std::stop_token& stop) noexcept {
    for (;;) {
      // Looks into the ring and not at `posted_`: reading that would take its cache line away from
      // who posts, once a post.
      for (int idle = 0; idle < looks; ++idle) {
        if (help()) {
          idle = -1;
        } else {
          std_atomics::pause();
        }
      }
      // Invariant: the count is read before the last look into the ring, so a post in between
      // changes it and the wait below returns at once.
      const std::uint32_t seen = posted_.load();
      if (help()) continue;
      if (stop.stop_requested()) return;
      posted_.wait([seen](std::uint32_t now) { return now != seen; });
    }
  }

  static constexpr int looks = 64;  // about a microsecond

  detail::task_ring ring_;
  alignas(cache_line) sequence posted_;  // moves with every post
  alignas(cache_line) sequence ended_;   // moves when a group's last task has run
  worker_pool<work_on, wake_all> threads_;
};

/// Tasks that are waited for together. One thread at a time posts and waits; its tasks may have
/// groups of their own. The destructor waits.
class task_group {
 public:
  /// A group of tasks that `pool` runs. The pool must outlive it.
  explicit task_group(task_pool& pool) noexcept : pool_(pool) {}
  task_group(task_group&&) = delete;
  ~task_group() { wait(); }

  /// The same as the pool's.
  template <pool_task F>
  void post(F task) noexcept {
    ++posted_;
    auto counted = [task, this]() mutable noexcept {
      task();
      finish_one();
    };
    pool_.put(counted);
  }

  /// Returns when all that was posted has run, and helps meanwhile. What the tasks have written is
  /// seen behind it. The group can be used again.
  void wait() noexcept {
    const std::int64_t posted = std::exchange(posted_, 0);
    // Below zero until here, so no task takes itself for the last one before all are known.
    if (left_.fetch_add(posted, std::memory_order_acq_rel) + posted == 0) return;
    while (left_.load(std::memory_order_acquire) != 0) {
      if (!pool_.help()) break;
    }
    pool_.ended_.wait([this](std::uint32_t) { return left_.load(std::memory_order_acquire) == 0; });
  }

 private:
  void finish_one() noexcept {
    task_pool& pool = pool_;  // the group may be gone behind the next line
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) pool.ended_.advance();
  }

  task_pool& pool_;
  std::int64_t posted_ = 0;  // since the last wait
  alignas(cache_line) std::atomic<std::int64_t> left_{0};
};

/// Calls `body(index)` once for each index in [0, count), on the pool's threads and the calling
/// one, one atomic step an index: for bodies that take more than some ten nanoseconds. Returns when
/// all have run. `body` is shared by all threads and must not throw.
template <class Body>
  requires std::is_nothrow_invocable_v<Body&, std::uint64_t>
void for_each_index(task_pool& pool, std::uint64_t count, Body&& body) {
  alignas(cache_line) std::atomic<std::uint64_t> next{0};
  // Relaxed: an index says nothing about another one, and the group orders begin and end.
  const auto run = [&next, &body, count]() noexcept {
    for (;;) {
      const std::uint64_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      body(index);
    }
  };
  task_group helpers{pool};
  for (std::uint64_t i = 1; i < (std::min<std::uint64_t>)(count, pool.size() + 1); ++i) {
    helpers.post(run);
  }
  run();
}

}  // namespace penstock::inline PENSTOCK_ABI
