// SPDX-License-Identifier: BSL-1.0
// NCCL itself, on one GPU as a world of one. Ends with 77 where there is no GPU.
#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_error.hpp>

#include "device_array.hpp"
#include "ranks/nccl_collective.hpp"

namespace ps = penstock;

int main() {
  try {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    const std::vector<float> some{1.0F, -2.0F, 0.5F};
    mlp::device_array<float, ps::cuda_device> values{device, some.size()};
    values.upload(some, 0, stream);
    mlp::no_collective alone;
    mlp::nccl_collective ranks{alone, device, stream};
    ranks.all_reduce({values.data(), values.size()});
    std::vector<float> sum(some.size());
    values.download(sum, 0, stream);
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
