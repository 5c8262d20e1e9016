// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <compare>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <source_location>
#include <span>
#include <sstream>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// relacy defines macros with names from the language and the standard library, which the headers
// under test also use. All standard headers are therefore included before relacy, and the macros
// are removed directly after it.
#pragma push_macro("assert")
#pragma push_macro("errno")
#include <relacy/relacy.hpp>
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst
#undef VAR
#undef VAR_T
#undef TLS_T
#undef $
#pragma pop_macro("errno")
#pragma pop_macro("assert")

/// Replacements for the threads and atomics of the standard library in the headers under test. At
/// each step, relacy chooses the thread that continues. For each load, relacy chooses a value that
/// the C++ memory model permits.
namespace model {

/// The source location of a step, which the checker prints with an error.
class place {
 public:
  place(std::source_location where = std::source_location::current())  // NOLINT: made by default
      : info_(where.function_name(), where.file_name(), where.line()) {}
  operator rl::debug_info const&() const noexcept { return info_; }  // NOLINT: relacy's own type

 private:
  rl::debug_info info_;
};

/// Reports an error in this interleaving unless `holds` is true.
inline void require(bool holds, const char* what, const place& where = {}) {
  if (!holds) rl::ctx().fail_test(what, rl::test_result_user_assert_failed, where);
}

/// The threads that sleep in the kernel. Unlike relacy's own primitives, a wake-up does not order
/// memory accesses. The standard does not guarantee such an order, so no code may rely on it.
class sleepers {
 public:
  /// Puts the calling thread to sleep until it is woken.
  void sleep(const place& where) {
    rl::context& checker = rl::ctx();
    threads_[count_++] = checker.current_thread();
    checker.park_current_thread(false, false, false, where);
  }
  /// Wakes one sleeping thread, chosen by the checker.
  void wake_one(const place& where) {
    if (count_ == 0) return;
    rl::thread_id_t& one = threads_[rl::rand(static_cast<unsigned>(count_))];
    rl::ctx().unpark_thread(std::exchange(one, threads_[--count_]), false, where);
  }
  [[nodiscard]] bool are_some() const { return count_ != 0; }
  void wake_all(const place& where) {
    rl::context& checker = rl::ctx();
    while (count_ != 0) checker.unpark_thread(threads_[--count_], false, where);
  }

 private:
  std::array<rl::thread_id_t, 8> threads_{};
  std::size_t count_ = 0;
};

/// The part of the interface of `std::atomic` that the library uses.
template <class T>
class atomic {
 public:
  atomic() : atomic(T{}) {}
  atomic(T value) : value_(value) { values_[0] = value; }  // NOLINT: as the standard's
  atomic(const atomic&) = delete;
  atomic& operator=(const atomic&) = delete;

  T load(std::memory_order order = std::memory_order_seq_cst, const place& where = {}) const {
    return value_.load(relacys(order), where);
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst,
             const place& where = {}) {
    value_.store(value, relacys(order), where);
    record_write();
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst,
             const place& where = {}) {
    const T before = value_.rmw(rl::rmw_type_t<rl::rmw_type_swap>{}, value, relacys(order), where);
    record_write();
    return before;
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order success,
                               std::memory_order failure, const place& where = {}) {
    const bool is_swapped = value_.compare_exchange_strong(expected, value, relacys(success), where,
                                                           relacys(failure), where);
    if (is_swapped) record_write();
    return is_swapped;
  }
  T fetch_add(T by, std::memory_order order = std::memory_order_seq_cst, const place& where = {}) {
    const T before = value_.fetch_add(by, relacys(order), where);
    record_write();
    return before;
  }
  T fetch_sub(T by, std::memory_order order = std::memory_order_seq_cst, const place& where = {}) {
    const T before = value_.fetch_sub(by, relacys(order), where);
    record_write();
    return before;
  }

  /// Waits until the value differs from `old`. The last check and falling asleep are one step. The
  /// check may miss writes as far as `order` permits, but never writes that precede a notification,
  /// regardless of the woken thread. A futex behaves the same, because the kernel compares the word
  /// itself.
  void wait(T old, std::memory_order order = std::memory_order_seq_cst,
            const place& where = {}) const {
    while (load(order, where) == old) {
      if (was_since_notified(old)) {
        asleep_.sleep(where);
      } else {  // makes relacy never return to this thread a value that it has seen replaced
        rl::ctx().threadx_->last_yield_ = rl::ctx().threadx_->own_acq_rel_order_;
      }
    }
  }
  /// Waits like `wait`, but may give up at any time. A woken thread may also find that its deadline
  /// has passed. If the thread gives up after the wait, other threads may run before its next step.
  template <class Deadline>
  bool wait_until(T old, std::memory_order order, Deadline, const place& where = {}) const {
    const unsigned turn = rl::rand(3);
    if (turn == 0) return load(order, where) != old;
    wait(old, order, where);
    return turn == 1;
  }
  void notify(std::uint32_t count, const place& where = {}) {
    rl::ctx().sched();
    notified_ = writes_;
    for (; count != 0 && asleep_.are_some(); --count) asleep_.wake_one(where);
  }
  void notify_all(const place& where = {}) {
    rl::ctx().sched();
    notified_ = writes_;
    asleep_.wake_all(where);
  }

 private:
  static constexpr rl::memory_order relacys(std::memory_order order) noexcept {
    switch (order) {
      case std::memory_order_relaxed:
        return rl::mo_relaxed;
      case std::memory_order_consume:
        return rl::mo_consume;
      case std::memory_order_acquire:
        return rl::mo_acquire;
      case std::memory_order_release:
        return rl::mo_release;
      case std::memory_order_acq_rel:
        return rl::mo_acq_rel;
      case std::memory_order_seq_cst:
        break;
    }
    return rl::mo_seq_cst;
  }

  void record_write() { values_[++writes_ % values_.size()] = value_.debug_value(); }

  /// Returns true if the value was `old` at the last notification or later.
  bool was_since_notified(T old) const {
    for (std::size_t write = writes_; write + values_.size() > writes_; --write) {
      if (values_[write % values_.size()] == old) return true;
      if (write == notified_) break;
    }
    return false;
  }

  rl::atomic<T> value_;
  mutable sleepers asleep_;
  std::array<T, 4> values_{};  // the latest values; a relacy load chooses from fewer values
  std::size_t writes_ = 0;
  std::size_t notified_ = 0;  // number of writes before the last notification
};

/// The policy class that replaces `penstock::detail::std_atomics` in a model.
struct atomics {
  template <class T>
  using atomic = model::atomic<T>;
  using word = atomic<std::uint32_t>;

  // `pause` and `yield` guarantee nothing, so they do nothing here. The checker may switch threads
  // before every atomic operation anyway.
  static void pause() noexcept {}
  static void yield() noexcept {}
  static void fence(const place& where = {}) { rl::atomic_thread_fence(rl::mo_seq_cst, where); }
};

/// Fences for an eventcount in which the sleeping thread requests a barrier on all threads from the
/// kernel.
struct asymmetric_fences {
  static void light() noexcept {}
  static void heavy(const place& where = {}) { rl::systemwide_fence(where); }
};

/// A variable that is not atomic. The checker reports a data race for unordered accesses, at least
/// one of which is a write.
template <class T>
class plain {
 public:
  plain() : value_(T{}) {}
  explicit plain(T value) : value_(value) {}

  T get(const place& where = {}) const { return value_(where).load(); }
  void set(T value, const place& where = {}) { value_(where).store(value); }

 private:
  rl::var<T> value_;
};

/// A model of `std::mutex`.
class mutex {
 public:
  void lock() { mutex_.lock(place{}); }
  void unlock() { mutex_.unlock(place{}); }

 private:
  rl::mutex mutex_;
};

/// A model of `std::condition_variable`. A wait with a deadline may time out at any time.
class condition_variable {
 public:
  using lock_type = std::unique_lock<mutex>;

  void wait(lock_type& lock, const place& where = {}) {
    lock_of_relacy of{lock};
    changed_.wait(of, where);
  }
  template <class Moment>
  void wait_until(lock_type& lock, Moment until, const place& where = {}) {
    lock_of_relacy of{lock};
    changed_.wait_until(of, until, where);
  }
  void notify_one(const place& where = {}) { changed_.notify_one(where); }
  void notify_all(const place& where = {}) { changed_.notify_all(where); }

 private:
  struct lock_of_relacy {
    lock_type& held;
    void lock(const rl::debug_info&) { held.lock(); }
    void unlock(const rl::debug_info&) { held.unlock(); }
  };
  rl::condition_variable changed_;
};

/// The base of a scenario. Each interleaving creates an object, runs `thread(index)` on each of
/// `Threads` threads, and then runs `after()` if the class has it.
template <class Scenario, int Threads>
using scenario = rl::test_suite<Scenario, Threads>;

// ---- running scenarios

/// The method that selects the interleavings of a scenario.
enum class choice {
  all,      ///< all interleavings; a load may return a value one write old
  bounded,  ///< as `all`, but with at most `bound` preemptions
  random,   ///< random interleavings; a load may return a value two writes old
};

struct settings {
  std::uint64_t random = 20'000;  ///< number of random interleavings
  bool is_random_only = false;
};

struct outcome {
  rl::test_result_e result;
  std::uint64_t interleavings;
  std::string report;
};

struct check {
  std::string_view name;
  std::string_view type;
  choice by;
  unsigned bound;
  outcome (*run)(unsigned bound, std::uint64_t random);
};

namespace detail {

template <class Scenario, rl::scheduler_type_e Type, class Scheduler>
outcome run(unsigned bound, std::uint64_t random) {
  // A relacy string stream, because relacy tracks all other memory during a run.
  rl::ostringstream nowhere;
  rl::ostringstream report;
  rl::test_params params;
  params.search_type = Type;
  params.context_bound = bound;
  params.iteration_count = random;
  params.execution_depth_limit = 20'000;
  params.progress_stream = &nowhere;
  params.output_stream = &report;
  rl::ostringstream state;
  auto result = rl::run_test<Scenario, Scheduler>(params, state, false);
  const std::uint64_t interleavings = params.stop_iteration;
  // Repeats the failing interleaving and records each step.
  if (result != rl::test_result_success) {
    params.initial_state = state.str();
    params.collect_history = true;
    rl::ostringstream unused;
    result = rl::run_test<Scenario, Scheduler>(params, unused, true);
  }
  return {result, interleavings, std::string{report.str().c_str()}};
}

/// Returns the name of the scenario's type.
template <class Scenario>
constexpr std::string_view type_name() {
  // The name has the form "... [with Scenario = {anonymous}::NAME; ...".
  std::string_view name = __PRETTY_FUNCTION__;
  name = name.substr(0, name.find_first_of(";]", name.find("Scenario = ")));
  return name.substr(name.rfind(':') + 1);
}

template <class Scenario, rl::scheduler_type_e Type, class Scheduler>
check made(std::string_view name, choice by, unsigned bound) {
  return {name, type_name<Scenario>(), by, bound, &run<Scenario, Type, Scheduler>};
}

}  // namespace detail

template <class Scenario>
check in_all(std::string_view name) {
  using scheduler = rl::full_search_scheduler<Scenario::params::thread_count>;
  return detail::made<Scenario, rl::sched_full, scheduler>(name, choice::all, 0);
}
template <class Scenario>
check with_interruptions(std::string_view name, unsigned bound) {
  using scheduler = rl::context_bound_scheduler<Scenario::params::thread_count>;
  return detail::made<Scenario, rl::sched_bound, scheduler>(name, choice::bounded, bound);
}
template <class Scenario>
check at_random(std::string_view name) {
  using scheduler = rl::random_scheduler<Scenario::params::thread_count>;
  return detail::made<Scenario, rl::sched_random, scheduler>(name, choice::random, 0);
}

/// The `main` function of a model. Without arguments, runs all checks, stops at the first error,
/// and prints the steps that led to it. `find TEXT` fails unless an error's kind or message
/// contains TEXT. `only TYPE` runs the checks of one scenario. `random N` runs only random checks,
/// each with N interleavings.
inline int run(int argc, char** argv, std::initializer_list<check> checks) {
  settings how;
  std::string expected;
  std::string_view only;
  for (int at = 1; at + 1 < argc; at += 2) {
    const std::string_view option = argv[at];
    if (option == "find") {
      expected = argv[at + 1];
    } else if (option == "only") {
      only = argv[at + 1];
    } else if (option == "random") {
      how = {std::strtoull(argv[at + 1], nullptr, 10), true};
    } else {
      argc = 0;
    }
  }
  if (argc % 2 == 0 || how.random == 0) {
    std::cerr << "usage: [find TEXT] [only TYPE] [random N]\n";
    return 2;
  }
  int ran = 0;
  for (const check& each : checks) {
    if (!only.empty() && each.type != only) continue;
    if (how.is_random_only && each.by != choice::random) continue;
    ++ran;
    const auto begin = std::chrono::steady_clock::now();
    const outcome got = each.run(each.bound, how.random);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << each.name << ": " << got.interleavings << " interleavings, ";
    if (each.by == choice::all) std::cout << "every one";
    if (each.by == choice::bounded)
      std::cout << "every one with " << each.bound << " interruptions";
    if (each.by == choice::random) std::cout << "by lot";
    std::cout << ", " << took.count() << " s" << std::endl;
    if (got.result == rl::test_result_success) continue;
    const std::string_view first{got.report.data(),
                                 std::min(got.report.size(), got.report.find('\n'))};
    if (!expected.empty() && first.find(expected) != std::string_view::npos) {
      std::cout << "found, as expected: " << first << '\n';
      return 0;
    }
    std::cout << got.report << "\nFOUND: " << first << '\n';
    return 1;
  }
  if (expected.empty() && ran != 0) return 0;
  std::cout << "NOT FOUND: " << expected << '\n';
  return 1;
}

}  // namespace model
