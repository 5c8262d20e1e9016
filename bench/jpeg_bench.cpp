// SPDX-License-Identifier: BSL-1.0
// Measures the cost of decoding JPEG images, compared with plain libjpeg-turbo, and the gain from
// decoding only the region that a crop needs.
//
//   build/bench/bench/penstock_jpeg_bench
//
// Eight generated images of 500 x 375, 4:2:0, quality 90, about 35 kB each: slopes and noise of
// several scales. An iteration is an image. The common floor is whole_libjpeg: a reused
// decompressor that decodes rows one by one into existing memory. Goals below 1 allow for the
// library's own objects, which are created for each image.
//   whole      the whole image
//   region     the crops that random_resized_crop{224} draws
//   middle     224 x 224 in the middle
//   sample     region, then resized to 224 x 224 (bilinear), as decode_images does

#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include <jpeglib.h>

#include <penstock/order/random.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>
#include <penstock_ext/image/resize.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr ps::image_size size{500, 375};
constexpr std::size_t count = 8;

// Returns noise of halving scales, whose spectrum resembles a photograph's.
std::vector<std::uint8_t> made_up(std::uint64_t seed) {
  std::vector<float> sums(size.width * size.height * 3, 110.0F);
  for (std::size_t cell = 128; cell >= 1; cell /= 2) {
    ps::sample_generator random{{.seed = seed}, cell};
    const std::size_t across = size.width / cell + 2;
    std::vector<float> grid(across * (size.height / cell + 2) * 3);
    const float strength = cell == 1 ? 3.0F : 4.0F * std::sqrt(static_cast<float>(cell));
    for (float& value : grid) value = ps::uniform(random, -strength, strength);
    for (std::size_t y = 0; y < size.height; ++y) {
      for (std::size_t x = 0; x < size.width; ++x) {
        const float u = static_cast<float>(x % cell) / static_cast<float>(cell);
        const float v = static_cast<float>(y % cell) / static_cast<float>(cell);
        for (std::size_t c = 0; c < 3; ++c) {
          const float* at = grid.data() + ((y / cell) * across + x / cell) * 3 + c;
          const float* below = at + across * 3;
          sums[(y * size.width + x) * 3 + c] +=
              (at[0] * (1 - u) + at[3] * u) * (1 - v) + (below[0] * (1 - u) + below[3] * u) * v;
        }
      }
    }
  }
  std::vector<std::uint8_t> values(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    values[i] = static_cast<std::uint8_t>(std::fmin(std::fmax(sums[i], 0.0F), 255.0F));
  }
  return values;
}

std::vector<std::byte> encoded(std::vector<std::uint8_t> values, bool progressive) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_width = size.width;
  info.image_height = size.height;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = values.data() + info.next_scanline * size.width * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(memory);
  std::vector<std::byte> out(begin, begin + bytes);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return out;
}

const std::vector<std::byte>& image(std::size_t number, bool progressive) {
  static const auto all = [] {
    std::array<std::vector<std::byte>, 2 * count> made;
    for (std::size_t i = 0; i < count; ++i) {
      made[i] = encoded(made_up(i), false);
      made[count + i] = encoded(made_up(i), true);
    }
    return made;
  }();
  return all[number % count + (progressive ? count : 0)];
}

template <bool progressive>
void whole_libjpeg(benchmark::State& state) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  std::vector<std::uint8_t> values(size.width * size.height * 3);
  std::size_t number = 0;
  for (auto _ : state) {
    const auto& bytes = image(number++, progressive);
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = values.data() + info.output_scanline * size.width * 3;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    benchmark::ClobberMemory();
  }
  jpeg_destroy_decompress(&info);
  state.SetItemsProcessed(state.iterations());
}

ps::image_box whole_box(ps::sample_generator&) { return {0, 0, size}; }
ps::image_box middle_box(ps::sample_generator&) { return {138, 75, {224, 224}}; }
ps::image_box crop_box(ps::sample_generator& random) {
  static const ps::random_resized_crop geometry{224};
  return geometry.plan(size, random).crop;
}

template <ps::image_box (*Draw)(ps::sample_generator&), bool progressive, bool resized>
void decode(benchmark::State& state) {
  ps::jpeg_decoder decoder;
  ps::resizer resize;
  std::vector<std::uint8_t> values(size.width * size.height * 3);
  std::vector<std::uint8_t> sample(224 * 224 * 3);
  ps::sample_generator random{{.seed = 3}, 1};
  std::size_t number = 0;
  for (auto _ : state) {
    const ps::image_box box = Draw(random);
    const ps::pixels out{values.data(), box.size, 3, box.size.width * 3};
    decoder.decode(image(number++, progressive), "image", box, out);
    if (resized) resize(out, {sample.data(), {224, 224}, 3, 224 * 3});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations());
}

void info(benchmark::State& state) {
  ps::jpeg_decoder decoder;
  std::size_t number = 0;
  for (auto _ : state) benchmark::DoNotOptimize(decoder.info(image(number++, false), "image"));
  state.SetItemsProcessed(state.iterations());
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, void (*run)(benchmark::State&)) {
    benchmark::RegisterBenchmark(name, run);
  };
  add("whole_libjpeg", whole_libjpeg<false>);
  add("whole", decode<whole_box, false, false>);
  add("region", decode<crop_box, false, false>);
  add("middle", decode<middle_box, false, false>);
  add("sample", decode<crop_box, false, true>);
  add("progressive_libjpeg", whole_libjpeg<true>);
  add("progressive_whole", decode<whole_box, true, false>);
  add("progressive_region", decode<crop_box, true, false>);
  add("info", info);

  using enum bench::goal::kind;
  return bench::run(argc, argv, "jpeg_bench",
                    {{"whole", "whole_libjpeg", speed_at_least, 0.97},
                     {"region", "whole_libjpeg", speed_at_least, 1.15},
                     {"middle", "whole_libjpeg", speed_at_least, 1.3},
                     {"sample", "whole_libjpeg", speed_at_least},
                     {"progressive_whole", "progressive_libjpeg", speed_at_least, 0.97},
                     {"progressive_region", "progressive_libjpeg", speed_at_least},
                     {"info", "whole_libjpeg", time_at_most, 0.01}});
}
