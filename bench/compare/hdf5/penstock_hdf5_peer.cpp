// SPDX-License-Identifier: BSL-1.0
// penstock's side of hdf5.py: reads dataset x of a file once.
//
//   penstock_hdf5_peer FILE sequential|block_shuffled|shuffled WORKERS
//
// Prints the number of samples per second of processor time, and the sum of the first bytes of all
// samples.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include <penstock/penstock.hpp>
#include <penstock_ext/indexed/hdf5/hdf5_dataset.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>

namespace ps = penstock;

namespace {

using images = ps::hdf5_dataset<ps::record<ps::field<"x", std::uint8_t, 28, 28>>>;

double processor_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Order>
void read_all(const images& data, const Order& order, std::size_t workers) {
  const double begin = processor_seconds();
  std::size_t samples = 0;
  unsigned long sum = 0;
  {
    ps::loader loader{data, order, {.batch_size = 64, .workers = workers}};
    for (auto& batch : loader.epoch(0)) {
      const auto x = ps::get<"x">(batch);
      for (std::size_t i = 0; i < batch.size(); ++i) sum += x(i, 0, 0);
      samples += batch.size();
    }
  }
  std::printf("%.0f %lu\n", static_cast<double>(samples) / (processor_seconds() - begin), sum);
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return std::fprintf(stderr, "see the first lines of the source\n"), 2;
  const images data{words[1]};
  const std::string order = words[2];
  const std::size_t workers = std::strtoul(words[3], nullptr, 10);
  if (order == "sequential") {
    read_all(data, ps::sequential{}, workers);
  } else if (order == "block_shuffled") {
    read_all(data, ps::block_shuffled{.seed = 1, .block = data.block()}, workers);
  } else {
    read_all(data, ps::shuffled{.seed = 1}, workers);
  }
}
