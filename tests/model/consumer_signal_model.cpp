// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock_ext/intake/support/consumer_signal.hpp>

namespace {

/// A clock that restarts in each interleaving. Each call of `now` advances the clock.
struct played_clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;
  static inline int looks = 0;
  static time_point now() noexcept { return time_point{duration{++looks}}; }
};

using signal = penstock::detail::consumer_signal<played_clock>;
using lock_type = std::unique_lock<model::mutex>;

/// A producer publishes batches and each consumer receives one batch, as in an `intake_board`.
template <int Consumers>
struct batches {
  model::mutex mutex;
  signal changed{std::chrono::nanoseconds{2}};
  model::plain<int> ready;
  model::plain<int> taken;

  batches() { played_clock::looks = 0; }

  void make_one() {
    lock_type lock{mutex};
    ready.set(ready.get() + 1);
    changed.notify_one(lock);
  }
  /// Waits for a batch. `due` is the time at which an open partial batch becomes due. Nothing
  /// happens at that time, because a consumer receives a batch only after a notification.
  void take_one(int due) {
    lock_type lock{mutex};
    while (ready.get() == 0) {
      if (played_clock::looks < due) {
        changed.wait_until(lock, played_clock::time_point{std::chrono::nanoseconds{due}});
      } else {
        changed.wait(lock);
      }
    }
    ready.set(ready.get() - 1);
    taken.set(taken.get() + 1);
  }
  void require_all() const {
    model::require(taken.get() == Consumers && ready.get() == 0, "each consumer gets one batch");
  }
};

/// A consumer that spins or already sleeps is notified of a batch.
struct one_consumer : model::scenario<one_consumer, 2>, batches<1> {
  void thread(unsigned index) { index == 0 ? make_one() : take_one(4); }
  void after() { require_all(); }
};

/// Two consumers and two batches. One consumer spins.
struct two_consumers : model::scenario<two_consumers, 3>, batches<2> {
  void thread(unsigned index) {
    if (index != 0) return take_one(4);
    make_one();
    make_one();
  }
  void after() { require_all(); }
};

/// One consumer waits without a deadline, and another spins.
struct with_and_without : model::scenario<with_and_without, 3>, batches<2> {
  void thread(unsigned index) {
    if (index != 0) return take_one(index == 1 ? 4 : 0);
    make_one();
    make_one();
  }
  void after() { require_all(); }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {model::with_interruptions<one_consumer>("one consumer", 3),
                     model::with_interruptions<two_consumers>("two consumers", 2),
                     model::with_interruptions<with_and_without>("with and without a limit", 2),
                     model::at_random<one_consumer>("one consumer"),
                     model::at_random<two_consumers>("two consumers"),
                     model::at_random<with_and_without>("with and without a limit")});
}
