// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/threads/batch_queue.hpp>

namespace {

/// Payloads that tickets refer to. Records the pushed and popped tickets.
template <std::uint32_t Tickets>
struct payloads {
  std::array<model::plain<std::uint32_t>, Tickets> written{};
  std::array<model::plain<bool>, Tickets> is_popped{};

  void record_pop(std::uint32_t ticket) {
    model::require(ticket < Tickets && written[ticket].get() == ticket + 1,
                   "what was written before the push is there");
    model::require(!is_popped[ticket].get(), "no ticket is popped twice");
    is_popped[ticket].set(true);
  }
  void require_all() const {
    for (const auto& one : is_popped) model::require(one.get(), "every ticket is popped");
  }
};

/// A ring with only the guarantees of a single-producer, single-consumer ring: each thread advances
/// its own end with release and acquire. The ring replaces Boost's ring to check the eventcount.
template <class T, class Atomics>
class ordinary_ring {
 public:
  explicit ordinary_ring(std::size_t capacity) : capacity_(static_cast<std::uint32_t>(capacity)) {}
  bool try_push(const T& ticket) {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == capacity_) return false;
    tickets_[tail % 4].set(ticket);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  bool try_pop(T& ticket) {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (tail_.load(std::memory_order_acquire) == head) return false;
    ticket = tickets_[head % 4].get();
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

 private:
  std::uint32_t capacity_;
  std::array<model::plain<T>, 4> tickets_{};
  typename Atomics::template atomic<std::uint32_t> tail_{0};
  typename Atomics::template atomic<std::uint32_t> head_{0};
};

/// A queue for one producer and one consumer that uses `Fences`.
template <class Fences>
struct one_each {
  template <class T, class Atomics>
  using ring = ordinary_ring<T, Atomics>;
  template <class Atomics>
  using eventcount = penstock::detail::basic_eventcount<Atomics, Fences>;
  static constexpr bool is_ordered = false;
};

template <class Threads = penstock::many_producers_many_consumers>
using queue_of = penstock::batch_queue<std::uint32_t, Threads, model::atomics>;
using queue = queue_of<>;

/// Each of `Producers` threads pushes, and each of `Consumers` threads pops, an equal share of the
/// tickets. All threads use blocking calls.
template <class Scenario, int Producers, int Consumers, std::uint32_t Tickets, std::size_t Capacity,
          class Queue = queue>
struct flow : model::scenario<Scenario, Producers + Consumers> {
  payloads<Tickets> known;
  Queue tickets{Capacity};

  void thread(unsigned index) {
    if (index < Producers) {
      constexpr std::uint32_t each = Tickets / Producers;
      for (std::uint32_t ticket = index * each; ticket != (index + 1) * each; ++ticket) {
        known.written[ticket].set(ticket + 1);
        model::require(tickets.push(ticket), "an open queue takes a ticket");
      }
    } else {
      for (std::uint32_t i = 0; i != Tickets / Consumers; ++i) {
        const auto ticket = tickets.pop();
        model::require(ticket.has_value(), "an open queue gives a ticket");
        known.record_pop(*ticket);
      }
    }
  }
  void after() { known.require_all(); }
};

struct one_to_one : flow<one_to_one, 1, 1, 2, 1> {};
struct two_to_one : flow<two_to_one, 2, 1, 2, 1> {};
struct one_to_two : flow<one_to_two, 1, 2, 2, 1> {};
struct two_to_two : flow<two_to_two, 2, 2, 8, 2> {};
using symmetric = one_each<penstock::detail::symmetric_fences<model::atomics>>;
using asymmetric = one_each<model::asymmetric_fences>;
struct by_fences : flow<by_fences, 1, 1, 2, 1, queue_of<symmetric>> {};
struct by_asymmetric_fences : flow<by_asymmetric_fences, 1, 1, 2, 1, queue_of<asymmetric>> {};

/// The producer closes the queue after its last ticket. The consumers receive every ticket and then
/// the end.
template <class Scenario, int Consumers, std::uint32_t Tickets>
struct closing : model::scenario<Scenario, 1 + Consumers> {
  payloads<Tickets> known;
  queue tickets{Tickets};

  void thread(unsigned index) {
    if (index == 0) {
      for (std::uint32_t ticket = 0; ticket != Tickets; ++ticket) {
        known.written[ticket].set(ticket + 1);
        model::require(tickets.try_push(ticket), "there is room");
      }
      tickets.close();
    } else {
      while (const auto ticket = tickets.pop()) known.record_pop(*ticket);
    }
  }
  void after() { known.require_all(); }
};

struct close_one : closing<close_one, 1, 1> {};
struct close_two : closing<close_two, 2, 1> {};
struct close_many : closing<close_many, 3, 4> {};

/// A producer sleeps on a full queue while another thread closes the queue.
struct cancelled_push : model::scenario<cancelled_push, 2> {
  queue tickets{1};

  void before() { model::require(tickets.try_push(0), "there is room"); }
  void thread(unsigned index) {
    if (index == 0) {
      model::require(!tickets.push(1), "a closed queue takes none");
    } else {
      tickets.close();
    }
  }
};

/// Pushes tickets quietly and then wakes the consumer once.
struct quiet_pushes : model::scenario<quiet_pushes, 2> {
  payloads<2> known;
  queue tickets{2};

  void thread(unsigned index) {
    for (std::uint32_t i = 0; i != 2; ++i) {
      if (index == 0) {
        known.written[i].set(i + 1);
        model::require(tickets.try_push_quietly(i), "there is room");
      } else {
        const auto ticket = tickets.pop();
        model::require(ticket == i, "tickets come in order");
        known.record_pop(*ticket);
      }
    }
    if (index == 0) tickets.wake_poppers();
  }
};

constexpr std::chrono::steady_clock::time_point whenever{};  // the checker chooses when it passes

/// One consumer waits with a deadline, and another waits without a deadline.
struct pop_gives_up : model::scenario<pop_gives_up, 3> {
  payloads<2> known;
  queue tickets{2};

  void thread(unsigned index) {
    if (index == 0) {
      for (std::uint32_t ticket = 0; ticket != 2; ++ticket) {
        known.written[ticket].set(ticket + 1);
        model::require(tickets.try_push(ticket), "there is room");
      }
    } else if (index == 1) {
      const auto ticket = tickets.pop();
      model::require(ticket.has_value(), "an open queue gives a ticket");
      known.record_pop(*ticket);
    } else {
      const auto got = tickets.pop_until(whenever);
      model::require(!got.closed(), "an open queue is not closed");
      if (got) known.record_pop(*got);
    }
  }
  void after() {
    while (const auto ticket = tickets.try_pop()) known.record_pop(*ticket);
    known.require_all();
  }
};

/// One producer waits for room with a deadline, and another waits without a deadline.
struct push_gives_up : model::scenario<push_gives_up, 3> {
  payloads<3> known;
  queue tickets{1};
  model::plain<bool> is_in{false};

  void before() {
    known.written[0].set(1);
    model::require(tickets.try_push(0), "there is room");
  }
  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 0; i != 2; ++i) {
        const auto ticket = tickets.pop();
        model::require(ticket.has_value(), "an open queue gives a ticket");
        known.record_pop(*ticket);
      }
    } else if (index == 1) {
      known.written[1].set(2);
      model::require(tickets.push(1), "an open queue takes a ticket");
    } else {
      known.written[2].set(3);
      const auto end = tickets.push_until(2, whenever);
      model::require(end != penstock::wait_status::closed, "an open queue is not closed");
      is_in.set(end == penstock::wait_status::done);
    }
  }
  void after() {
    while (const auto ticket = tickets.try_pop()) known.record_pop(*ticket);
    model::require(known.is_popped[2].get() == is_in.get(), "what was not pushed is not there");
    model::require(known.is_popped[0].get() && known.is_popped[1].get(), "every ticket is popped");
  }
};

/// The queue is closed after one ticket while a consumer waits with a deadline.
struct closed_for_a_while : model::scenario<closed_for_a_while, 2> {
  payloads<1> known;
  queue tickets{1};

  void thread(unsigned index) {
    if (index == 0) {
      known.written[0].set(1);
      model::require(tickets.try_push(0), "there is room");
      tickets.close();
      return;
    }
    const auto got = tickets.pop_until(whenever);
    model::require(!got.closed(), "a closed queue gives what is left");
    if (got) known.record_pop(*got);
    if (got.timed_out()) known.record_pop(*tickets.pop());
    model::require(tickets.pop_until(whenever).status() != penstock::wait_status::done,
                   "nothing is popped twice");
  }
  void after() { known.require_all(); }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(
      argc, argv,
      {
          model::with_interruptions<cancelled_push>("a push into a full queue is cancelled", 4),
          model::with_interruptions<close_one>("closed after a ticket", 3),
          model::with_interruptions<quiet_pushes>("quiet pushes, then a wake-up", 3),
          model::with_interruptions<pop_gives_up>("a pop gives up beside another one", 2),
          model::with_interruptions<push_gives_up>("a push gives up beside another one", 1),
          model::with_interruptions<closed_for_a_while>("closed, or given up", 2),
          model::with_interruptions<one_to_one>("one producer, one consumer", 2),
          model::with_interruptions<by_fences>("an ordinary ring", 2),
          model::with_interruptions<by_asymmetric_fences>("asymmetric fences", 2),
          model::with_interruptions<close_two>("closed, two consumers", 2),
          model::with_interruptions<two_to_one>("two producers, one consumer", 1),
          model::with_interruptions<one_to_two>("one producer, two consumers", 1),
          model::at_random<two_to_two>("two producers, two consumers"),
          model::at_random<close_many>("closed, three consumers"),
          model::at_random<by_fences>("an ordinary ring"),
          model::at_random<by_asymmetric_fences>("asymmetric fences"),
          model::at_random<cancelled_push>("a push into a full queue is cancelled"),
          model::at_random<pop_gives_up>("a pop gives up beside another one"),
          model::at_random<push_gives_up>("a push gives up beside another one"),
          model::at_random<closed_for_a_while>("closed, or given up"),
          model::at_random<quiet_pushes>("quiet pushes, then a wake-up"),
      });
}
