// SPDX-License-Identifier: BSL-1.0
// An existing program whose loader has worker threads and a ring of batches, and delivers the
// batches in order. `before` is that loader. `after` keeps the interface and the decoder of this
// loader, and uses penstock's threads. Both versions give bit-identical batches to a simple loop. A
// program can also keep its threads and feed penstock with them; see ../05_existing_producer.cpp.
#include <penstock/penstock.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace ps = penstock;

constexpr std::size_t row_values = 32, batch_rows = 16, samples = 20 * batch_rows;

// The decoder of the existing program.
void decode(std::uint64_t sample, float* to) {
  auto bits = static_cast<std::uint32_t>(sample + 1);
  for (std::size_t i = 0; i != row_values; ++i) {
    bits = bits * 1664525U + 1013904223U;
    to[i] = static_cast<float>(bits >> 8U) / 65536.0F;
  }
}

namespace before {

class loader {
 public:
  explicit loader(std::size_t workers) : ring_(workers + 2) {
    for (; workers != 0; --workers) threads_.emplace_back([this] { work(); });
  }
  ~loader() {
    {
      const std::lock_guard lock{mutex_};
      is_stopping_ = true;
    }
    changed_.notify_all();
    for (auto& one : threads_) one.join();
  }
  loader(loader&&) = delete;

  const float* next() {
    std::unique_lock lock{mutex_};
    released_ = taken_++;
    changed_.notify_all();
    const slot& from = ring_[released_ % ring_.size()];
    changed_.wait(lock, [&] { return from.filled == taken_; });
    return from.values.data();
  }

 private:
  struct slot {
    std::vector<float> values = std::vector<float>(batch_rows * row_values);
    std::uint64_t filled = 0;  // the number of the batch, starting at 1
  };

  void work() {
    std::unique_lock lock{mutex_};
    while (true) {
      const std::uint64_t batch = claimed_++;
      changed_.wait(lock, [&] { return is_stopping_ || batch < released_ + ring_.size(); });
      if (is_stopping_) return;
      slot& to = ring_[batch % ring_.size()];
      lock.unlock();
      for (std::size_t i = 0; i != batch_rows; ++i) {
        decode((batch * batch_rows + i) % samples, &to.values[i * row_values]);
      }
      lock.lock();
      to.filled = batch + 1;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<slot> ring_;
  std::uint64_t claimed_ = 0, taken_ = 0, released_ = 0;
  bool is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace before

namespace after {

struct decoded {
  using record_type = ps::record<ps::field<"x", float, row_values>>;
  std::uint64_t size() const { return samples; }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    decode(i, ps::get<"x">(out).data());
  }
};

class loader {
 public:
  explicit loader(std::size_t workers)
      : loader_(ps::loader{
            decoded{}, ps::sequential{}, {.batch_size = batch_rows, .workers = workers}}) {}

  const float* next() {
    batch_ = loader_.next();
    return ps::get<"x">(batch_).data();
  }

 private:
  using loader_type = ps::any_loader<decoded::record_type>;
  loader_type loader_;
  loader_type::batch_type batch_;
};

}  // namespace after

// Compares the batches with those of a simple loop, for two and a half epochs.
template <class Loader>
bool is_right(std::size_t workers) {
  Loader loader{workers};
  float expected[row_values];
  for (std::uint64_t batch = 0; batch != 50; ++batch) {
    const float* const found = loader.next();
    for (std::size_t i = 0; i != batch_rows; ++i) {
      decode((batch * batch_rows + i) % samples, expected);
      if (!std::equal(expected, expected + row_values, found + i * row_values)) return false;
    }
  }
  return true;
}

int main() {
  const bool all = is_right<before::loader>(1) && is_right<before::loader>(3) &&
                   is_right<after::loader>(1) && is_right<after::loader>(3);
  std::cout << "1 and 3 workers: " << (all ? "the same batches" : "other batches") << '\n';
  return all ? 0 : 1;
}
