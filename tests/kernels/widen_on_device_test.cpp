// SPDX-License-Identifier: BSL-1.0
// Tests the unchanged kernels of `widen_on_device` on the fake CUDA runtime. The bits must equal
// those on the CPU device, for ragged lengths and in any order of blocks and threads.
#include <penstock_ext/narrow/widen_on_device.cuh>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/narrow/narrowed.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using fake_cuda::order;

using four_fields = ps::record<ps::field<"a", float, ps::dyn>, ps::field<"b", float, ps::dyn>,
                               ps::field<"label", std::uint16_t>, ps::field<"c", float, 3>,
                               ps::field<"d", float, ps::dyn>>;

struct noises {
  using record_type = four_fields;
  std::size_t length;
  [[nodiscard]] std::uint64_t size() const { return 1000; }
  [[nodiscard]] ps::record_extents<four_fields> extents() const {
    return {{length}, {length}, {}, {}, {length}};
  }
  void read(std::uint64_t index, ps::sample<four_fields> out) const {
    fill(ps::get<"a">(out).flat(), index * 5);
    fill(ps::get<"b">(out).flat(), index * 5 + 1);
    fill(ps::get<"c">(out).flat(), index * 5 + 2);
    fill(ps::get<"d">(out).flat(), index * 5 + 3);
    ps::get<"label">(out) = static_cast<std::uint16_t>(index + 77);
  }

 private:
  static void fill(std::span<float> to, std::uint64_t key) {
    auto state = static_cast<std::uint32_t>(key * 2654435761U);
    for (float& value : to) {
      state = state * 1664525U + 1013904223U;
      value = (static_cast<float>(state >> 8U) / 16777216.0F - 0.4F) * static_cast<float>(key + 1);
    }
  }
};

const ps::affine_scale of_c{0.3F, 0.7F};

/// Returns the output of a transform for `samples` samples of `data`, computed on the device of the
/// stream.
template <class Made, class Device, class Stream, class Data, class Transform>
std::vector<std::byte> bytes_out_of(const Device& device, const Stream& stream, const Data& data,
                                    const Transform& how, std::size_t samples) {
  using in_record = typename Data::record_type;
  const ps::batch_layout<in_record> from{ps::extents_of(data), samples};
  const ps::batch_layout<Made> to{how.extents(from.extents()), samples};
  std::vector<std::byte> given(from.bytes());
  std::vector<std::byte> found(to.bytes());
  std::vector<std::uint64_t> indices(samples);
  for (std::size_t i = 0; i < samples; ++i) indices[i] = i;
  ps::reader reader{data};
  reader.read(indices, {given.data(), from, 0, samples}, {});
  const ps::detail::slab in{device, from.bytes(), ps::detail::memory_kind::device};
  const ps::detail::slab out{device, to.bytes(), ps::detail::memory_kind::device};
  if constexpr (requires { how.prepare(device, from); }) how.prepare(device, from);
  std::vector<std::byte> poison(to.bytes(), std::byte{0x5a});
  device.copy_async(out.data(), poison.data(), poison.size(), stream);
  device.copy_async(in.data(), given.data(), given.size(), stream);
  how.enqueue(ps::const_batch_view<in_record>{in.data(), from, 0, samples},
              ps::batch_view<Made>{out.data(), to, 0, samples}, stream);
  device.copy_async(found.data(), out.data(), found.size(), stream);
  device.synchronize(stream);
  return found;
}

}  // namespace

TEST_CASE("narrowed values are widened on CUDA to the same bits as on the CPU device",
          "[kernels][promise:exact-18]") {
  fake_cuda::reset(
      {.seed = 21, .kernels = GENERATE(order::forwards, order::backwards, order::seeded)});
  const auto on_cpu = ps::widen<"a", "b", "c", "d">(of_c);
  const auto on_cuda = ps::widen_on_device<"a", "b", "c", "d">(of_c);
  // Lengths around packs of 4 elements and around blocks of 1,024 elements.
  for (const std::size_t length : {1U, 3U, 4U, 5U, 255U, 1023U, 1025U}) {
    for (const std::size_t samples : {1U, 7U, 30U}) {
      CAPTURE(length, samples);
      const auto data = noises{length} | ps::narrowed<"a", std::int8_t>() |
                        ps::narrowed<"b", ps::half>() | ps::narrowed<"c", std::int8_t>(of_c) |
                        ps::narrowed<"d", ps::bfloat16>();
      const ps::cpu_device cpu;
      const ps::cuda_device cuda;
      const auto stream = cuda.make_stream();
      const auto expected =
          bytes_out_of<four_fields>(cpu, cpu.inline_stream(), data, on_cpu, samples);
      const auto found =
          bytes_out_of<four_fields>(cuda, ps::cuda_stream_ref{stream}, data, on_cuda, samples);
      // Not inside CHECK, because the values are too long to print.
      const bool is_same = found == expected;
      CHECK(is_same);
    }
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a quotient by a known divisor is that of the division", "[kernels]") {
  std::size_t wrong = 0;
  for (const std::uint64_t by :
       {1ULL, 2ULL, 3ULL, 7ULL, 784ULL, 65535ULL, 65537ULL, 2147483647ULL, 2147483649ULL,
        4294967295ULL, 4294967296ULL, 10000000001ULL, 1ULL << 63U, ~0ULL}) {
    const ps::detail::known_divisor divisor{static_cast<std::size_t>(by)};
    for (const std::uint64_t times : {0ULL, 1ULL, 2ULL, 5ULL, 1000ULL, 5478274ULL, 4294967295ULL}) {
      for (const std::uint64_t rest : {std::uint64_t{0}, std::uint64_t{1}, by / 2, by - 1}) {
        if (by > (std::uint64_t{1} << 40U) / (times + 1)) continue;
        const std::uint64_t of = by * times + rest;
        wrong += divisor.quotient(static_cast<std::size_t>(of)) != of / by ? 1U : 0U;
      }
    }
    for (std::uint64_t less = 0; less < 50; ++less) {
      wrong += divisor.quotient(static_cast<std::size_t>(~less)) != ~less / by ? 1U : 0U;
    }
    for (std::uint64_t of = 4294967296ULL - 50; of < 4294967296ULL + 50; ++of) {
      wrong += divisor.quotient(static_cast<std::size_t>(of)) != of / by ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
}
