// SPDX-License-Identifier: BSL-1.0
// A program that uses only batch_queue from the library: the example of the header, a free list of
// buffers, deadlines, and the end of waiting.
#include <penstock/threads/batch_queue.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "batch_queue: %s\n", what);
  std::exit(EXIT_FAILURE);
}

void example() {
  int sum = 0;
  const auto process = [&](int ticket) { sum += ticket; };

  penstock::batch_queue<int> queue{16};

  std::thread consumer{[&] {
    // Ends when the queue is closed and empty.
    while (const auto ticket = queue.pop()) process(*ticket);
  }};
  for (int ticket = 0; ticket < 100; ++ticket) queue.push(ticket);  // waits while the queue is full
  queue.close();
  consumer.join();

  require(sum == 4950, "the consumer gets every ticket");
  require(queue.was_closed() && queue.was_empty(), "the queue is closed and empty");
  require(!queue.push(1) && !queue.try_push(1) && !queue.pop(), "a closed queue takes no ticket");
}

// Two producers fill buffers and two consumers empty them. A pair of queues passes buffer indices
// back and forth.
void buffers_in_a_ring() {
  constexpr int buffer_count = 4;
  constexpr int rounds = 10'000;
  std::array<long, buffer_count> buffers{};  // not atomic, because the queues order all accesses
  penstock::batch_queue<int> free{buffer_count};
  penstock::batch_queue<int> full{buffer_count};
  for (int buffer = 0; buffer < buffer_count; ++buffer) free.push(buffer);

  std::array<long, 2> sums{};
  std::array<std::thread, 2> producers;
  std::array<std::thread, 2> consumers;
  for (auto& producer : producers) {
    producer = std::thread{[&] {
      for (long round = 1; round <= rounds; ++round) {
        const auto buffer = free.pop();
        buffers[static_cast<std::size_t>(*buffer)] = round;
        full.push(*buffer);
      }
    }};
  }
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    consumers[i] = std::thread{[&, i] {
      while (const auto buffer = full.pop()) {
        sums[i] += buffers[static_cast<std::size_t>(*buffer)];
        free.push(*buffer);
      }
    }};
  }
  for (auto& producer : producers) producer.join();
  full.close();
  for (auto& consumer : consumers) consumer.join();
  require(sums[0] + sums[1] == 2L * rounds * (rounds + 1) / 2, "no buffer is lost or torn");
}

void deadlines() {
  using namespace std::chrono_literals;
  using penstock::wait_status;
  penstock::batch_queue<int> queue{1};
  require(queue.pop_for(1us).timed_out(), "a pop from an empty queue times out");
  require(queue.push_for(7, 1h) == wait_status::done, "a push finds room");
  require(queue.push_for(8, 1us) == wait_status::timed_out, "a push to a full queue times out");
  const auto got = queue.pop_until(std::chrono::steady_clock::now() + 1h);
  require(got && *got == 7, "a pop returns the ticket");
  queue.close();
  require(queue.pop_for(1h).closed(), "a pop reports a closed queue without waiting");
  require(queue.push_for(9, 1h) == wait_status::closed, "and so does a push");
}

void quiet_pushes() {
  penstock::batch_queue<int> queue{2};
  int sum = 0;
  std::thread consumer{[&] {
    while (const auto ticket = queue.pop()) sum += *ticket;
  }};
  require(queue.try_push_quietly(1) && queue.try_push_quietly(2), "there is room for both");
  queue.wake_poppers();
  queue.close();
  consumer.join();
  require(sum == 3, "one wake-up serves several tickets");
}

}  // namespace

int main() {
  example();
  buffers_in_a_ring();
  deadlines();
  quiet_pushes();
}
