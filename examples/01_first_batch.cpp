// SPDX-License-Identifier: BSL-1.0
// The smallest program. A loader reads a dataset on two threads, a transfer copies batches ahead,
// and one loop visits all batches of an epoch. The body of the loop is the training step. The
// program uses the CPU device instead of a GPU. Example 03 runs its step on a stream.
#include <penstock/penstock.hpp>

#include <cstdint>
#include <iostream>

namespace ps = penstock;

// Sample i is the number i * i.
struct square_numbers {
  using record_type = ps::record<ps::field<"value", std::uint64_t>>;
  std::uint64_t size() const { return 1000; }
  void read(std::uint64_t i, ps::sample<record_type> out) const { ps::get<"value">(out) = i * i; }
};

int main() {
  ps::loader loader{square_numbers{}, ps::shuffled{.seed = 1}, {.batch_size = 64, .workers = 2}};
  ps::transfer feed{loader};

  std::uint64_t sum = 0;
  for (auto& batch : feed.epoch(0)) {
    // Views 64 numbers in device memory, or 40 in the last batch. The copy is complete.
    const auto values = ps::get<"value">(batch);
    if (batch.number() == 0) {
      std::cout << "first batch: " << batch.size() << " samples of " << loader.samples_per_epoch()
                << '\n';
    }
    for (const std::uint64_t value : values.flat()) sum += value;
    // The end of the loop body releases the batch.
  }

  std::cout << "sum of all squares: " << sum << '\n';
  return sum == 332'833'500 ? 0 : 1;
}
