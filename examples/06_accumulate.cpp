// SPDX-License-Identifier: BSL-1.0
// Gradient accumulation over four batches whose weights depend on all four. The program moves their
// leases out of the loop, uses them together and releases them together. The transfer needs one
// slot for each batch that the program holds, and more slots for batches that are copied in
// advance. With too few slots, the transfer throws leases_exhausted instead of waiting forever.
#include <penstock/penstock.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

namespace ps = penstock;

// Every third sample counts as one vote.
struct votes {
  using record_type = ps::record<ps::field<"value", double>, ps::field<"counts", int>>;
  std::uint64_t size() const { return 1024; }
  void read(std::uint64_t i, ps::sample<record_type> out) const {
    ps::get<"value">(out) = 2.0;
    ps::get<"counts">(out) = i % 3 == 0 ? 1 : 0;
  }
};

int main() {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{votes{}, ps::shuffled{.seed = 1}, device, {.batch_size = 16, .workers = 2}};
  using feed_type = ps::transfer<decltype(loader)&>;
  constexpr std::size_t together = 4;

  // Leaves two slots for copies ahead.
  feed_type feed{loader, stream, {.depth = together + 2}};
  std::vector<feed_type::batch_type> held;
  double counted = 0, gradient = 0, sum = 0;
  for (auto& batch : feed.epoch(0)) {
    stream.launch([&counted, counts = ps::get<"counts">(batch)] {
      for (const int one : counts.flat()) counted += one;
    });
    // The loop no longer releases the batch.
    held.push_back(std::move(batch));
    if (held.size() < together) continue;
    // Only now does the program know the number of samples that count.
    for (auto& one : held) {
      stream.launch([&, value = ps::get<"value">(one), counts = ps::get<"counts">(one)] {
        for (std::size_t i = 0; i < value.size(); ++i) gradient += value[i] * counts[i] / counted;
      });
    }
    // The optimizer step. All four slots are free afterwards, and the host has not waited for the
    // device.
    stream.launch([&] { sum += gradient, gradient = 0, counted = 0; });
    held.clear();
  }
  stream.synchronize();
  std::cout << "16 steps, sum of the gradients " << sum << '\n';

  feed_type short_feed{loader, stream, {.depth = together - 1}};
  try {
    for (auto& batch : short_feed.epoch(0)) held.push_back(std::move(batch));
    return 1;
  } catch (const ps::leases_exhausted& error) {
    std::cout << error.what() << '\n';
  }
  return sum > 31.999 && sum < 32.001 && held.size() == together - 1 ? 0 : 1;
}
