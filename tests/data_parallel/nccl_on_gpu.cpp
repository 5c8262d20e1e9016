// SPDX-License-Identifier: BSL-1.0
// Tests NCCL on a GPU in a world of one process. Exits with 77 without a GPU.
#include <algorithm>
#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_error.hpp>

#include "nccl_ranks.hpp"
#include "network.hpp"

namespace ps = penstock;

namespace {

/// A world with a single process, which never waits.
struct alone {
  static int rank() { return 0; }
  static int size() { return 1; }
  static void gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    std::copy(mine.begin(), mine.end(), all.begin());
  }
};

}  // namespace

int main() {
  try {
    const ps::cuda_device device{0};
    device.make_current();
    const auto stream = device.make_stream();
    const std::vector<float> some{1.0F, -2.0F, 0.5F};
    data_parallel::array<float, ps::cuda_device> values{device, some.size()};
    values.put(some, stream);
    alone host;
    data_parallel::nccl_ranks ranks{host, device};
    ranks.sum({values.data(), values.size()}, stream);
    ranks.join(stream);
    const std::vector<float> sum = values.get(stream);
    int failures = 0;
    for (std::size_t i = 0; i < some.size(); ++i) failures += sum[i] == some[i] ? 0 : 1;
    std::cout << "NCCL as a world of one\n"
              << some.size() << " comparisons, " << failures << " failures\n";
    return failures == 0 ? 0 : 1;
  } catch (const ps::no_cuda_driver& error) {
    std::cout << "skipped: " << error.what() << '\n';
    return 77;
  } catch (const ps::no_cuda_device& error) {
    std::cout << "skipped: " << error.what() << '\n';
    return 77;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
