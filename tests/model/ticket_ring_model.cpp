// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/threads/support/ticket_ring.hpp>

namespace {

/// A ticket of two words, which detects a write during a read.
struct ticket {
  std::uint64_t name;
  std::uint64_t again;
};
using ring_of_tickets = penstock::detail::ticket_ring<ticket, model::atomics>;

/// `Producers` threads try to push `Each` tickets each, and `Consumers` threads try to pop `Pops`
/// times each. The remaining tickets are popped at the end. Positions start shortly before they
/// wrap around.
template <class Scenario, unsigned Producers, unsigned Consumers, std::uint64_t Each,
          std::size_t Capacity, int Pops = 2>
struct trying : model::scenario<Scenario, static_cast<int>(Producers + Consumers)> {
  static constexpr std::uint64_t max = Producers * Each;

  ring_of_tickets ring{Capacity, ~std::uint64_t{0}};
  std::array<model::plain<bool>, max> is_pushed{};
  std::array<model::plain<bool>, max> is_popped{};
  std::array<bool, max> is_accepted{};  // the producer writes it; read at the end
  std::array<std::array<std::uint64_t, Producers>, Consumers + 1> next{};

  bool push(std::uint64_t name) {
    is_pushed[name].set(true);
    return is_accepted[name] = ring.try_push({name, ~name});
  }
  bool pop(unsigned consumer) {
    ticket got{};
    if (!ring.try_pop(got)) return false;
    model::require(got.name < max && got.again == ~got.name && is_pushed[got.name].get(),
                   "a ticket comes as it was pushed");
    model::require(!is_popped[got.name].get(), "no ticket is popped twice");
    is_popped[got.name].set(true);
    std::uint64_t& min = next[consumer][got.name / Each];
    model::require(got.name % Each >= min, "a producer's tickets come in order");
    min = got.name % Each + 1;
    return true;
  }

  void thread(unsigned index) {
    if (index < Producers) {
      for (std::uint64_t i = 0; i != Each; ++i) push(index * Each + i);
    } else {
      for (int i = 0; i != Pops; ++i) pop(index - Producers);
    }
  }
  void after() {
    std::size_t left = 0;
    while (pop(Consumers)) ++left;
    model::require(left <= Capacity, "no more than the capacity is in the ring");
    model::require(ring.was_empty(), "a ring whose pops fail is empty");
    for (std::uint64_t name = 0; name != max; ++name) {
      model::require(is_accepted[name] == is_popped[name].get(),
                     "every ticket is popped, no other");
    }
    // After any interleaving, the ring behaves like a new ring.
    for (int lap = 0; lap != 3; ++lap) {
      for (std::size_t i = 0; i != Capacity; ++i) {
        model::require(ring.try_push({0, 0}), "there is room");
      }
      model::require(!ring.try_push({0, 0}), "no more than the capacity is in the ring");
      for (std::size_t i = 0; i != Capacity; ++i) {
        ticket got{};
        model::require(ring.try_pop(got), "what fits comes out");
      }
    }
  }
};

struct laps : trying<laps, 1, 1, 4, 1, 4> {};
struct two_producers : trying<two_producers, 2, 0, 2, 1> {};
struct two_to_one : trying<two_to_one, 2, 1, 2, 2> {};
struct tight : trying<tight, 2, 1, 2, 1, 3> {};
struct one_to_two : trying<one_to_two, 1, 2, 3, 2> {};
struct two_to_two : trying<two_to_two, 2, 2, 3, 2, 3> {};
struct three_to_one : trying<three_to_one, 3, 1, 2, 3, 4> {};

/// Exactly one of two producers finds room for its ticket.
struct last_place : model::scenario<last_place, 2> {
  ring_of_tickets ring{1};
  std::array<bool, 2> is_in{};

  void thread(unsigned index) { is_in[index] = ring.try_push({index, ~std::uint64_t{index}}); }
  void after() { model::require(is_in[0] != is_in[1], "one of them gets the last place"); }
};

/// Each thread pushes a ticket and then pops one, so a pop always finds a ticket.
template <class Scenario, int Threads, std::size_t Capacity>
struct there_and_back : model::scenario<Scenario, Threads> {
  ring_of_tickets ring{Capacity};

  void thread(unsigned index) {
    model::require(ring.try_push({index, ~std::uint64_t{index}}), "there is room");
    ticket got{};
    model::require(ring.try_pop(got), "a thread that has pushed can pop");
    model::require(got.again == ~got.name, "a ticket comes as it was pushed");
  }
};
struct two_there_and_back : there_and_back<two_there_and_back, 2, 3> {};
struct three_there_and_back : there_and_back<three_there_and_back, 3, 5> {};

/// A thread that observes a pop by another thread finds room.
struct room_after_pop : model::scenario<room_after_pop, 2> {
  ring_of_tickets ring{1};
  std::array<model::atomic<std::uint32_t>, 1> popped;

  void before() { model::require(ring.try_push({1, 1}), "there is room"); }
  void thread(unsigned index) {
    ticket got{};
    if (index == 0) {
      model::require(ring.try_pop(got) && got.name == 1, "what was pushed before is there");
      popped[0].store(1, std::memory_order_release);
    } else if (popped[0].load(std::memory_order_acquire) == 1) {
      model::require(ring.try_push({2, 2}), "there is room");
    } else {
      ring.try_push({3, 3});
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(
      argc, argv,
      {
          model::with_interruptions<last_place>("the last place", 4),
          model::in_all<room_after_pop>("room after a pop"),
          model::with_interruptions<laps>("laps of one producer, one consumer", 3),
          model::with_interruptions<two_producers>("two producers", 3),
          model::with_interruptions<tight>("two producers, one consumer, one place", 2),
          model::with_interruptions<one_to_two>("one producer, two consumers", 2),
          model::with_interruptions<two_there_and_back>("two push and pop", 3),
          model::at_random<three_there_and_back>("three push and pop"),
          model::at_random<laps>("laps of one producer, one consumer"),
          model::at_random<tight>("two producers, one consumer, one place"),
          model::at_random<two_to_one>("two producers, one consumer"),
          model::at_random<two_to_two>("two producers, two consumers"),
          model::at_random<three_to_one>("three producers, one consumer"),
      });
}
