// SPDX-License-Identifier: BSL-1.0
// Two cameras of an existing program push frames from their own threads. Each thread writes to the
// memory of an intake, and a transfer copies the frames to the device.
#include <penstock/penstock.hpp>
#include <penstock_ext/intake.hpp>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <thread>

namespace ps = penstock;
using frame = ps::record<ps::field<"pixels", std::uint16_t, 48, 64>>;

int main() {
  ps::intake<frame> frames{ps::cpu_device{}, {.slot_count = 4}};
  std::atomic<int> cameras{2};
  const auto film = [&](std::uint16_t color) {
    for (std::uint64_t number = 0; number < 30; ++number) {
      auto slot = frames.acquire();  // waits while all slots are in use
      for (auto& pixel : ps::get<"pixels">(slot).flat()) pixel = color;
      slot.commit({.tag = number});  // without a commit, the slot returns unused
    }
    if (--cameras == 0) frames.close();
  };
  std::thread left{film, std::uint16_t{1}};
  std::thread right{film, std::uint16_t{2}};

  ps::transfer feed{frames};
  std::uint64_t sum = 0;
  for (auto& batch : feed.epoch(0))  // ends when the intake is closed and empty
    for (const auto pixel : ps::get<"pixels">(batch).flat()) sum += pixel;
  left.join();
  right.join();
  std::cout << frames.stats().delivered << " frames, sum of all pixels: " << sum << '\n';
  return sum == 30 * (1 + 2) * 48 * 64 ? 0 : 1;
}
