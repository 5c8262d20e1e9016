// SPDX-License-Identifier: BSL-1.0
// The loader without a device. Batches stay in host memory, for programs that use no GPU or make
// their own copies to it. The program shows the relevant options, and the memory use that the
// loader reports.
#include <penstock/penstock.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>

namespace ps = penstock;

struct images {
  using record_type = ps::record<ps::field<"image", std::uint8_t, 32, 32>, ps::field<"label", int>>;
  std::uint64_t size() const { return 1000; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    for (auto& pixel : ps::get<"image">(out).flat()) pixel = static_cast<std::uint8_t>(index);
    ps::get<"label">(out) = static_cast<int>(index);
  }
};

int main() {
  ps::loader loader{images{},
                    ps::shuffled{.seed = 7},
                    {.batch_size = 48,
                     .workers = 2,                       // 0 reads in the loop itself
                     .prefetch = 4,                      // number of batches read ahead
                     .last_batch = ps::last_batch::pad,  // gives all batches the same size
                     .pinned = false}};                  // no GPU copies from the slots
  const auto taken = loader.footprint();
  std::cout << taken.slot_count << " slots of " << taken.slot_bytes << " bytes, "
            << (taken.pinned ? "" : "not ") << "pinned; " << loader.batches_per_epoch()
            << " batches an epoch\n";

  std::uint64_t samples = 0, fillers = 0, wrong = 0;
  // The loader does not pause between the two epochs.
  for (auto& batch : loader.epochs(0, 2)) {
    // 48 x 32 x 32 values, used in place
    const auto image = ps::get<"image">(batch);
    const auto label = ps::get<"label">(batch);
    // Ignores padding samples.
    for (std::size_t i = 0; i < batch.valid(); ++i) {
      wrong += image(i, 31, 31) == static_cast<std::uint8_t>(label[i]) ? 0U : 1U;
    }
    samples += batch.valid();
    fillers += batch.size() - batch.valid();
  }
  std::cout << samples << " samples and " << fillers << " fillers in two epochs\n";
  const bool right = samples == 2000 && fillers == 16 && wrong == 0 && taken.slot_count == 5;
  return right && !taken.pinned ? 0 : 1;
}
