// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/device/stream_timeline.hpp>

#include "running_device.hpp"

namespace {

using timeline_type = penstock::detail::stream_timeline<model::running_device, model::mutex>;

/// A stream whose work is to write a result, and a timeline of it with a ring of two events.
template <class Scenario, int Threads>
struct marked : model::scenario<Scenario, Threads> {
  model::running_device::stream_type stream;
  timeline_type timeline{model::running_device{}, stream, 2, penstock::event_wait::by_host};
  std::array<model::plain<int>, 4> result{};  // by the number of the work

  /// Runs the next work, in place of the device.
  void run() {
    stream.run([this](std::uint32_t number) { result[number].set(1); });
  }
  void require_result(std::size_t number) {
    model::require(result[number].get() == 1, "what is reached is done");
  }
};

/// A thread marks points and runs the work, and two threads wait. The third point uses the event
/// of the first point. `given` publishes a point to the waiting threads.
template <class Scenario, std::uint64_t Points = 3>
struct one_marks : marked<Scenario, 3> {
  model::atomic<std::uint64_t> given{0};

  void mark_and_run() {
    for (std::uint64_t point = 1; point <= Points; ++point) {
      this->stream.launch();
      const auto end = this->timeline.mark();
      model::require(end.at == point && end.error == nullptr, "points follow each other");
      given.store(point, std::memory_order_release);
      given.notify_all();
    }
    for (std::uint64_t i = 0; i != Points; ++i) this->run();
  }
  /// Waits until the point is published.
  void get(std::uint64_t point) {
    for (;;) {
      const std::uint64_t now = given.load(std::memory_order_acquire);
      if (now >= point) return;
      given.wait(now, std::memory_order_acquire);
    }
  }
  void wait_for(std::uint64_t point) {
    get(point);
    this->timeline.wait(point);
    this->require_result(point);
  }
};

/// Both threads wait for the first point, and then for a later point. A thread may learn of the
/// first point by the other thread's wait.
struct two_wait : one_marks<two_wait> {
  void thread(unsigned index) {
    if (index == 0) return mark_and_run();
    wait_for(1);
    wait_for(index == 1 ? 2 : 3);
    require_result(1);
  }
};

/// Both threads wait for the only point.
struct one_point : one_marks<one_point, 1> {
  void thread(unsigned index) { index == 0 ? mark_and_run() : wait_for(1); }
};

/// A thread waits. The other thread queries, and may learn of a point by the wait of the first.
struct one_looks : one_marks<one_looks> {
  void thread(unsigned index) {
    if (index == 0) return mark_and_run();
    if (index == 1) return wait_for(2);
    get(1);
    if (timeline.reached(1)) require_result(1);
    if (given.load(std::memory_order_acquire) < 2) return;
    if (timeline.reached(2)) require_result(2);
  }
};

/// Two threads queue work, mark its end, and wait for it, while the device runs it.
struct two_mark : marked<two_mark, 3> {
  void thread(unsigned index) {
    if (index == 0) {
      run();
      run();
    } else {
      const std::uint32_t own = stream.launch();
      stream.wake();
      const auto end = timeline.mark();
      timeline.wait(end.at);
      require_result(own);
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<one_point>("two wait for one point", 1),
                        model::with_interruptions<two_mark>("two mark", 1),
                        model::at_random<one_point>("two wait for one point"),
                        model::at_random<two_wait>("two wait"),
                        model::at_random<one_looks>("one waits and one looks"),
                        model::at_random<two_mark>("two mark"),
                    });
}
