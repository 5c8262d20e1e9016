// SPDX-License-Identifier: BSL-1.0
// Compares bulk transfers with the slowest stage, which is the bus, the storage or the worker
// threads. The time of an upload or a download of 256 MiB is divided by the time of that stage
// alone.
//
//   build/bench/bench/penstock_bulk_bench [--json FILE]
//
// The bus is modeled by the CPU device. A medium has a rate in MB per second for each thread, like
// a disk or a thread's memcpy, and sleeps instead of using a core. `bus_alone` is a single copy of
// all bytes from page-locked memory; `medium_alone` runs the threads without device and copies. The
// ring is allocated before, as in a `bulk_copier`. `memcpy` and `non_temporal` copy 256 MiB through
// a ring of two pieces, from memory in pages of 4 KiB or 2 MiB (`huge:1`), and report the processor
// time of the thread.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/memory/support/slab.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/bulk/detail/staging_copy.hpp>

#include "support/cpu_seconds.hpp"
#include "support/program.hpp"
#include "support/steady_wait.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t bytes = std::size_t{256} << 20;
constexpr std::size_t piece = std::size_t{1} << 20;

/// Waits for the time that a medium with `rate` bytes per second would take.
void wait_for(std::size_t count, double rate) {
  thread_local bench::steady_wait waits;
  const std::chrono::duration<double> span{static_cast<double>(count) / rate};
  waits(std::chrono::duration_cast<std::chrono::nanoseconds>(span));
}

/// A source and sink that sleeps to simulate a medium with a given rate. A rate of 0 stands for
/// host memory at its own speed.
struct medium {
  double rate;
  std::span<std::byte> memory;
  [[nodiscard]] std::uint64_t size() const { return memory.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    if (rate > 0) return wait_for(out.size(), rate);
    std::memcpy(out.data(), memory.data() + offset, out.size());
  }
  void write(std::uint64_t offset, std::span<const std::byte> from) const {
    if (rate > 0) return wait_for(from.size(), rate);
    std::memcpy(memory.data() + offset, from.data(), from.size());
  }
  void finish() const {}
};

struct point {
  std::int64_t bus;     // MB per second
  std::int64_t medium;  // MB per second of each thread; 0 means host memory
  std::int64_t workers;
};
constexpr std::int64_t mega = 1'000'000;

std::vector<std::byte>& host_memory() {
  static std::vector<std::byte> memory(bytes, std::byte{1});
  return memory;
}
std::vector<std::byte>& device_memory() {
  static std::vector<std::byte> memory(bytes, std::byte{2});
  return memory;
}

template <class Call>
double seconds_of(const Call& call) {
  const auto begin = clock_type::now();
  call();
  return std::chrono::duration<double>{clock_type::now() - begin}.count();
}

ps::cpu_device device_of(std::int64_t bus) {
  return ps::cpu_device{{.copy_bytes_per_second = static_cast<double>(bus * mega)}};
}

void transfer(benchmark::State& state, const point& at, bool is_upload) {
  const ps::cpu_device device = device_of(at.bus);
  const auto stream = device.make_stream();
  const ps::bulk_options options{.workers = static_cast<std::size_t>(at.workers),
                                 .piece_bytes = piece};
  const medium end{static_cast<double>(at.medium * mega), host_memory()};
  ps::bulk_copier copier{device, options};
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      if (is_upload) {
        copier.upload(stream, std::span{device_memory()}, end).wait();
      } else {
        copier.download(stream, end, std::span<const std::byte>{device_memory()}).wait();
      }
    }));
  }
}

void bus_alone(benchmark::State& state, std::int64_t bus) {
  const ps::cpu_device device = device_of(bus);
  const auto stream = device.make_stream();
  const ps::detail::slab<ps::cpu_device> pinned{device, bytes, ps::detail::memory_kind::pinned};
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      device.copy_async(device_memory().data(), pinned.data(), bytes, stream);
      stream.synchronize();
    }));
  }
}

void medium_alone(benchmark::State& state, std::int64_t rate, std::int64_t workers) {
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      std::vector<std::jthread> threads;
      for (std::int64_t i = 0; i < workers; ++i) {
        threads.emplace_back([&] {
          const std::size_t own = bytes / static_cast<std::size_t>(workers);
          for (std::size_t done = 0; done < own; done += piece) {
            wait_for(piece, static_cast<double>(rate * mega));
          }
        });
      }
    }));
  }
}

/// Returns 256 MiB of touched memory in pages of 2 MiB, or of 4 KiB. The memory is never freed.
std::span<std::byte> source_in(bool is_huge) {
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc{};
  ::madvise(data, bytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(data, 1, bytes);
  return {static_cast<std::byte*>(data), bytes};
}

void staging(benchmark::State& state, bool is_huge, std::size_t piece_bytes, bool is_non_temporal) {
  static const std::span<std::byte> sources[] = {source_in(false), source_in(true)};
  const ps::memory_source source{sources[is_huge ? 1 : 0]};
  const ps::detail::slab<ps::cpu_device> ring{ps::cpu_device{}, 2 * piece_bytes,
                                              ps::detail::memory_kind::pinned, piece_bytes};
  for (auto _ : state) {
    const double begin = bench::cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (std::size_t i = 0; i < bytes / piece_bytes; ++i) {
      const std::span<std::byte> to{ring.slot(i % 2), piece_bytes};
      if (is_non_temporal) {
        source.read_non_temporal(i * piece_bytes, to);
      } else {
        source.read(i * piece_bytes, to);
      }
    }
    state.SetIterationTime(bench::cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begin);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}

}  // namespace

int main(int argc, char** argv) {
  using enum bench::goal::kind;
  std::vector<bench::goal> goals;
  for (const std::int64_t bus : {500, 1000}) {
    for (const std::int64_t workers : {2, 4}) {
      for (const std::int64_t rate : {0, 400, 100}) {
        const point at{bus, rate, workers};
        const bool is_bus = rate == 0 || rate * workers >= bus;
        const std::string floor =
            is_bus ? bench::named("bus_alone", {{"bus", bus}})
                   : bench::named("medium_alone", {{"medium", rate}, {"workers", workers}});
        for (const char* const name : {"upload", "download"}) {
          const auto full =
              bench::named(name, {{"bus", bus}, {"medium", rate}, {"workers", workers}});
          bench::add_once(full, transfer, at, std::string{name} == "upload");
          goals.push_back({full, floor, time_at_most, 1 / 0.95});
        }
      }
    }
    bench::add_once(bench::named("bus_alone", {{"bus", bus}}), bus_alone, bus);
  }
  for (const std::int64_t workers : {2, 4}) {
    for (const std::int64_t rate : {100, 400}) {
      bench::add_once(bench::named("medium_alone", {{"medium", rate}, {"workers", workers}}),
                      medium_alone, rate, workers);
    }
  }
  for (const std::int64_t is_huge : {0, 1}) {
    for (const std::int64_t kib : {64, 256, 1024, 4096}) {
      const auto name = [&](const char* copy) {
        return bench::named(copy, {{"huge", is_huge}, {"piece_kib", kib}});
      };
      const auto piece_bytes = static_cast<std::size_t>(kib) << 10;
      bench::add_once(name("memcpy"), staging, is_huge != 0, piece_bytes, false);
      bench::add_once(name("non_temporal"), staging, is_huge != 0, piece_bytes, true);
      goals.push_back({name("non_temporal"), name("memcpy"), time_at_most, 0});
    }
  }
  return bench::run(argc, argv, "bulk_bench", goals, 5);
}
