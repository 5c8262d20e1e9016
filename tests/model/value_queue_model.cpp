// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/threads/value_queue.hpp>

namespace {

/// A value that owns a number: where it lies is no atomic, and moving it empties it.
class owned {
 public:
  owned() = default;
  explicit owned(std::uint32_t number) : number_(number) {}
  owned(owned&& other) noexcept : number_(other.taken()) {}
  owned& operator=(owned&& other) noexcept {
    number_.set(other.taken());
    return *this;
  }
  ~owned() = default;

  [[nodiscard]] std::uint32_t number() const { return number_.get(); }

 private:
  std::uint32_t taken() {
    const std::uint32_t number = number_.get();
    number_.set(0);
    return number;
  }
  model::plain<std::uint32_t> number_;
};

using queue = penstock::value_queue<owned, model::atomics>;

/// Values that are there once, wherever that is.
template <std::uint32_t Values>
struct whereabouts {
  std::array<model::plain<bool>, Values> seen{};

  void note(const owned& value) {
    const std::uint32_t number = value.number();
    if (number == 0) return;
    model::require(number <= Values && !seen[number - 1].get(), "a value is in one place");
    seen[number - 1].set(true);
  }
  void require_all() const {
    for (const auto& one : seen) model::require(one.get(), "no value is lost");
  }
};

/// One place, two values: the second one waits for room.
struct there_and_away : model::scenario<there_and_away, 2> {
  queue values{1};
  whereabouts<2> known;

  void thread(unsigned index) {
    for (std::uint32_t number = 1; number != 3; ++number) {
      if (index == 0) {
        owned value{number};
        model::require(values.push(std::move(value)), "an open queue takes a value");
        model::require(value.number() == 0, "a value that was pushed has left");
      } else {
        const auto value = values.pop();
        model::require(value && value->number() == number, "values come in order");
        known.note(*value);
      }
    }
  }
  void after() { known.require_all(); }
};

/// The queue is closed while a value is pushed: it is in the queue, was popped, or stays.
struct closed_beside_a_push : model::scenario<closed_beside_a_push, 3> {
  queue values{1};
  std::array<owned, 2> given{owned{1}, owned{2}};
  std::optional<owned> popped;
  whereabouts<2> known;

  void thread(unsigned index) {
    if (index == 0) {
      for (auto& value : given) {
        const bool is_in = values.push(std::move(value));
        model::require(is_in == (value.number() == 0), "a value whose push fails stays");
      }
    } else if (index == 1) {
      popped = values.pop();
    } else {
      values.close();
    }
  }
  void after() {
    for (const auto& value : given) known.note(value);
    if (popped) known.note(*popped);
    while (const auto value = values.try_pop()) known.note(*value);
    known.require_all();
  }
};

/// As above, with limits of time.
struct given_up : model::scenario<given_up, 2> {
  queue values{1};
  owned given{2};
  whereabouts<2> known;

  void before() { model::require(values.try_push(owned{1}), "there is room"); }
  void thread(unsigned index) {
    if (index == 0) {
      const auto end = values.push_until(std::move(given), std::chrono::steady_clock::time_point{});
      model::require(static_cast<bool>(end) == (given.number() == 0), "a value that is late stays");
    } else {
      auto got = values.pop_until(std::chrono::steady_clock::time_point{});
      if (got) known.note(*got);
    }
  }
  void after() {
    known.note(given);
    while (const auto value = values.try_pop()) known.note(*value);
    known.require_all();
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<there_and_away>("one place, two values", 2),
                        model::with_interruptions<closed_beside_a_push>("closed beside a push", 1),
                        model::with_interruptions<given_up>("a push and a pop give up", 2),
                        model::at_random<there_and_away>("one place, two values"),
                        model::at_random<closed_beside_a_push>("closed beside a push"),
                        model::at_random<given_up>("a push and a pop give up"),
                    });
}
