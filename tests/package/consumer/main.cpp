// SPDX-License-Identifier: BSL-1.0
#include "sums.hpp"

namespace ps = penstock;

struct numbers {
  using record_type = number;
  std::uint64_t size() const { return 1000; }
  void read(std::uint64_t i, ps::sample<number> out) const { ps::get<"x">(out) = i; }
};

int main() {
  ps::loader loader{numbers{}, ps::shuffled{.seed = 1}, {.batch_size = 64, .workers = 2}};
  std::uint64_t sum = 0;
  for (auto& batch : loader.epochs(0, 2)) sum += sum_of(batch);
  ps::transfer feed{loader, ps::cpu_device{}.inline_stream()};
  for (auto& batch : feed.epoch(2)) {
    for (const std::uint64_t x : ps::get<"x">(batch).flat()) sum += x;
  }
  return sum == 3 * 499'500 ? 0 : 1;
}
