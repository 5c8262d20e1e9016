// SPDX-License-Identifier: BSL-1.0
// Measures transfers of floats that are narrowed before the copy and widened after it, on a GPU.
// Compares `narrowed` and `widen_on_device` with the same feed of plain floats, by the number of
// bytes of floats that arrive per second. Batches are always ready, so only the bus and the
// widening kernel are measured.
//
//   penstock_cuda_narrowed_bench [--json FILE] [--quick]
//
// --quick takes a second and only checks that the program works: do not quote its numbers. For each
// way, the program checks the first value that arrives, and reports an error if it is wrong.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock_ext/narrow/half.hpp>
#include <penstock_ext/narrow/widen_on_device.cuh>

#include "../support/ready_source.hpp"
#include "program.hpp"
#include "rows.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t slots = 3;
constexpr std::size_t samples = 64;

template <class T>
using values = ps::record<ps::field<"x", T, ps::dyn>>;
using scaled_bytes = ps::record<ps::field<"x", std::int8_t, ps::dyn>, ps::field<"x_scale", float>,
                                ps::field<"x_zero", float>>;

/// Batches of `length` elements per sample that represent 1, and a feed that converts them to
/// floats.
template <class Record, class Element, class... Transforms>
class way {
 public:
  way(const ps::cuda_device& device, const ps::cuda_stream& stream, std::size_t length,
      std::uint64_t count, Element one, Transforms... transforms)
      : device_(device),
        stream_(stream),
        layout_(lengths(length), samples),
        host_(device, layout_.bytes() * slots, ps::detail::memory_kind::pinned, layout_.bytes()),
        source_(device, layout_, host_.data(), layout_.bytes(), slots, count),
        feed_(source_, stream, transforms..., ps::transfer_options{.depth = slots}) {
    std::memset(host_.data(), 0, layout_.bytes() * slots);
    for (std::size_t slot = 0; slot < slots; ++slot) {
      std::byte* const at = host_.data() + slot * layout_.bytes();
      std::fill_n(reinterpret_cast<Element*>(at), samples * length, one);
      if constexpr (Record::size == 3) {  // byte 1 represents 0.25 + 0.75 * 1
        std::fill_n(reinterpret_cast<float*>(at + layout_.template offset<1>()), samples, 0.75F);
        std::fill_n(reinterpret_cast<float*>(at + layout_.template offset<2>()), samples, 0.25F);
      }
    }
  }

  /// Returns the duration of an epoch in seconds.
  [[nodiscard]] double operator()() {
    const auto begin = std::chrono::steady_clock::now();
    float first = 0.0F;
    bool is_first = true;
    for (auto& batch : feed_.epoch(0)) {
      if (!is_first) continue;
      is_first = false;
      device_.copy_async(reinterpret_cast<std::byte*>(&first),
                         reinterpret_cast<const std::byte*>(ps::get<"x">(batch).data()),
                         sizeof first, ps::cuda_stream_ref{stream_});
    }
    device_.synchronize(ps::cuda_stream_ref{stream_});
    const double taken = bench::seconds_since(begin);
    if (first != 1.0F) throw std::runtime_error("1 has arrived as " + std::to_string(first));
    return taken;
  }

 private:
  static ps::record_extents<Record> lengths(std::size_t length) {
    if constexpr (Record::size == 3) {
      return {{length}, {}, {}};
    } else {
      return {{length}};
    }
  }

  ps::cuda_device device_;
  const ps::cuda_stream& stream_;
  ps::batch_layout<Record> layout_;
  ps::detail::slab<ps::cuda_device> host_;
  bench::ready_source<Record, ps::cuda_device> source_;
  decltype(ps::transfer{std::declval<bench::ready_source<Record, ps::cuda_device>&>(),
                        std::declval<const ps::cuda_stream&>(), std::declval<Transforms>()...,
                        ps::transfer_options{}}) feed_;
};

template <class Record, class Element, class... Transforms>
std::shared_ptr<way<Record, Element, Transforms...>> feeding(const ps::cuda_device& device,
                                                             const ps::cuda_stream& stream,
                                                             std::size_t length,
                                                             std::uint64_t count, Element one,
                                                             Transforms... transforms) {
  return std::make_shared<way<Record, Element, Transforms...>>(device, stream, length, count, one,
                                                               transforms...);
}

void run(bench::rows& out, bool quick) {
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const auto widening = ps::widen_on_device<"x">();
  for (const std::size_t length : {std::size_t{784}, std::size_t{16'384}, std::size_t{150'528}}) {
    if (quick && length > 784) continue;
    const std::size_t floats = samples * length * sizeof(float);
    const std::uint64_t count =
        quick ? 6 : std::clamp<std::uint64_t>((std::uint64_t{1} << 30) / floats, 6, 2000);
    // Each way has its own memory, which is allocated when the way is first measured.
    const auto one_way = [&](const char* name, auto make) {
      return bench::way{name, [make] {
                          auto feed = make();
                          return [feed] { return (*feed)(); };
                        }};
    };
    const std::vector<bench::way> ways{
        one_way("float",
                [&] { return feeding<values<float>>(device, stream, length, count, 1.0F); }),
        one_way("half, widened",
                [&] {
                  return feeding<values<ps::half>>(device, stream, length, count, ps::half{1.0F},
                                                   widening);
                }),
        one_way("bfloat16, widened",
                [&] {
                  return feeding<values<ps::bfloat16>>(device, stream, length, count,
                                                       ps::bfloat16{1.0F}, widening);
                }),
        one_way("bytes, widened", [&] {
          return feeding<scaled_bytes>(device, stream, length, count, std::int8_t{1}, widening);
        })};
    const std::size_t values_of_batch = samples * length;
    const std::size_t travel[] = {values_of_batch * 4, values_of_batch * 2, values_of_batch * 2,
                                  values_of_batch + samples * 8};
    const auto found = bench::in_turns(quick ? 1 : 7, ways);
    const double moved = static_cast<double>(floats) * static_cast<double>(count) * 1e-9;
    const double floor = found[0].failed.empty() ? moved / found[0].value : 0.0;
    for (std::size_t at = 0; at < found.size(); ++at) {
      bench::measurement row = found[at];
      if (row.failed.empty()) row.value = moved / row.value;
      out.add("narrowed", ways[at].name, static_cast<double>(travel[at]), row, "GB/s",
              at == 0 ? 0.0 : floor);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(argc, argv, "narrowed_bench", [](bench::rows& out, bool quick) {
    out.group("narrowed", [&] { run(out, quick); });
  });
}
