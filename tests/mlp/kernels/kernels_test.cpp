// SPDX-License-Identifier: BSL-1.0
// Tests bench/mlp on the CUDA device without a GPU. The fake CUDA runtime runs the unchanged
// kernels. Host code replaces the kernels of cuBLAS, CUB and Thrust.
#include <cmath>
#include <cstddef>
#include <vector>

#include "mlp/kernels/fused_on_cuda.hpp"
#include "support/catch.hpp"

namespace {

using namespace fused_on_cuda;
using fake_cuda::order;
using fake_cuda::policy;

struct schedule {
  bool graph;
  fake_cuda::config how;
};

}  // namespace

TEST_CASE("fused kernels produce the same bits in every thread order, close to the host results",
          "[mlp]") {
  const digits drawn{100};  // six batches of 16 and one of 4
  const auto data = drawn.data();
  auto chosen = chosen_for(1);
  const auto expected = on_host(data, data, chosen);
  std::vector<outcome> first;
  for (const schedule& one :
       {schedule{false, {.policy = policy::late, .kernels = order::forwards}},
        schedule{true, {.policy = policy::late, .kernels = order::backwards}},
        schedule{true, {.policy = policy::random, .seed = 3, .kernels = order::seeded}}}) {
    CAPTURE(one.graph, static_cast<int>(one.how.kernels));
    fake_cuda::reset(one.how);
    chosen.graph = one.graph;
    for (const outcome& found :
         on_cuda(data, data, chosen, {mlp::technique::overlapped, mlp::technique::resident})) {
      CHECK(first_losses_apart(found, expected, chosen) < 1e-5);
      if (first.empty()) first.push_back(found);
      CHECK(found.trace == first[0].trace);
    }
    CHECK(fake_cuda::kernels_run().barriers > 0);
    CHECK((fake_cuda::calls_of("cudaGraphLaunch") > 0) == one.graph);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("fused kernels learn as much as the CPU device", "[mlp]") {
  fake_cuda::reset({.policy = policy::early, .kernels = order::backwards});
  const digits drawn{203};
  const digits others{200, 1000};
  const auto chosen = chosen_for(4);
  const auto host = on_host(drawn.data(), others.data(), chosen);
  const auto cuda = on_cuda(drawn.data(), others.data(), chosen, {mlp::technique::resident});
  CAPTURE(host.accuracy, cuda[0].accuracy);
  CHECK(host.accuracy > 0.5);
  CHECK(std::abs(cuda[0].accuracy - host.accuracy) < 0.02);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("fused kernels with cuBLAS products have the losses of the CPU device", "[mlp]") {
  fake_cuda::reset({.policy = policy::random, .seed = 4, .kernels = order::seeded});
  const digits drawn{84};
  const auto data = drawn.data();
  auto chosen = chosen_for(1);
  chosen.kernels = mlp::kernel_choice::cublas;
  const auto host = on_host(data, data, chosen);
  const auto cuda = on_cuda(data, data, chosen, {mlp::technique::overlapped});
  CHECK(first_losses_apart(cuda[0], host, chosen) < 1e-5);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("fused kernels take images as floats, large batches, and a last batch of one sample",
          "[mlp]") {
  fake_cuda::reset({.seed = 5, .kernels = order::seeded});
  const digits drawn{261};
  const auto data = drawn.data() | ps::map<mlp::wide_record>(mlp::widen{});
  auto chosen = chosen_for(1);
  chosen.batch = 260;  // results in tiles of eight samples in the first layer
  chosen.graph = false;
  const auto host = on_host(data, data, chosen);
  const auto cuda = on_cuda(data, data, chosen, {mlp::technique::resident});
  REQUIRE(cuda[0].trace.losses.size() == 261);
  CHECK(std::abs(cuda[0].trace.losses[260] - host.trace.losses[260]) < 1e-4F);
  CHECK(first_losses_apart(cuda[0], host, chosen) < 1e-5);
  CHECK(fake_cuda::expect_clean());
}
