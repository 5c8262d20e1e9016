// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda.hpp>

#include <cstdint>
#include <cstdio>

namespace ps = penstock;

struct numbers {
  using record_type = ps::record<ps::field<"x", std::uint64_t>>;
  std::uint64_t size() const { return 1000; }
  void read(std::uint64_t i, ps::sample<record_type> out) const { ps::get<"x">(out) = i; }
};

// Uses the real CUDA runtime. Without a device, the program expects a typed error.
int main() {
  try {
    const ps::cuda_device device;
    const auto stream = device.make_stream();
    ps::loader loader{numbers{}, ps::shuffled{.seed = 1}, device, {.batch_size = 64}};
    ps::transfer feed{loader, stream};
    std::size_t samples = 0;
    for (auto& batch : feed.epoch(0)) samples += batch.size();
    std::printf("%zu samples on device 0 of %d\n", samples, ps::cuda_device::count());
    return samples == 1000 ? 0 : 1;
  } catch (const ps::no_cuda_driver& why) {
    std::printf("%s\n", why.what());
  } catch (const ps::no_cuda_device& why) {
    std::printf("%s\n", why.what());
  }
}
