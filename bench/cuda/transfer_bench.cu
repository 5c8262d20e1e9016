// SPDX-License-Identifier: BSL-1.0
// Measures the bus and the transfer on a GPU: bandwidth over sizes in both directions, bulk uploads
// compared with a single copy, the time of the consumer thread with tiny batches, and steps on fed
// batches compared with steps on resident batches.
//
//   penstock_cuda_transfer_bench [--json FILE] [--quick]
//
// --quick takes a second. Such a run checks that the program works; the numbers must not be quoted.
//
// Every number is shown with its floor, measured in rotation with it. If the system rejects a way,
// its row contains the reason, and the other rows are not affected.

#include <cuda_runtime.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/memory/registered_memory.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/results/results.hpp>

#include "../support/ready_source.hpp"
#include "program.hpp"
#include "rows.hpp"
#include "spin.cuh"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;

using bench::must;

/// Keeps the stream busy for about `nanoseconds`.
__global__ void spin(std::uint64_t nanoseconds) { bench::spin_for(nanoseconds); }

/// Keeps the stream busy for about `nanoseconds`. Throws if the launch fails.
void keep_busy(cudaStream_t stream, std::uint64_t nanoseconds) {
  spin<<<1, 1, 0, stream>>>(nanoseconds);
  must(cudaGetLastError());
}

using ready_bytes =
    bench::ready_source<ps::record<ps::field<"bytes", std::uint8_t, ps::dyn>>, ps::cuda_device>;

constexpr std::size_t slots = 3;

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

/// Returns a source of `count` batches of `bytes` bytes, always ready, in a ring of three buffers.
ready_bytes ready(const ps::cuda_device& device, const std::byte* data, std::size_t bytes,
                  std::uint64_t count) {
  return {device, {{{bytes}}, 1}, data, padded(bytes), slots, count};
}

/// Makes `count` copies of `bytes` bytes on a stream, between two rings of three buffers each.
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

/// Page-locked memory from the runtime's own call.
struct plain_pinned {
  explicit plain_pinned(std::size_t bytes) {
    void* made = nullptr;
    must(cudaHostAlloc(&made, bytes, cudaHostAllocDefault));
    std::memset(made, 1, bytes);
    data = static_cast<std::byte*>(made);
  }
  plain_pinned(plain_pinned&&) = delete;
  ~plain_pinned() { static_cast<void>(cudaFreeHost(data)); }
  std::byte* data = nullptr;
};

/// A ring of batches in memory of a given kind, and a feed that copies them.
struct ready_feed {
  ready_feed(const ps::cuda_device& device, const ps::cuda_stream& stream, const std::byte* data,
             std::size_t bytes, std::uint64_t count)
      : source(ready(device, data, bytes, count)), feed(source, stream, {.depth = slots}) {}
  ready_bytes source;
  ps::transfer<ready_bytes&> feed;
};

using slab = ps::detail::slab<ps::cuda_device>;
using measured = std::function<double()>;

/// Registered memory that has its own pages, because the runtime rejects memory that shares a page
/// with registered memory.
struct registered_pages {
  struct free_pages {
    void operator()(std::byte* pages) const { ::operator delete(pages, std::align_val_t{4096}); }
  };

  registered_pages(const ps::cuda_device& device, std::size_t at_least)
      : bytes((at_least + 4095) / 4096 * 4096),
        data(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{4096}))),
        locked(device, std::span{data.get(), bytes}) {
    std::fill_n(data.get(), bytes, std::byte{1});
  }
  std::size_t bytes;
  std::unique_ptr<std::byte, free_pages> data;
  ps::registered_memory<ps::cuda_device> locked;
};

void bandwidth(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  const std::size_t max = std::size_t{quick ? 1U : 256U} << 20;
  for (std::size_t bytes = 4096; bytes <= max; bytes *= quick ? 256 : 4) {
    const std::size_t ring = padded(bytes) * slots;
    // About 20 ms at 50 GB/s, and enough copies to reach a steady state.
    std::uint64_t count = std::max<std::uint64_t>(6, (std::uint64_t{1} << 30) / bytes);
    count = std::min<std::uint64_t>(count, quick ? 10 : 4000);
    const slab there{device, ring, ps::detail::memory_kind::device};
    // The memory lives as long as the returned function.
    const auto fed = [&](const std::byte* data, auto memory) -> measured {
      auto one = std::make_shared<ready_feed>(device, stream, data, bytes, count);
      return [&, memory, one] { return feed_loop(device, stream, one->feed); };
    };
    const double moved = static_cast<double>(bytes) * static_cast<double>(count) * 1e-9;
    out.compare("bandwidth", static_cast<double>(bytes), quick ? 1 : 5, "GB/s",
                {{"loop, cudaHostAlloc",
                  [&]() -> measured {
                    auto memory = std::make_shared<plain_pinned>(ring);
                    return [&, memory] {
                      return plain_loop(memory->data, there.data(), bytes, count, stream.get());
                    };
                  }},
                 {"transfer, pinned",
                  [&] {
                    constexpr auto pinned = ps::detail::memory_kind::pinned;
                    auto memory = std::make_shared<slab>(device, ring, pinned, padded(bytes));
                    return fed(memory->data(), memory);
                  }},
                 {"transfer, registered",
                  [&] {
                    auto memory = std::make_shared<registered_pages>(device, ring);
                    return fed(memory->data.get(), memory);
                  }}},
                [&](double seconds) { return moved / seconds; });
  }
}

using result_bytes = ps::record<ps::field<"bytes", std::uint8_t, ps::dyn>>;

/// Measures transfers to the host: plain copies in both directions, and `results` whose consumer
/// does nothing, with different numbers of results in flight.
void download(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  for (const std::size_t bytes :
       {std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{16} << 20}) {
    if (quick && bytes > std::size_t{1} << 20) continue;
    const slab there{device, padded(bytes) * slots, ps::detail::memory_kind::device};
    const slab here{device, padded(bytes) * slots, ps::detail::memory_kind::pinned};
    must(cudaMemsetAsync(there.data(), 1, there.bytes(), stream.get()));
    const int count = quick ? 6 : 100;
    const auto copies = [&](std::byte* to, const std::byte* from, cudaMemcpyKind kind) {
      return measured{[&, to, from, kind] {
        const auto begin = clock_type::now();
        for (int i = 0; i < count; ++i) {
          const std::size_t at = static_cast<std::size_t>(i) % slots * padded(bytes);
          must(cudaMemcpyAsync(to + at, from + at, bytes, kind, stream.get()));
        }
        must(cudaStreamSynchronize(stream.get()));
        return bench::seconds_since(begin);
      }};
    };
    const auto returned = [&](const ps::results_options& options) {
      const ps::batch_layout<result_bytes> layout{{{bytes}}, 1};
      auto way = std::make_shared<ps::results<result_bytes, ps::cuda_device>>(
          device, stream, layout, [](const auto&) {}, options);
      return measured{[&, way] {
        const auto begin = clock_type::now();
        for (int i = 0; i < count; ++i) {
          const auto number = static_cast<std::uint64_t>(i);
          way->acquire(ps::batch_info{.batch = number, .size = 1, .valid_size = 1}).send();
        }
        way->finish();
        return bench::seconds_since(begin);
      }};
    };
    std::vector<bench::way> ways{
        {"device to host",
         [&] { return copies(here.data(), there.data(), cudaMemcpyDeviceToHost); }},
        {"host to device",
         [&] { return copies(there.data(), here.data(), cudaMemcpyHostToDevice); }},
        {"results", [&] { return returned({}); }}};
    for (const std::size_t depth : {1U, 2U, 4U, 8U}) {
      ways.push_back({"results, depth " + std::to_string(depth),
                      [&returned, depth] { return returned({.depth = depth}); }});
    }
    out.compare(
        "download", static_cast<double>(bytes), quick ? 1 : 9, "GB/s", ways,
        [&](double seconds) { return static_cast<double>(bytes) * count * 1e-9 / seconds; });
  }
}

/// A bulk source that always copies with `std::memcpy`, unlike `ps::memory_source`.
class memcpy_source {
 public:
  explicit memcpy_source(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }

 private:
  std::span<const std::byte> bytes_;
};

/// Measures bulk transfers of weights from ordinary memory to the device and back, through the ring
/// of page-locked pieces. Compares them with a single copy. `memory_source` writes the ring with
/// non-temporal stores.
void bulk(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  const std::size_t bytes = std::size_t{quick ? 1U : 512U} << 20;
  const slab there{device, bytes, ps::detail::memory_kind::device};
  std::vector<std::byte> here(bytes, std::byte{1});
  const auto copied = [&](const std::byte* from, const std::shared_ptr<plain_pinned>& memory) {
    return measured{[&, from, memory] {
      const auto begin = clock_type::now();
      must(cudaMemcpy(there.data(), from, bytes, cudaMemcpyHostToDevice));
      return bench::seconds_since(begin);
    }};
  };
  const std::span<std::byte> weights{there.data(), bytes};
  using copier = ps::bulk_copier<ps::cuda_device>;
  const auto moved = [&](std::size_t workers, const auto& begin_on) {
    ps::bulk_options how{.workers = workers};
    if (quick) how.piece_bytes = 64 << 10;
    auto by = std::make_shared<copier>(device, how);
    return measured{[by, begin_on] {
      const auto begin = clock_type::now();
      begin_on(*by).wait();
      return bench::seconds_since(begin);
    }};
  };
  const auto upload = [&](copier& by) {
    return by.upload(stream, weights, ps::memory_source{here});
  };
  const auto upload_by_memcpy = [&](copier& by) {
    return by.upload(stream, weights, memcpy_source{here});
  };
  const auto download = [&](copier& by) {
    return by.download(stream, ps::memory_sink{here}, weights);
  };
  std::vector<bench::way> ways{
      {"one pinned cudaMemcpy",
       [&] {
         auto memory = std::make_shared<plain_pinned>(bytes);
         return copied(memory->data, memory);
       }},
      {"one pageable cudaMemcpy", [&] { return copied(here.data(), nullptr); }}};
  for (const std::size_t workers : {2U, 4U, 8U}) {
    const std::string with = std::to_string(workers) + " workers";
    ways.push_back({"upload, " + with, [&, workers] { return moved(workers, upload); }});
    ways.push_back(
        {"upload by memcpy, " + with, [&, workers] { return moved(workers, upload_by_memcpy); }});
  }
  ways.push_back({"download, 4 workers", [&] { return moved(4, download); }});
  out.compare("bulk", static_cast<double>(bytes), quick ? 1 : 3, "GB/s", ways,
              [&](double seconds) { return static_cast<double>(bytes) * 1e-9 / seconds; });
}

/// Makes the calls for a batch by hand: a wait, a copy, a record, a wait and a record. Returns the
/// time that the host needs to queue them.
double calls_by_hand(const std::byte* from, std::byte* to, std::size_t bytes, std::uint64_t count,
                     cudaStream_t stream, cudaStream_t copies) {
  std::vector<cudaEvent_t> events(slots * 2);
  for (cudaEvent_t& event : events) {
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  const auto begin = clock_type::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t slot = i % slots;
    cudaEvent_t* of_slot = &events[slot * 2];  // released; copied, which means drained
    must(cudaStreamWaitEvent(copies, of_slot[0], 0));
    must(cudaMemcpyAsync(to + slot * padded(bytes), from + slot * padded(bytes), bytes,
                         cudaMemcpyHostToDevice, copies));
    must(cudaEventRecord(of_slot[1], copies));
    must(cudaStreamWaitEvent(stream, of_slot[1], 0));
    must(cudaEventRecord(of_slot[0], stream));
  }
  const double queued = bench::seconds_since(begin);
  must(cudaStreamSynchronize(stream));
  for (const auto event : events) must(cudaEventDestroy(event));
  return queued;
}

struct small_digits {
  using record_type =
      ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    std::memset(ps::get<"image">(out).data(), static_cast<int>(index), 784);
    ps::get<"label">(out) = static_cast<std::uint8_t>(index);
  }

  std::uint64_t count = 60'000;
};

/// Measures the time that the consumer thread spends on a batch that is ready.
void tiny_batches(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  const auto copies = device.make_stream();
  // Few enough launches that the streams' queues never fill up. Otherwise, the host would wait for
  // the GPU.
  const std::uint64_t burst = quick ? 20 : 100;
  const int repetitions = quick ? 1 : 101;
  const auto per_batch = [burst](double seconds) {
    return seconds / static_cast<double>(burst) * 1e6;
  };
  const auto host_time = [&](auto& feed, auto body) {
    const auto begin = clock_type::now();
    for (auto& batch : feed.epoch(0)) body(batch);
    const double taken = bench::seconds_since(begin);
    device.synchronize(ps::cuda_stream_ref{stream});
    return taken;
  };
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{64 * 785}}) {
    const slab there{device, padded(bytes) * slots, ps::detail::memory_kind::device};
    const slab host{device, padded(bytes) * slots, ps::detail::memory_kind::pinned};
    out.compare("tiny", static_cast<double>(bytes), repetitions, "us/batch",
                {{"calls by hand",
                  [&] {
                    return [&] {
                      return calls_by_hand(host.data(), there.data(), bytes, burst, stream.get(),
                                           copies.get());
                    };
                  }},
                 {"transfer, batches ready",
                  [&] {
                    auto one =
                        std::make_shared<ready_feed>(device, stream, host.data(), bytes, burst);
                    return [&, one] { return host_time(one->feed, [](auto&) {}); };
                  }}},
                per_batch);
  }
}

/// Returns the processor time of the calling thread, which other programs do not increase.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void loaders(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  constexpr double bytes = 64 * 785;
  for (const std::size_t workers : {std::size_t{1}, std::size_t{8}, std::size_t{16}}) {
    ps::loader loader{small_digits{quick ? 1'280U : 60'000U},
                      ps::shuffled{.seed = 1},
                      device,
                      {.batch_size = 64, .workers = workers}};
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
    out.add("tiny", with + "thread's CPU", bytes, bench::median(cpu) / batches * 1e6, "us/batch");
    out.add("tiny", with + "wall", bytes, bench::median(wall) / batches * 1e6, "us/batch");
  }
}

/// Measures steps of a modeled length on batches from a feed. The floor is the same steps on a
/// batch that stays in place.
void fed_steps(const ps::cuda_device& device, bench::rows& out, bool quick) {
  const auto stream = device.make_stream();
  const std::size_t bytes = std::size_t{256} << 10;
  const std::uint64_t count = quick ? 10 : 500;
  const slab host{device, padded(bytes) * slots, ps::detail::memory_kind::pinned};
  const auto timed = [&](const auto& steps) {
    const auto begin = clock_type::now();
    steps();
    must(cudaStreamSynchronize(stream.get()));
    return bench::seconds_since(begin);
  };
  for (const std::uint64_t nanoseconds : {std::uint64_t{10'000}, std::uint64_t{50'000}}) {
    const std::string of = ", steps of " + std::to_string(nanoseconds / 1000) + " us";
    const auto step = [&, nanoseconds] { keep_busy(stream.get(), nanoseconds); };
    out.compare("fed", static_cast<double>(bytes), quick ? 1 : 9, "us/batch",
                {{"resident" + of,
                  [&] {
                    return [&] {
                      return timed([&] {
                        for (std::uint64_t i = 0; i < count; ++i) step();
                      });
                    };
                  }},
                 {"fed" + of,
                  [&] {
                    auto one =
                        std::make_shared<ready_feed>(device, stream, host.data(), bytes, count);
                    return [&, one] {
                      return timed([&] {
                        for (auto& batch : one->feed.epoch(0)) {
                          static_cast<void>(batch);
                          step();
                        }
                      });
                    };
                  }}},
                [&](double seconds) { return seconds / static_cast<double>(count) * 1e6; });
  }
}

void versions(bench::rows& out) {
  int driver = 0;
  int runtime = 0;
  must(cudaDriverGetVersion(&driver));
  must(cudaRuntimeGetVersion(&runtime));
  out.fact("driver_cuda", std::to_string(driver));
  out.fact("runtime", std::to_string(runtime));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(argc, argv, "transfer_bench", [](bench::rows& out, bool quick) {
    const ps::cuda_device device{0};
    out.group("versions", [&] { versions(out); });
    out.group("tiny", [&] { tiny_batches(device, out, quick); });
    out.group("loaders", [&] { loaders(device, out, quick); });
    out.group("fed", [&] { fed_steps(device, out, quick); });
    out.group("bandwidth", [&] { bandwidth(device, out, quick); });
    out.group("download", [&] { download(device, out, quick); });
    out.group("bulk", [&] { bulk(device, out, quick); });
  });
}
