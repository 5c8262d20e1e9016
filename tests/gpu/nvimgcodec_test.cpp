// SPDX-License-Identifier: BSL-1.0
// Tests images that each available nvImageCodec back end decodes into GPU memory.
#include <penstock_ext/image/nvimgcodec/nvimgcodec_batch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include "ext/image/decoded.hpp"
#include "ext/image/jpeg_images.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using backend = ps::nvimgcodec_backend;
using slab = ps::detail::slab<ps::cuda_device>;

constexpr std::size_t count = 24;
constexpr ps::image_size size{96, 80};
constexpr std::size_t image_bytes = size.width * size.height * 3;

/// Returns the mean difference between the values of two images.
double difference(const std::uint8_t* one, const std::uint8_t* other) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < image_bytes; ++i) {
    sum += static_cast<std::uint64_t>(std::abs(one[i] - other[i]));
  }
  return static_cast<double>(sum) / static_cast<double>(image_bytes);
}

}  // namespace

TEST_CASE("images are decoded into a GPU's memory, in the order of the stream", "[gpu]") {
  const backend which = GENERATE(backend::any, backend::gpu, backend::hybrid, backend::cpu);
  CAPTURE(static_cast<int>(which));
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  std::vector<test::encoded> encoded;
  for (std::size_t i = 0; i < count; ++i) {
    encoded.push_back(test::some_jpeg(size.width, size.height, {.progressive = i % 4 == 1}, i));
  }
  const slab there{device, 2 * count * image_bytes, ps::detail::memory_kind::device};
  const slab here{device, 2 * count * image_bytes, ps::detail::memory_kind::pinned};
  try {
    ps::nvimgcodec_batch decoder{{.device = 0, .backend = which, .threads = 2}};
    for (std::size_t turn = 0; turn < 2; ++turn) {  // the second turn makes no initial allocations
      std::vector<ps::nvimgcodec_image> images;
      for (std::size_t i = 0; i < count; ++i) {
        auto* const to =
            reinterpret_cast<std::uint8_t*>(there.data()) + (turn * count + i) * image_bytes;
        images.push_back({encoded[i], "an image", {0, 0, size}, {to, size, 3, size.width * 3}});
      }
      decoder.decode(images, stream.get());
      const std::size_t at = turn * count * image_bytes;
      device.copy_async(here.data() + at, there.data() + at, count * image_bytes, stream);
    }
    WARN("decoded by back end " << static_cast<int>(decoder.backend()));
  } catch (const ps::nvimgcodec_unavailable& none) {
    REQUIRE((which == backend::gpu || which == backend::hybrid));
    WARN(none.what());
    return;
  } catch (const ps::image_unsupported& rejected) {
    // Some back ends do not support progressive images.
    REQUIRE((which == backend::gpu || which == backend::hybrid));
    device.synchronize(ps::cuda_stream_ref{stream});
    WARN(rejected.what());
    return;
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  ps::jpeg_decoder jpeg;
  double max = 0;
  for (std::size_t i = 0; i < 2 * count; ++i) {
    const auto expected = test::part_of(jpeg, encoded[i % count], {0, 0, size});
    const auto* const found = reinterpret_cast<const std::uint8_t*>(here.data()) + i * image_bytes;
    max = std::max(max, difference(found, expected.data()));
  }
  // Back ends differ in the last bits and in chroma upsampling.
  CHECK(max < (which == backend::cpu ? 0.01 : 4.0));
}
