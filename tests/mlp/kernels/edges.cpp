// SPDX-License-Identifier: BSL-1.0
// Runs fused kernels that contain an error. Passes if every result differs from the result of the
// CPU device, for each order of blocks and threads.
#include <cmath>
#include <cstdio>

#include "mlp/kernels/fused_on_cuda.hpp"

int main() {
  using namespace fused_on_cuda;
  const digits drawn{80};  // five batches
  const auto data = drawn.data();
  const auto chosen = chosen_for(1);
  const auto expected = on_host(data, data, chosen);
  int unseen = 0;
  for (const auto how :
       {fake_cuda::order::forwards, fake_cuda::order::backwards, fake_cuda::order::seeded}) {
    fake_cuda::reset({.seed = 1, .kernels = how});
    const auto found = on_cuda(data, data, chosen, {mlp::technique::overlapped});
    const double apart = first_losses_apart(found[0], expected, chosen);
    std::printf("losses %g apart, %zu findings\n", apart, fake_cuda::findings().size());
    if (apart < 1e-5 && fake_cuda::findings().empty()) ++unseen;
  }
  return unseen == 0 ? 0 : 1;
}
