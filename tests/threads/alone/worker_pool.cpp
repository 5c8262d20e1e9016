// SPDX-License-Identifier: BSL-1.0
// A program that uses only worker_pool from the library: the example of the header, a wake-up for
// work that does not observe the stop token, and an exception.
#include <penstock/threads/worker_pool.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "worker_pool: %s\n", what);
  std::exit(EXIT_FAILURE);
}

void example() {
  std::array<int, 4> sums{};
  const auto process = [&](int job, std::size_t worker) { sums[worker] += job; };

  std::mutex mutex;
  std::condition_variable_any added;
  std::deque<int> jobs;  // guarded by the mutex

  penstock::worker_pool pool{4, [&](std::stop_token stop, std::size_t worker) {
                               std::unique_lock lock{mutex};
                               while (added.wait(lock, stop, [&] { return !jobs.empty(); })) {
                                 const int job = jobs.front();
                                 jobs.pop_front();
                                 lock.unlock();
                                 process(job, worker);
                                 lock.lock();
                               }
                             }};

  for (int job = 0; job < 100; ++job) {
    const std::lock_guard lock{mutex};
    jobs.push_back(job);
    added.notify_one();
  }
  pool.stop();     // returns when all jobs are done and all threads have ended
  pool.rethrow();  // rethrows an exception of `process`

  require(pool.size() == 4, "the pool has four workers");
  require(sums[0] + sums[1] + sums[2] + sums[3] == 4950, "every job is done once");
}

// Work that waits on an atomic, which a stop token cannot interrupt.
void wake_up() {
  std::atomic<bool> is_over{false};
  std::atomic<int> ended{0};
  {
    const penstock::worker_pool pool{3,
                                     [&](const std::stop_token&, std::size_t) {
                                       is_over.wait(false);
                                       ++ended;
                                     },
                                     [&] {
                                       is_over = true;
                                       is_over.notify_all();
                                     }};
  }
  require(ended == 3, "the destructor wakes and joins all workers");
}

void exception() {
  penstock::worker_pool pool{2, [](std::stop_token stop, std::size_t worker) {
                               if (worker == 1) throw std::runtime_error("disk full");
                               std::mutex mutex;
                               std::unique_lock lock{mutex};
                               std::condition_variable_any never;
                               never.wait(lock, stop, [] { return false; });
                             }};
  while (pool.exception() == nullptr) std::this_thread::yield();
  pool.stop();  // no effect, because worker 0 has already requested a stop
  std::string text;
  try {
    pool.rethrow();
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  require(text == "disk full", "the pool keeps the exception of a worker");
}

}  // namespace

int main() {
  example();
  wake_up();
  exception();
}
