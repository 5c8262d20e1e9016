// SPDX-License-Identifier: BSL-1.0
// What the bus gives and what the transfer makes of it, on a GPU: bandwidth over sizes by pageable,
// pinned and registered memory against a plain loop of cudaMemcpyAsync, the cost of pinning, and
// the time of the consumer's thread at tiny batches against the same calls made by hand.
//
//   penstock_cuda_transfer_bench [--json FILE] [--quick]
//
// --quick takes a second: to see whether it works, not to be quoted.
//
// Every figure stands beside its floor, measured in turns with it.

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <time.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/memory/registered_memory.hpp>

#include "program.hpp"
#include "ready_source.hpp"
#include "rows.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;

void must(cudaError_t code) {
  if (code != cudaSuccess) {
    std::fprintf(stderr, "transfer_bench: %s\n", cudaGetErrorString(code));
    std::exit(1);
  }
}

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

using ready_bytes = bench::ready_source<ps::record<ps::field<"bytes", std::uint8_t, ps::dyn>>>;

constexpr std::size_t slots = 3;

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// `count` batches of `bytes` bytes, always ready, out of a ring of three.
ready_bytes ready(const ps::cuda_device& device, const std::byte* data, std::size_t bytes,
                  std::uint64_t count) {
  return {device, {{{bytes}}, 1}, data, padded(bytes), slots, count};
}

/// `count` copies of `bytes` bytes on one stream, from and to rings of three.
double plain_loop(const std::byte* from, std::byte* to, std::size_t bytes, std::uint64_t count,
                  cudaStream_t stream) {
  const auto begin = clock_type::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t at = i % slots * padded(bytes);
    must(cudaMemcpyAsync(to + at, from + at, bytes, cudaMemcpyHostToDevice, stream));
  }
  must(cudaStreamSynchronize(stream));
  return bench::seconds_since(begin);
}

double feed_loop(const ps::cuda_device& device, const ps::cuda_stream& stream,
                 ps::transfer<ready_bytes&>& feed) {
  const auto begin = clock_type::now();
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  device.synchronize(ps::cuda_stream_ref{stream});
  return bench::seconds_since(begin);
}

void bandwidth(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  const std::size_t most = std::size_t{quick ? 1U : 256U} << 20;
  for (std::size_t bytes = 4096; bytes <= most; bytes *= 4) {
    const std::size_t ring = padded(bytes) * slots;
    // About 20 ms at 50 GB/s, and enough copies to get going.
    std::uint64_t count = std::max<std::uint64_t>(6, (std::uint64_t{1} << 30) / bytes);
    count = std::min<std::uint64_t>(count, quick ? 30 : 4000);

    const ps::detail::slab<ps::cuda_device> there{device, ring, ps::detail::memory_kind::device};
    const ps::detail::slab<ps::cuda_device> pageable{device, ring,
                                                     ps::detail::memory_kind::pageable};
    const ps::detail::slab<ps::cuda_device> ours{device, ring, ps::detail::memory_kind::pinned,
                                                 padded(bytes)};
    void* plain = nullptr;
    must(cudaHostAlloc(&plain, ring, cudaHostAllocDefault));
    std::memset(plain, 1, ring);
    std::vector<std::byte> vector(ring, std::byte{1});
    const ps::registered_memory registered{device, std::span{vector}};

    auto from_ours = ready(device, ours.data(), bytes, count);
    auto from_pageable = ready(device, pageable.data(), bytes, count);
    auto from_registered = ready(device, vector.data(), bytes, count);
    ps::transfer feed{from_ours, stream, {.depth = slots}};
    ps::transfer pageable_feed{from_pageable, stream, {.depth = slots}};
    ps::transfer registered_feed{from_registered, stream, {.depth = slots}};

    const auto* plain_bytes = static_cast<const std::byte*>(plain);
    const auto loop = [&](const std::byte* from) {
      return plain_loop(from, there.data(), bytes, count, stream.get());
    };
    const auto seconds = bench::in_turns(
        quick ? 1 : 5, [&] { return loop(plain_bytes); }, [&] { return loop(pageable.data()); },
        [&] { return loop(vector.data()); }, [&] { return loop(ours.data()); },
        [&] { return feed_loop(device, stream, feed); },
        [&] { return feed_loop(device, stream, pageable_feed); },
        [&] { return feed_loop(device, stream, registered_feed); });
    const char* names[] = {"loop, cudaHostAlloc", "loop, pageable",   "loop, registered",
                           "loop, our slab",      "transfer, pinned", "transfer, pageable",
                           "transfer, registered"};
    const double moved = static_cast<double>(bytes) * static_cast<double>(count) * 1e-9;
    for (std::size_t way = 0; way < seconds.size(); ++way) {
      out.add("bandwidth", names[way], static_cast<double>(bytes), moved / seconds[way], "GB/s",
              way == 0 ? 0.0 : moved / seconds[0]);
    }
    must(cudaFreeHost(plain));
  }
}

void pinning(const ps::cuda_device& device, bench::rows& out, bool quick) {
  for (const std::size_t bytes : {std::size_t{64} << 20, std::size_t{1} << 30}) {
    if (quick && bytes > std::size_t{64} << 20) continue;
    const double per_gib = static_cast<double>(std::size_t{1} << 30) / static_cast<double>(bytes);
    const auto seconds = bench::in_turns(
        quick ? 1 : 3,
        [&] {
          const auto begin = clock_type::now();
          void* data = nullptr;
          must(cudaHostAlloc(&data, bytes, cudaHostAllocDefault));
          const double taken = bench::seconds_since(begin);
          must(cudaFreeHost(data));
          return taken;
        },
        [&] {
          const auto begin = clock_type::now();
          void* data =
              ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
          must(cudaHostRegister(data, bytes, cudaHostRegisterPortable));
          const double taken = bench::seconds_since(begin);
          must(cudaHostUnregister(data));
          ::munmap(data, bytes);
          return taken;
        },
        [&] {
          const auto begin = clock_type::now();
          const auto block = device.allocate_pinned(bytes);
          const double taken = bench::seconds_since(begin);
          device.deallocate_pinned(block.data, bytes);
          return taken;
        });
    const char* names[] = {"cudaHostAlloc", "mmap and cudaHostRegister", "cuda_device"};
    for (std::size_t way = 0; way < seconds.size(); ++way) {
      out.add("pinning", names[way], static_cast<double>(bytes), seconds[way] * per_gib, "s/GiB",
              way == 0 ? 0.0 : seconds[0] * per_gib);
    }
  }
}

/// The calls of one batch by hand: the least that the protocol takes.
double calls_by_hand(const std::byte* from, std::byte* to, std::size_t bytes, std::uint64_t count,
                     cudaStream_t stream, cudaStream_t copies) {
  std::vector<cudaEvent_t> events(slots * 2);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const unsigned flags = i % 2 == 0 ? 0U : cudaEventBlockingSync;
    must(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming | flags));
  }
  const auto begin = clock_type::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t slot = i % slots;
    cudaEvent_t* of_slot = &events[slot * 2];  // released; copied, that is drained
    must(cudaStreamWaitEvent(copies, of_slot[0], 0));
    must(cudaMemcpyAsync(to + slot * padded(bytes), from + slot * padded(bytes), bytes,
                         cudaMemcpyHostToDevice, copies));
    must(cudaEventRecord(of_slot[1], copies));
    must(cudaStreamWaitEvent(stream, of_slot[1], 0));
    must(cudaEventRecord(of_slot[0], stream));
  }
  const double taken = bench::seconds_since(begin);
  must(cudaStreamSynchronize(stream));
  must(cudaStreamSynchronize(copies));
  for (const auto event : events) must(cudaEventDestroy(event));
  return taken;
}

struct small_digits {
  using record_type =
      ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
  [[nodiscard]] std::uint64_t size() const { return 60'000; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    std::memset(ps::get<"image">(out).data(), static_cast<int>(index), 784);
    ps::get<"label">(out) = static_cast<std::uint8_t>(index);
  }
};

void tiny_batches(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  const auto copies = device.make_stream();
  // Few enough that the streams' queues never fill: then the host would wait for the GPU.
  constexpr std::uint64_t burst = 100;
  const int repetitions = quick ? 3 : 101;
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{64 * 785}}) {
    const ps::detail::slab<ps::cuda_device> there{device, padded(bytes) * slots,
                                                  ps::detail::memory_kind::device};
    const ps::detail::slab<ps::cuda_device> host{device, padded(bytes) * slots,
                                                 ps::detail::memory_kind::pinned};
    auto source = ready(device, host.data(), bytes, burst);
    ps::transfer feed{source, stream, {.depth = slots}};
    const auto seconds = bench::in_turns(
        repetitions,
        [&] {
          return calls_by_hand(host.data(), there.data(), bytes, burst, stream.get(), copies.get());
        },
        [&] {
          const auto begin = clock_type::now();
          for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
          const double taken = bench::seconds_since(begin);
          device.synchronize(ps::cuda_stream_ref{stream});
          return taken;
        });
    const double by_hand = seconds[0] / burst * 1e6;
    out.add("tiny", "calls by hand", static_cast<double>(bytes), by_hand, "us/batch");
    out.add("tiny", "transfer, batches ready", static_cast<double>(bytes), seconds[1] / burst * 1e6,
            "us/batch", by_hand);
  }
  for (const std::size_t workers : {std::size_t{1}, std::size_t{8}}) {
    ps::loader loader{
        small_digits{}, ps::shuffled{.seed = 1}, device, {.batch_size = 64, .workers = workers}};
    ps::transfer feed{loader, stream, {.depth = slots}};
    std::vector<double> cpu;
    std::vector<double> wall;
    for (int turn = 0; turn < (quick ? 1 : 5); ++turn) {
      const double cpu_begin = thread_seconds();
      const auto begin = clock_type::now();
      for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
      cpu.push_back(thread_seconds() - cpu_begin);
      wall.push_back(bench::seconds_since(begin));
      device.synchronize(ps::cuda_stream_ref{stream});
    }
    const auto batches = static_cast<double>(loader.batches_per_epoch());
    const std::string with = "loader, " + std::to_string(workers) + " workers, ";
    out.add("tiny", with + "thread's CPU", 64 * 785, bench::median(cpu) / batches * 1e6,
            "us/batch");
    out.add("tiny", with + "wall", 64 * 785, bench::median(wall) / batches * 1e6, "us/batch");
  }
}

std::string versions() {
  int driver = 0;
  int runtime = 0;
  must(cudaDriverGetVersion(&driver));
  must(cudaRuntimeGetVersion(&runtime));
  return "\"driver_cuda\": " + std::to_string(driver) + ", \"runtime\": " + std::to_string(runtime);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(argc, argv, "transfer_bench", [](bench::rows& out, bool quick) {
    const ps::cuda_device device{0};
    bandwidth(device, out, quick);
    pinning(device, out, quick);
    tiny_batches(device, out, quick);
    return versions();
  });
}
