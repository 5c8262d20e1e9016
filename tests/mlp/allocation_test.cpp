// SPDX-License-Identifier: BSL-1.0
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "host_backend.hpp"
#include "network.hpp"
#include "recording.hpp"
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

TEST_CASE("recording allocates nothing in the loop", "[mlp]") {
  const penstock::cpu_device device;
  auto stream = device.make_stream();
  constexpr std::size_t samples = 100;
  const auto order = penstock::shuffled{.seed = 1}.order(samples, 0);
  mlp::recorder<mlp::host_backend> notes{device, samples, order, 10};
  notes.begin(stream);

  const std::size_t before = allocations;
  for (std::uint64_t i = 0; i < samples; ++i) {
    notes.note_read(std::span{&i, 1}, [] {});
    notes.note_copy(stream, [] {});
    notes.note_step(device.inline_stream(), [] {});
  }
  device.synchronize(stream);
  CHECK(allocations == before);
  const auto lanes = notes.lanes({"this thread"}, "copies", "steps");
  CHECK(lanes[0].spans.size() == samples);
  CHECK(lanes[1].spans.size() == 10);  // a batch each
}
