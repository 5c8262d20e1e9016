// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/on_device.cuh>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "gpu/kernels.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// Three bytes, so that nothing of it can be packed.
struct colour {
  std::uint8_t red, green, blue;
};

using raw = ps::record<ps::field<"image", std::uint8_t, ps::dyn>, ps::field<"weight", double>,
                       ps::field<"colour", colour, 5>, ps::field<"label", std::uint16_t>>;

/// Values by sample and place.
struct samples {
  using record_type = raw;
  std::uint64_t count;
  std::size_t length;
  [[nodiscard]] std::uint64_t size() const { return count; }
  [[nodiscard]] ps::record_extents<raw> extents() const { return {{length}, {}, {}, {}}; }
  void read(std::uint64_t index, ps::sample<raw> out) const {
    const auto image = ps::get<"image">(out).flat();
    for (std::size_t i = 0; i < image.size(); ++i) image[i] = gpu::pixel(index, i);
    ps::get<"weight">(out) = static_cast<double>(index) / 3.0;
    std::uint8_t level = static_cast<std::uint8_t>(index);
    for (colour& c : ps::get<"colour">(out).flat()) c = {level++, 7, level};
    ps::get<"label">(out) = static_cast<std::uint16_t>(index);
  }
};

struct grey {
  [[nodiscard]] __host__ __device__ float operator()(colour c) const {
    return static_cast<float>(c.red) + static_cast<float>(c.blue) / 256.0F;
  }
};
struct narrowed {
  float factor;
  [[nodiscard]] __host__ __device__ float operator()(double x) const {
    return static_cast<float>(x) * factor;
  }
};

template <class T>
struct as {
  [[nodiscard]] __host__ __device__ T operator()(std::uint8_t x) const { return static_cast<T>(x); }
};

/// A batch in host memory, of any record.
template <class Record>
struct host_copy {
  ps::batch_layout<Record> layout;
  std::vector<std::byte> bytes;
  std::size_t size;

  template <class Batch>
  host_copy(const ps::cuda_device& device, const Batch& batch)
      : layout(batch.view().layout()), bytes(layout.bytes()), size(batch.size()) {
    device.copy_async(bytes.data(), batch.data(), layout.used_bytes(size), batch.stream());
    device.synchronize(batch.stream());
  }
  template <ps::name Name>
  [[nodiscard]] auto get() const {
    return ps::const_batch_view<Record>{bytes.data(), layout, 0, size}.template get<Name>();
  }
};

/// Runs a feed with a transform and gives every batch, in host memory, to `look(batch, first
/// sample)`.
template <class Transform, class Look>
void run(const samples& data, std::size_t batch_size, const Transform& transform, Look look) {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::loader loader{data, ps::sequential{}, device, {.batch_size = batch_size, .workers = 2}};
  ps::transfer feed{loader, stream, transform, {.depth = 2}};
  std::uint64_t first = 0;
  for (auto& batch : feed.epochs(0, 2)) {
    using record = typename std::remove_cvref_t<decltype(batch)>::record_type;
    look(host_copy<record>{device, batch}, first);
    first = (first + batch.size()) % data.count;
  }
}

}  // namespace

TEST_CASE("bytes become normalised floats on the device, and other fields pass through", "[gpu]") {
  const std::size_t length = GENERATE(1U, 15U, 784U, 4099U);
  const std::size_t batch_size = GENERATE(1U, 7U, 64U);
  CAPTURE(length, batch_size);
  const auto function = ps::normalised({.mean = 0.1307, .deviation = 0.3081});
  std::uint64_t wrong = 0;
  std::uint64_t seen = 0;
  run(samples{100, length}, batch_size, ps::on_device<"image">(function),
      [&](const auto& batch, std::uint64_t first) {
        const auto image = batch.template get<"image">();
        static_assert(std::is_same_v<typename decltype(image)::value_type, float>);
        for (std::size_t n = 0; n < batch.size; ++n) {
          for (std::size_t i = 0; i < length; ++i) {
            wrong += image(n, i) != function(gpu::pixel(first + n, i));  // the same bits as here
          }
          for (std::size_t i = 0; i < 5; ++i) {
            const auto level = static_cast<std::uint8_t>(first + n + i);
            const colour c = batch.template get<"colour">()(n, i);
            wrong +=
                c.red != level || c.green != 7 || c.blue != static_cast<std::uint8_t>(level + 1);
          }
          wrong += batch.template get<"weight">()(n) != static_cast<double>(first + n) / 3.0;
          wrong += batch.template get<"label">()(n) != first + n;
        }
        seen += batch.size;
      });
  CHECK(seen == 200);
  CHECK(wrong == 0);
}

TEST_CASE("several fields have functions of their own", "[gpu]") {
  std::uint64_t wrong = 0;
  run(samples{50, 3}, 16, ps::on_device<"colour", "weight">(grey{}, narrowed{6.0F}),
      [&](const auto& batch, std::uint64_t first) {
        for (std::size_t n = 0; n < batch.size; ++n) {
          for (std::size_t i = 0; i < 5; ++i) {
            const auto level = static_cast<std::uint8_t>(first + n + i);
            const colour c{level, 7, static_cast<std::uint8_t>(level + 1)};
            wrong += batch.template get<"colour">()(n, i) != grey{}(c);
          }
          wrong += batch.template get<"weight">()(n) !=
                   narrowed{6.0F}(static_cast<double>(first + n) / 3.0);
          for (std::size_t i = 0; i < 3; ++i)
            wrong += batch.template get<"image">()(n, i) != gpu::pixel(first + n, i);
        }
      });
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("elements may become wider, and stay as wide", "[gpu]", std::uint8_t,
                   std::uint16_t, float, double) {
  std::uint64_t wrong = 0;
  run(samples{70, 333}, 32, ps::on_device<"image">(as<TestType>{}),
      [&](const auto& batch, std::uint64_t first) {
        for (std::size_t n = 0; n < batch.size; ++n) {
          for (std::size_t i = 0; i < 333; ++i) {
            wrong += batch.template get<"image">()(n, i) !=
                     static_cast<TestType>(gpu::pixel(first + n, i));
          }
        }
      });
  CHECK(wrong == 0);
}

TEST_CASE("a large batch is transformed whole, four packs a thread", "[gpu]") {
  std::uint64_t wrong = 0;
  constexpr std::size_t length = 60'001;
  run(samples{200, length}, 100, ps::on_device<"image">(as<float>{}),
      [&](const auto& batch, std::uint64_t first) {
        for (std::size_t n = 0; n < batch.size; ++n) {
          for (std::size_t i = 0; i < length; ++i) {
            wrong +=
                batch.template get<"image">()(n, i) != static_cast<float>(gpu::pixel(first + n, i));
          }
        }
      });
  CHECK(wrong == 0);
}

TEST_CASE("a transform waits for the slot's earlier work, and later work for the transform", "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const samples data{300, 784};
  ps::loader loader{data, ps::sequential{}, device, {.batch_size = 10, .workers = 2}};
  ps::transfer feed{loader, stream, ps::on_device<"image">(as<float>{}), {.depth = 2}};
  std::vector<std::vector<float>> copies;
  for (auto& batch : feed.epoch(0)) {
    gpu::delay(stream.get(), 100'000);
    auto& copy = copies.emplace_back(batch.size() * 784);
    // Pageable memory: the call returns when the bytes are here.
    device.copy_async(copy.data(), ps::get<"image">(batch).data(), copy.size() * sizeof(float),
                      stream);
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  std::uint64_t wrong = 0;
  for (std::size_t b = 0; b < copies.size(); ++b) {
    for (std::size_t i = 0; i < copies[b].size(); ++i) {
      wrong += copies[b][i] != static_cast<float>(gpu::pixel(b * 10 + i / 784, i % 784));
    }
  }
  CHECK(copies.size() == 30);
  CHECK(wrong == 0);
}

#if defined(__CUDACC_EXTENDED_LAMBDA__)
TEST_CASE("a lambda with a declared result is a device function", "[gpu]") {
  const int offset = 5;
  const auto add = [offset] __device__(std::uint8_t x) -> int { return x + offset; };
  std::uint64_t wrong = 0;
  run(samples{40, 100}, 16, ps::on_device<"image">(add),
      [&](const auto& batch, std::uint64_t first) {
        for (std::size_t n = 0; n < batch.size; ++n) {
          for (std::size_t i = 0; i < 100; ++i)
            wrong += batch.template get<"image">()(n, i) != gpu::pixel(first + n, i) + 5;
        }
      });
  CHECK(wrong == 0);
}
#endif
