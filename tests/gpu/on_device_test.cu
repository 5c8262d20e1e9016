// SPDX-License-Identifier: BSL-1.0
#include <penstock/cuda/on_device.cuh>
#include <penstock_ext/narrow/widen_on_device.cuh>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/narrow/narrowed.hpp>

#include "gpu/kernels.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// A type of three bytes, which cannot be packed.
struct colour {
  std::uint8_t red, green, blue;
};

using raw = ps::record<ps::field<"image", std::uint8_t, ps::dyn>, ps::field<"weight", double>,
                       ps::field<"colour", colour, 5>, ps::field<"label", std::uint16_t>>;

/// A dataset whose values depend on the sample and the position.
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

/// A copy of a batch in host memory, for any record.
template <class Record>
struct host_copy {
  ps::batch_layout<Record> layout;
  std::vector<std::byte> bytes;
  std::size_t size;

  template <class Batch>
  host_copy(const ps::cuda_device& device, const Batch& batch)
      : layout(batch.view().layout()), bytes(layout.bytes()), size(batch.size()) {
    // Copies field by field, because initcheck would report the unwritten bytes between fields.
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (copy_field<Is>(device, batch), ...);
    }(std::make_index_sequence<Record::size>{});
    device.synchronize(batch.stream());
  }
  template <std::size_t Index, class Batch>
  void copy_field(const ps::cuda_device& device, const Batch& batch) {
    const auto from = batch.view().template at<Index>();
    device.copy_async(bytes.data() + layout.template offset<Index>(),
                      reinterpret_cast<const std::byte*>(from.data()),
                      from.size() * sizeof(*from.data()), batch.stream());
  }
  template <ps::name Name>
  [[nodiscard]] auto get() const {
    return ps::const_batch_view<Record>{bytes.data(), layout, 0, size}.template get<Name>();
  }
};

/// Runs a feed with a transform, copies each batch to the host, and calls `look(batch, first
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

/// A dataset of all bit patterns of each narrow type, including NaN, infinities and denormals.
struct all_patterns {
  using record_type =
      ps::record<ps::field<"h", ps::half, ps::dyn>, ps::field<"b", ps::bfloat16, ps::dyn>,
                 ps::field<"s", std::int8_t, ps::dyn>, ps::field<"s_scale", float>,
                 ps::field<"s_zero", float>, ps::field<"f", std::int8_t, 3>,
                 ps::field<"label", std::uint16_t>>;
  std::uint64_t count;
  std::size_t length;
  [[nodiscard]] std::uint64_t size() const { return count; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{length}, {length}, {length}, {}, {}, {}, {}};
  }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const auto h = ps::get<"h">(out).flat();
    const auto b = ps::get<"b">(out).flat();
    const auto s = ps::get<"s">(out).flat();
    for (std::size_t i = 0; i < length; ++i) {
      const auto bits = static_cast<std::uint16_t>(index * length + i);
      h[i] = ps::half::from_bits(bits);
      // An odd factor, so that all values occur.
      b[i] = ps::bfloat16::from_bits(static_cast<std::uint16_t>(bits * 40503U));
      s[i] = static_cast<std::int8_t>(bits * 7U);
    }
    const auto step = static_cast<float>(index + 1);
    ps::get<"s_scale">(out) = index % 5 == 0 ? 0x1p-118F * step : 0.3F / step;
    ps::get<"s_zero">(out) = index % 3 == 0 ? 0.0F : 1e3F - 7.7F * step;
    std::uint8_t byte = static_cast<std::uint8_t>(index * 3);
    for (std::int8_t& value : ps::get<"f">(out).flat()) value = static_cast<std::int8_t>(byte++);
    ps::get<"label">(out) = static_cast<std::uint16_t>(index);
  }
};

/// A dataset of floats of many magnitudes and both signs.
struct spectra {
  using record_type = ps::record<ps::field<"h", float, ps::dyn>, ps::field<"b", float, ps::dyn>,
                                 ps::field<"s", float, ps::dyn>, ps::field<"f", float, 3>,
                                 ps::field<"label", std::uint16_t>>;
  std::uint64_t count;
  std::size_t length;
  [[nodiscard]] std::uint64_t size() const { return count; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{length}, {length}, {length}, {}, {}};
  }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    fill(ps::get<"h">(out).flat(), index * 4);
    fill(ps::get<"b">(out).flat(), index * 4 + 1);
    fill(ps::get<"s">(out).flat(), index * 4 + 2);
    fill(ps::get<"f">(out).flat(), index * 4 + 3);
    ps::get<"label">(out) = static_cast<std::uint16_t>(index);
  }

 private:
  static void fill(std::span<float> to, std::uint64_t key) {
    auto state = static_cast<std::uint32_t>(key * 2654435761U);
    for (float& value : to) {
      state = state * 1664525U + 1013904223U;
      const int exponent = static_cast<int>(state >> 28U) - 9;
      value = std::ldexp(static_cast<float>(state >> 8U & 0xffffU) / 65536.0F - 0.4F, exponent);
    }
  }
};

/// Returns the number of differing bytes in the fields of two batches.
template <ps::name... Names, class One, class Other>
std::uint64_t differing_bytes(const One& one, const Other& other) {
  const auto of_field = [](const auto& a, const auto& b) -> std::uint64_t {
    const auto bytes_a = std::as_bytes(a.flat());
    const auto bytes_b = std::as_bytes(b.flat());
    if (bytes_a.size() != bytes_b.size()) return 1;
    std::uint64_t differ = 0;
    for (std::size_t i = 0; i < bytes_a.size(); ++i) differ += bytes_a[i] != bytes_b[i];
    return differ;
  };
  return (of_field(one.template get<Names>(), ps::get<Names>(other)) + ...);
}

const ps::affine_scale of_f{0.3F, 0.7F};

/// Feeds the same data to the GPU and the CPU device, and compares the results bit by bit.
template <class Data>
void widen_on_both(const Data& data, std::size_t batch_size) {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const ps::loader_options options{.batch_size = batch_size, .workers = 2};
  ps::loader loader{data, ps::sequential{}, device, options};
  ps::transfer feed{loader, stream, ps::widen_on_device<"h", "b", "s", "f">(of_f), {.depth = 2}};
  const ps::cpu_device host;
  ps::loader host_loader{data, ps::sequential{}, host, options};
  ps::transfer host_feed{host_loader, host.inline_stream(), ps::widen<"h", "b", "s", "f">(of_f)};
  auto expected = host_feed.epochs(0, 2);
  auto next = expected.begin();
  std::uint64_t batches = 0;
  std::uint64_t wrong = 0;
  for (auto& batch : feed.epochs(0, 2)) {
    using record = typename std::remove_cvref_t<decltype(batch)>::record_type;
    static_assert(std::is_same_v<decltype(ps::get<"h">(batch).data()), float*>);
    gpu::delay(stream.get(), 20'000);
    wrong += differing_bytes<"h", "b", "s", "f", "label">(host_copy<record>{device, batch}, *next);
    ++next;
    ++batches;
  }
  CHECK(batches == 2 * loader.batches_per_epoch());
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every bit pattern of each narrow type is widened as on the host", "[gpu]") {
  SECTION("256 values a sample") { widen_on_both(all_patterns{256, 256}, 64); }
  SECTION("lengths that leave parts of packs") { widen_on_both(all_patterns{211, 311}, 7); }
  SECTION("a sample a batch") { widen_on_both(all_patterns{5, 1}, 1); }
  SECTION("so many that a thread makes four packs") { widen_on_both(all_patterns{60, 30'001}, 60); }
}

TEST_CASE("floats that were narrowed arrive as on the CPU device", "[gpu]") {
  const std::size_t length = GENERATE(1U, 255U, 1025U);
  CAPTURE(length);
  widen_on_both(spectra{90, length} | ps::narrowed<"h", ps::half>() |
                    ps::narrowed<"b", ps::bfloat16>() | ps::narrowed<"s", std::int8_t>() |
                    ps::narrowed<"f", std::int8_t>(of_f),
                32);
}

TEST_CASE("bytes become normalized floats on the device, and other fields pass through", "[gpu]") {
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
            // The host computes the same value.
            wrong += image(n, i) != function(gpu::pixel(first + n, i));
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

TEST_CASE("a transform waits for the slot's earlier work, and later work for the transform",
          "[gpu]") {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const samples data{300, 784};
  ps::loader loader{data, ps::sequential{}, device, {.batch_size = 10, .workers = 2}};
  ps::transfer feed{loader, stream, ps::on_device<"image">(as<float>{}), {.depth = 2}};
  std::vector<std::vector<float>> copies;
  for (auto& batch : feed.epoch(0)) {
    gpu::delay(stream.get(), 100'000);
    auto& copy = copies.emplace_back(batch.size() * 784);
    // The host memory is pageable, so the call returns only after the bytes have arrived.
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
