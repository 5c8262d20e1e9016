// SPDX-License-Identifier: BSL-1.0
// Measures the cost of processing images on a single core.
//
//   build/bench/bench/penstock_image_bench
//
// resize/*     a box of 320 x 290 of an image of 500 x 375, three channels, to 224 x 224. The box
//              changes each time, so that no coefficient table is reused, and every second image
//              is mirrored; items are images. `fastest` uses vector instructions of the
//              machine; `plain` uses the plain loops of the same resizer, which give the same bits.

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <penstock_ext/image/resize.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using ps::resize_filter;

constexpr ps::image_size from{500, 375};
constexpr ps::image_size to{224, 224};

void resize(benchmark::State& state, resize_filter filter, ps::detail::resample_path path) {
  std::vector<std::uint8_t> in(from.width * from.height * 3);
  std::mt19937 bits{1};
  for (std::uint8_t& value : in) value = static_cast<std::uint8_t>(bits());
  std::vector<std::uint8_t> out(to.width * to.height * 3);
  ps::resizer resizer{{.filter = filter}, path};
  std::size_t i = 0;
  for (auto _ : state) {
    ++i;
    const ps::image_box crop{i % 64, i % 32, {320 + i % 3, 290 - i % 5}};
    resizer({in.data(), from, 3, from.width * 3}, {crop, to, {0, 0, to}, i % 2 == 0},
            {out.data(), to, 3, to.width * 3});
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations());
}

}  // namespace

int main(int argc, char** argv) {
  const std::pair<const char*, resize_filter> filters[] = {{"nearest", resize_filter::nearest},
                                                           {"box", resize_filter::box},
                                                           {"bilinear", resize_filter::bilinear},
                                                           {"bicubic", resize_filter::bicubic},
                                                           {"lanczos", resize_filter::lanczos}};
  std::vector<bench::goal> goals;
  for (const auto& [name, filter] : filters) {
    const std::string fastest = std::string{"resize/fastest/"} + name;
    const std::string plain = std::string{"resize/plain/"} + name;
    benchmark::RegisterBenchmark(fastest.c_str(), resize, filter,
                                 ps::detail::fastest_resample_path());
    benchmark::RegisterBenchmark(plain.c_str(), resize, filter, ps::detail::resample_path::plain);
    goals.push_back({fastest, plain});
  }
  return bench::run(argc, argv, "image_bench", goals);
}
