// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/threads/support/waitable_counter.hpp>

namespace {

using waitable_counter = penstock::detail::basic_waitable_counter<model::atomics>;

/// One thread writes a value and then the word that announces it. The other thread waits for the
/// word.
struct announced_value : model::scenario<announced_value, 2> {
  model::plain<int> payload;
  waitable_counter word;

  void thread(unsigned index) {
    if (index == 0) {
      payload.set(7);
      word.store(1);
    } else {
      word.wait([](std::uint32_t now) { return now == 1; });
      model::require(payload.get() == 7, "what was written before the store is there");
    }
  }
};

/// Two threads increment the counter, and one thread waits for both.
struct two_writers : model::scenario<two_writers, 3> {
  std::array<model::plain<int>, 2> payload;
  waitable_counter count;

  void thread(unsigned index) {
    if (index < 2) {
      payload[index].set(7);
      count.advance();
    } else {
      count.wait([](std::uint32_t now) { return now == 2; });
      model::require(payload[0].get() == 7 && payload[1].get() == 7, "both payloads are there");
    }
  }
};

/// A single store must wake all waiters.
struct two_waiters : model::scenario<two_waiters, 3> {
  model::plain<int> payload;
  waitable_counter word;

  void thread(unsigned index) {
    if (index == 0) {
      payload.set(7);
      word.store(1);
    } else {
      word.wait([](std::uint32_t now) { return now != 0; });
      model::require(payload.get() == 7, "what was written before the store is there");
    }
  }
};

/// Quiet steps wake no thread. A later call of `wake` wakes the waiter.
struct quiet_steps : model::scenario<quiet_steps, 2> {
  model::plain<int> payload;
  waitable_counter count;

  void thread(unsigned index) {
    if (index == 0) {
      payload.set(7);
      count.advance_quietly();
      count.advance_quietly();
      count.wake();
    } else {
      count.wait([](std::uint32_t now) { return now == 2; });
      model::require(payload.get() == 7, "what was written before the steps is there");
    }
  }
};

/// One thread advances the counter and another thread wakes the waiter. Any thread that sees the
/// new value may wake it.
struct wake_of_another : model::scenario<wake_of_another, 3> {
  waitable_counter count;
  model::atomic<bool> is_requested{false};

  // One thread advances the counter and then checks for a request. Another thread posts the request
  // and then calls `wake`. The slot ring uses the same protocol.
  void thread(unsigned index) {
    if (index == 0) {
      count.advance_quietly();
      if (is_requested.load(std::memory_order_seq_cst)) count.wake();
    } else if (index == 1) {
      is_requested.store(true, std::memory_order_seq_cst);
      count.wake();
    } else {
      count.wait([](std::uint32_t now) { return now == 1; });
    }
  }
};

/// A wait may end because of a condition other than the value. The condition is written before the
/// step.
struct end_of_waiting : model::scenario<end_of_waiting, 2> {
  model::plain<int> reason;
  model::atomic<bool> has_ended{false};
  waitable_counter word;

  void thread(unsigned index) {
    if (index == 0) {
      reason.set(7);
      has_ended.store(true, std::memory_order_release);
      word.advance();
    } else {
      word.wait([this](std::uint32_t now) {
        return now == 7 || has_ended.load(std::memory_order_acquire);
      });
      if (has_ended.load(std::memory_order_acquire)) {
        model::require(reason.get() == 7, "the reason is there");
      }
    }
  }
};

/// Two threads pass a payload back and forth.
struct back_and_forth : model::scenario<back_and_forth, 2> {
  static constexpr std::uint32_t turns = 3;
  model::plain<std::uint32_t> payload;
  std::array<waitable_counter, 2> word;

  void thread(unsigned index) {
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      if (turn != 0 || index != 0) {
        const std::uint32_t expected = turn + index;
        word[index].wait([expected](std::uint32_t now) { return now == expected; });
        model::require(payload.get() == 2 * turn + index, "the other's turn is there");
      }
      payload.set(payload.get() + 1);
      word[1 - index].store(turn + 1);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::in_all<announced_value>("a value announced to one thread"),
                        model::in_all<quiet_steps>("quiet steps, then a wake-up"),
                        model::in_all<end_of_waiting>("the end of waiting"),
                        model::with_interruptions<two_waiters>("two threads wait for one store", 4),
                        model::with_interruptions<two_writers>("one thread waits for two", 4),
                        model::with_interruptions<wake_of_another>("another wakes for the step", 4),
                        model::with_interruptions<back_and_forth>("back and forth", 3),
                        model::at_random<two_waiters>("two threads wait for one store"),
                        model::at_random<two_writers>("one thread waits for two"),
                        model::at_random<wake_of_another>("another wakes for the step"),
                        model::at_random<back_and_forth>("back and forth"),
                    });
}
