// SPDX-License-Identifier: BSL-1.0
// Converts bytes to normalized floats on a GPU. Compares the kernel of on_device with CUB's
// DeviceTransform and with the memory bandwidth, measured by a copy on the device that moves the
// same number of bytes.
//
//   penstock_cuda_on_device_bench [--json FILE] [--quick]
//
// --quick takes a second and only checks that the program works: do not quote its numbers. In the
// group "launch, L2" the batches are so small that a launch takes as long as the memory
// traffic, or that the ring stays in the L2 cache. Such rows measure the launch rate and not the
// memory.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/cuda/on_device.cuh>
#include <penstock/transfer/device_transform.hpp>

#if defined(__CUDACC__) && __has_include(<cub/device/device_transform.cuh>)
#include <cub/device/device_transform.cuh>
#define PENSTOCK_BENCH_HAS_CUB
#endif

#include "program.hpp"
#include "rows.hpp"

namespace {

namespace ps = penstock;
using record =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;

using bench::must;

/// Returns the duration of a call in seconds: the mean of `launches` consecutive launches on the
/// stream, measured with events.
template <class Launch>
double timed(cudaStream_t stream, int launches, Launch launch) {
  cudaEvent_t begin{};
  cudaEvent_t end{};
  must(cudaEventCreate(&begin));
  must(cudaEventCreate(&end));
  must(cudaEventRecord(begin, stream));
  for (int i = 0; i < launches; ++i) launch(i);
  must(cudaEventRecord(end, stream));
  must(cudaEventSynchronize(end));
  float milliseconds = 0.0F;
  must(cudaEventElapsedTime(&milliseconds, begin, end));
  must(cudaEventDestroy(begin));
  must(cudaEventDestroy(end));
  return 1e-3 * static_cast<double>(milliseconds) / launches;
}

void run(bench::rows& out, bool quick) {
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const auto function = ps::normalised({.mean = 0.1307, .deviation = 0.3081});
  const auto transform = ps::on_device<"image">(function);
  using floats = ps::detail::transformed_record_t<std::remove_cvref_t<decltype(transform)>, record>;
  for (const std::size_t batch :
       {std::size_t{64}, std::size_t{1024}, std::size_t{16384}, std::size_t{262144}}) {
    if (quick && batch > 1024) continue;
    const ps::batch_layout<record> in_layout{{}, batch};
    const ps::batch_layout<floats> out_layout{{}, batch};
    // The rings are larger than the caches, unless the batches are too small for that.
    const std::size_t ring =
        std::min<std::size_t>(16, (std::size_t{2} << 30) / out_layout.bytes() + 1);
    const ps::detail::slab<ps::cuda_device> in{device, in_layout.bytes() * ring,
                                               ps::detail::memory_kind::device};
    const ps::detail::slab<ps::cuda_device> made{device, out_layout.bytes() * ring,
                                                 ps::detail::memory_kind::device};
    must(cudaMemsetAsync(in.data(), 7, in.bytes(), stream.get()));
    const auto at = [&](int i) { return static_cast<std::size_t>(i) % ring; };
    const std::size_t moved = in_layout.used_bytes(batch) + out_layout.used_bytes(batch);
    const int launches = quick ? 2 : 64;
    // Number of bytes that a GPU with 5 TB/s moves in the time of one or two launches.
    const char* const group = moved < (std::size_t{16} << 20) ? "launch, L2" : "on_device";
    std::vector<bench::way> ways;
    ways.push_back({"copy on the device", [&] {
                      return [&] {
                        return timed(stream.get(), launches, [&](int i) {
                          must(cudaMemcpyAsync(made.data() + at(i) * out_layout.bytes(),
                                               made.data() + at(i + 1) * out_layout.bytes(),
                                               moved / 2, cudaMemcpyDeviceToDevice, stream.get()));
                        });
                      };
                    }});
    ways.push_back({"on_device", [&] {
                      transform.prepare(device, in_layout);
                      return [&] {
                        return timed(stream.get(), launches, [&](int i) {
                          transform.enqueue(
                              ps::const_batch_view<record>{in.data() + at(i) * in_layout.bytes(),
                                                           in_layout, 0, batch},
                              ps::batch_view<floats>{made.data() + at(i) * out_layout.bytes(),
                                                     out_layout, 0, batch},
                              ps::cuda_stream_ref{stream});
                        });
                      };
                    }});
#ifdef PENSTOCK_BENCH_HAS_CUB
    ways.push_back(
        {"CUB DeviceTransform, no labels", [&] {
           return [&] {
             return timed(stream.get(), launches, [&](int i) {
               must(cub::DeviceTransform::Transform(
                   reinterpret_cast<const std::uint8_t*>(in.data() + at(i) * in_layout.bytes()),
                   reinterpret_cast<float*>(made.data() + at(i) * out_layout.bytes()),
                   static_cast<int>(batch * 784), function, stream.get()));
             });
           };
         }});
#endif
    out.compare(group, static_cast<double>(moved), quick ? 1 : 9, "us", ways,
                [](double seconds) { return seconds * 1e6; });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(argc, argv, "on_device_bench", [](bench::rows& out, bool quick) {
    out.group("on_device", [&] { run(out, quick); });
  });
}
