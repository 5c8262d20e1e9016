// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock_ext/results/detail/result_queue.hpp>

namespace {

using turns_type = penstock::detail::result_queue;

/// A loop that submits batches, and workers that copy and consume them, as in `results`. Slot
/// memory is not atomic, so unordered accesses are data races.
template <int Batches, std::size_t DeviceSlots, std::size_t HostSlots>
struct way_back {
  turns_type turns{DeviceSlots, HostSlots};
  model::plain<int> device_memory[DeviceSlots];
  model::plain<int> host_memory[HostSlots];
  model::plain<int> last;    // number of the last consumed batch
  model::plain<int> copied;  // models the order of the copy stream
  model::plain<int> marks;   // ends of copies on the copy stream
  model::plain<int> by_worker[2];

  /// Acquires and submits a slot. Returns false if the queue is closed.
  bool step(int number) {
    const auto got = turns.acquire([] { return false; }, true);
    if (got.what != turns_type::outcome::slot) return false;
    device_memory[got.slot].set(number);
    return turns.submit(got.slot);
  }
  void queue_copies() {
    for (const turns_type::job& queued : turns.copying()) {
      const int number = device_memory[queued.device_slot].get();
      model::require(number == copied.get() + 1, "copies are queued one at a time, in order");
      copied.set(number);
      host_memory[queued.host_slot].set(number);
    }
    mark_copies();
  }
  /// Gives all copies that are queued together the same end.
  void mark_copies() {
    marks.set(marks.get() + 1);
    for (turns_type::job& queued : turns.copying()) {
      queued.end = static_cast<std::uint64_t>(marks.get());
    }
    turns.record_copies();
  }
  /// Copies and consumes batches until the end or until `fails_after` batches are consumed.
  void work(int worker, bool in_order, int fails_after = -1) {
    for (;;) {
      const auto next = turns.next();
      if (next.what == turns_type::step::end) return;
      model::require(next.what != turns_type::step::stuck, "no lease is kept");
      if (next.what == turns_type::step::copy) {
        queue_copies();
        continue;
      }
      if (fails_after == by_worker[worker].get()) return turns.fail();
      consume(next, worker, in_order);
    }
  }
  void consume(const turns_type::job& next, int worker, bool in_order) {
    const int number = host_memory[next.host_slot].get();
    turns.record_arrival(next);
    if (in_order) {
      model::require(number == last.get() + 1, "one worker consumes in order");
      last.set(number);
    }
    by_worker[worker].set(by_worker[worker].get() + 1);
    host_memory[next.host_slot].set(0);
    turns.on_release(next.host_slot);
    turns.record_consumed();
  }
  /// Copies batches and calls `delivered`, which may release or keep the lease. Returns the last
  /// task.
  template <class Delivered>
  turns_type::step keep(const Delivered& delivered) {
    for (;;) {
      const auto next = turns.next();
      if (next.what == turns_type::step::copy) {
        mark_copies();
        continue;
      }
      if (next.what != turns_type::step::deliver) return next.what;
      turns.record_arrival(next);
      delivered(next);
      turns.record_consumed();
    }
  }
  void require_all() const {
    model::require(by_worker[0].get() + by_worker[1].get() == Batches, "each batch is consumed");
  }
};

/// A single worker consumes more batches than there are slots.
struct one_worker : model::scenario<one_worker, 2>, way_back<3, 1, 1> {
  void thread(unsigned index) {
    if (index == 1) return work(0, true);
    for (int i = 1; i <= 3; ++i) model::require(step(i), "taken");
    turns.close();
  }
  void after() { require_all(); }
};

/// Two workers consume the batches.
struct two_workers : model::scenario<two_workers, 3>, way_back<2, 2, 2> {
  void thread(unsigned index) {
    if (index != 0) return work(static_cast<int>(index) - 1, false);
    for (int i = 1; i <= 2; ++i) model::require(step(i), "taken");
    turns.close();
  }
  void after() { require_all(); }
};

/// A slot is free as soon as the copy out of it is complete, even if the consumer is still running.
struct taken_meanwhile : model::scenario<taken_meanwhile, 2>, way_back<2, 1, 2> {
  penstock::detail::waitable_counter is_taken;

  void thread(unsigned index) {
    if (index == 0) {
      model::require(step(1) && step(2), "taken");
      is_taken.advance();
      turns.close();
      return;
    }
    keep([&](const turns_type::job& delivered) {
      is_taken.wait([](std::uint32_t now) { return now != 0; });
      turns.on_release(delivered.host_slot);
    });
  }
};

/// Two copies end together, so their slots are free while the consumer of the first still runs.
struct copied_together : model::scenario<copied_together, 2>, way_back<2, 2, 2> {
  penstock::detail::waitable_counter are_sent;
  penstock::detail::waitable_counter are_taken;

  void thread(unsigned index) {
    const auto is_set = [](std::uint32_t now) { return now != 0; };
    if (index == 0) {
      model::require(step(1) && step(2), "taken");
      are_sent.advance();
      const auto take = [&] { return turns.acquire([] { return false; }, true); };
      const auto first = take();
      const auto second = take();
      model::require(first.slot != second.slot, "two slots are free");
      are_taken.advance();
      turns.close();
      return;
    }
    are_sent.wait(is_set);
    keep([&](const turns_type::job& delivered) {
      are_taken.wait(is_set);
      turns.on_release(delivered.host_slot);
    });
  }
};

/// Two batches are consumed at the same time, even if their copies are queued together.
struct consumed_together : model::scenario<consumed_together, 3>, way_back<2, 2, 2> {
  penstock::detail::waitable_counter begun;

  void thread(unsigned index) {
    if (index == 0) {
      model::require(step(1) && step(2), "taken");
      turns.close();
      return;
    }
    keep([&](const turns_type::job& delivered) {
      begun.advance();
      begun.wait([](std::uint32_t now) { return now == 2; });
      turns.on_release(delivered.host_slot);
    });
  }
};

/// A worker that waits for a copy queues the copies of later batches. A second worker may work at
/// the same time.
template <int Workers>
struct napping : model::scenario<napping<Workers>, 1 + Workers>, way_back<2, 2, 2> {
  void thread(unsigned index) {
    if (index == 0) {
      model::require(step(1) && step(2), "taken");
      turns.close();
      return;
    }
    for (;;) {
      const auto next = turns.next();
      if (next.what == turns_type::step::end) return;
      if (next.what == turns_type::step::copy) {
        queue_copies();
        continue;
      }
      if (turns.wait_for_copies(std::chrono::microseconds{1})) queue_copies();
      consume(next, static_cast<int>(index) - 1, Workers == 1);
    }
  }
  void after() { require_all(); }
};

/// The loop waits for the last batch before it continues.
struct finished : model::scenario<finished, 2>, way_back<2, 2, 1> {
  void thread(unsigned index) {
    if (index == 1) return work(0, true);
    for (int i = 1; i <= 2; ++i) {
      model::require(step(i), "taken");
      model::require(turns.finish([] { return false; }), "finished");
      model::require(by_worker[0].get() == i, "consumed by then");
    }
    turns.close();
  }
  void after() { require_all(); }
};

/// A consumer throws. The loop and the other worker must end.
struct failing : model::scenario<failing, 3>, way_back<3, 1, 1> {
  void thread(unsigned index) {
    if (index != 0) return work(static_cast<int>(index) - 1, false, index == 1 ? 0 : -1);
    int number = 1;
    while (number <= 3 && step(number)) ++number;
    turns.finish([] { return false; });
    turns.close();
  }
};

/// A consumer keeps its lease until another thread releases it. The loop waits for the release.
struct kept : model::scenario<kept, 3>, way_back<2, 1, 1> {
  penstock::detail::waitable_counter is_kept;

  void thread(unsigned index) {
    if (index == 0) {
      for (int i = 1; i <= 2; ++i) model::require(step(i), "taken");
      turns.finish([] { return false; });
      turns.close();
    } else if (index == 1) {
      keep([&](const turns_type::job&) { is_kept.advance(); });
    } else {
      for (std::uint32_t i = 1; i <= 2; ++i) {
        is_kept.wait([&](std::uint32_t now) { return now >= i; });
        turns.on_release(0);
      }
    }
  }
};

/// Tests `acquire` and `finish` in the mode that does not wait for a kept lease. Closing never
/// waits for a kept lease.
struct held : model::scenario<held, 2>, way_back<2, 1, 1> {
  void thread(unsigned index) {
    if (index == 0) {
      model::require(step(1) && step(2), "taken");
      model::require(turns.acquire([] { return false; }, false).what == turns_type::outcome::held,
                     "held");
      model::require(!turns.finish([] { return true; }), "not finished");
      turns.close();
      return;
    }
    bool is_first = true;
    const auto last_task = keep([&](const turns_type::job&) {
      model::require(std::exchange(is_first, false), "one batch is delivered");
    });
    model::require(last_task == turns_type::step::stuck, "stuck is told");
  }
};

/// A stop is requested while the loop waits for a slot.
struct stopped : model::scenario<stopped, 2>, way_back<1, 1, 1> {
  penstock::detail::std_atomics::atomic<bool> is_requested{false};

  void thread(unsigned index) {
    if (index == 0) {
      model::require(step(1), "taken");
      const auto got =
          turns.acquire([&] { return is_requested.load(std::memory_order_acquire); }, true);
      model::require(got.what == turns_type::outcome::stopped, "stopped");
    } else {
      is_requested.store(true, std::memory_order_release);
      turns.wake();
    }
  }
};

/// A stop is requested while the loop waits for the release of a kept lease.
struct finish_stopped : model::scenario<finish_stopped, 3>, way_back<2, 2, 1> {
  penstock::detail::std_atomics::atomic<bool> is_requested{false};

  void thread(unsigned index) {
    if (index == 0) {
      model::require(step(1) && step(2), "taken");
      model::require(!turns.finish([&] { return is_requested.load(std::memory_order_acquire); }),
                     "not finished");
      turns.close();
    } else if (index == 1) {
      keep([](const turns_type::job&) {});
    } else {
      is_requested.store(true, std::memory_order_release);
      turns.wake();
    }
  }
};

/// The loop acquires more slots than exist.
struct all_taken : model::scenario<all_taken, 2>, way_back<1, 2, 1> {
  void thread(unsigned index) {
    if (index == 1) return work(0, true);
    const auto take = [&] { return turns.acquire([] { return false; }, true); };
    const auto first = take();
    const auto second = take();
    model::require(take().what == turns_type::outcome::all_taken, "all are taken");
    turns.put_back(second.slot);
    device_memory[first.slot].set(1);
    model::require(turns.submit(first.slot), "handed in");
    model::require(take().what == turns_type::outcome::slot, "taken");
    // The loop holds one slot. The other slot is returned after its copy.
    model::require(take().what == turns_type::outcome::slot, "taken");
    turns.close();
  }
  void after() { require_all(); }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(
      argc, argv,
      {model::with_interruptions<one_worker>("one worker", 2),
       model::with_interruptions<two_workers>("two workers", 1),
       model::with_interruptions<taken_meanwhile>("taken meanwhile", 2),
       model::with_interruptions<copied_together>("copied together", 2),
       model::with_interruptions<consumed_together>("consumed together", 1),
       model::with_interruptions<napping<1>>("napping", 2),
       model::at_random<napping<2>>("napping beside another"),
       model::with_interruptions<finished>("finished", 2),
       model::with_interruptions<failing>("failing", 1), model::with_interruptions<kept>("kept", 1),
       model::with_interruptions<held>("held", 2), model::with_interruptions<stopped>("stopped", 3),
       model::with_interruptions<finish_stopped>("finish stopped", 2),
       model::with_interruptions<all_taken>("all taken", 2),
       model::at_random<two_workers>("two workers"), model::at_random<failing>("failing"),
       model::at_random<kept>("kept")});
}
