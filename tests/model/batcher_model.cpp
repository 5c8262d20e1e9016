// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock_ext/serve/batcher.hpp>

#include "device.hpp"

namespace {

using record = penstock::record<penstock::field<"label", std::uint64_t>>;
using board = penstock::detail::request_board<record, model::device>;

/// A batcher whose requests are plain variables, so that the checker detects concurrent use of a
/// request.
template <class Scenario, int Threads, std::size_t Max, std::size_t Slots, bool IsDueAtOnce = false>
struct submitted : model::scenario<Scenario, Threads> {
  board requests{penstock::batcher_options{.max_batch_size = Max,
                                           .fill = IsDueAtOnce ? std::chrono::nanoseconds{0}
                                                               : (std::chrono::nanoseconds::max)(),
                                           .depth = Slots},
                 model::device{}, penstock::batch_layout<record>{{}, Max}};
  std::array<model::plain<std::uint64_t>, Max * Slots> memory{};
  model::plain<std::uint64_t> taken{0};
  model::plain<std::uint64_t> accepted{0};

  /// Submits a request. Returns false if the batcher is closed.
  bool submit(std::uint64_t tag, bool is_written = true) {
    try {
      const auto at = requests.reserve(tag, board::forever);
      memory[at->slot * Max + at->position].set(tag);
      requests.on_written(*at, is_written);
      return true;
    } catch (const penstock::batcher_closed&) {
      return false;
    }
  }
  /// Receives the next batch. Returns false at the end.
  bool take() {
    const auto next = requests.next(true);
    if (!next) return false;
    const auto tags = requests.tags(next->first);
    for (std::size_t i = 0; i < tags.size(); ++i) {
      model::require(memory[next->first * Max + i].get() == tags[i], "a request is as written");
    }
    taken.set(taken.get() + tags.size());
    requests.release_after(next->first, model::device::stream_ref{});
    return true;
  }
  /// Thread 0 receives `batches` batches, and every other thread submits a request.
  void take_or_submit(unsigned index, int batches) {
    if (index != 0) {
      submit(index);
    } else {
      for (; batches != 0; --batches) take();
    }
  }
};

/// Two submitters fill one batch together.
struct one_batch : submitted<one_batch, 3, 2, 1> {
  void thread(unsigned index) { take_or_submit(index, 1); }
  void after() { model::require(taken.get() == 2, "both requests are in the batch"); }
};

/// The only slot is full. One submitter waits for the slot, and the other waits for that submitter.
struct behind_a_full_batch : submitted<behind_a_full_batch, 3, 2, 1> {
  void before() {
    submit(3);
    submit(4);
  }
  void thread(unsigned index) { take_or_submit(index, 2); }
  void after() { model::require(taken.get() == 4, "both batches are taken"); }
};

/// Two submitters share a slot for a single request.
struct one_slot : submitted<one_slot, 3, 1, 1> {
  void thread(unsigned index) { take_or_submit(index, 2); }
  void after() { model::require(taken.get() == 2, "both requests are taken"); }
};

/// A partial batch is due immediately.
struct due_at_once : submitted<due_at_once, 2, 2, 1, true> {
  void thread(unsigned index) { take_or_submit(index, 1); }
  void after() { model::require(taken.get() == 1, "the request is taken"); }
};

/// The consumer closes the batcher while requests are submitted. The second write throws.
struct closing : submitted<closing, 2, 1, 2> {
  void thread(unsigned index) {
    if (index == 0) {
      const bool is_accepted = submit(1);
      submit(2, false);
      accepted.set(is_accepted ? 1U : 0U);
    } else {
      requests.close(false);
      while (take()) {
      }
    }
  }
  void after() { model::require(taken.get() == accepted.get(), "accepted requests are taken"); }
};

/// The batcher is closed while submitters wait for a slot that is never returned.
struct closed_while_full : submitted<closed_while_full, 3, 1, 1> {
  void before() { submit(0); }
  void thread(unsigned index) {
    if (index == 0) {
      requests.close(false);
    } else {
      model::require(!submit(index), "a closed batcher accepts nothing");
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(
      argc, argv,
      {
          model::with_interruptions<one_batch>("two submitters fill a batch", 1),
          model::with_interruptions<behind_a_full_batch>("two submitters behind a full batch", 0),
          model::with_interruptions<one_slot>("two submitters and one slot", 1),
          model::with_interruptions<due_at_once>("due at once", 2),
          model::with_interruptions<closing>("closed", 1),
          model::with_interruptions<closed_while_full>("closed while no slot is free", 0),
          model::at_random<one_batch>("two submitters fill a batch"),
          model::at_random<behind_a_full_batch>("two submitters behind a full batch"),
          model::at_random<one_slot>("two submitters and one slot"),
          model::at_random<closing>("closed"),
          model::at_random<closed_while_full>("closed while no slot is free"),
      });
}
