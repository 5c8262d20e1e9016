// SPDX-License-Identifier: BSL-1.0
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "host_backend.hpp"
#include "network.hpp"
#include "support/catch.hpp"
#include "trainer.hpp"

// The linker sends this program's calls of malloc here (--wrap, see CMakeLists.txt): Eigen does not
// go through operator new.
extern "C" {
void* __real_malloc(std::size_t);
void* __wrap_malloc(std::size_t);
}

namespace {
std::atomic<std::size_t> allocations{0};
}

extern "C" void* __wrap_malloc(std::size_t bytes) {
  ++allocations;
  return __real_malloc(bytes);
}

TEST_CASE("a training step allocates nothing", "[mlp]") {
  constexpr std::size_t batch = 64;
  const penstock::cpu_device device;
  const auto stream = device.inline_stream();
  mlp::trainer<mlp::host_backend> trained{device, mlp::host_backend{}, stream, batch,
                                          2,      2 * batch,           1};
  const std::vector<std::uint8_t> images(batch * mlp::shape::inputs, 100);
  const std::vector<std::uint8_t> labels(batch, 3);

  const std::size_t before_a_product = allocations;
  const Eigen::MatrixXf square = Eigen::MatrixXf::Ones(8, 8);
  REQUIRE(allocations > before_a_product);  // the counter counts

  const std::size_t before = allocations;
  for (int i = 0; i < 3; ++i) trained.step(0, images.data(), labels.data(), batch);
  trained.step(0, images.data(), labels.data(), 7);
  CHECK(allocations == before);
  CHECK(square(0, 0) == 1.0F);
}
