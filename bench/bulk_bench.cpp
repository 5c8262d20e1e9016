// SPDX-License-Identifier: BSL-1.0
// Compares bulk transfers with the slowest of bus, storage and worker threads: the time of an
// upload and of a download of 256 MiB divided by the time of that stage alone.
//
//   build/bench/bench/penstock_bulk_bench [--json FILE]
//
// The bus is modeled by the CPU device. A medium has a rate in MB per second for each thread, like
// a disk or a thread's memcpy, and sleeps instead of using a core. `bus_alone` is a single copy of
// all bytes from page-locked memory; `medium_alone` runs the threads without device and copies. The
// ring is allocated before, as in a `bulk_copier`; `whole_upload` also allocates and frees it.
// `sum` is the cost of a checkpoint's checksum on a single thread. `memcpy` and `non_temporal` copy
// 256 MiB through rings of two pieces for each thread, from memory in pages of 4 KiB or 2 MiB
// (`huge:1`), and report the processor time of the slowest thread.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/memory/support/slab.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/bulk/detail/staging_copy.hpp>
#include <penstock_ext/files/support/checksums.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t bytes = std::size_t{256} << 20;
constexpr std::size_t piece = std::size_t{1} << 20;

/// Waits as long as a medium with `rate` bytes per second would take. If a wait returns late, the
/// next wait is shorter.
void wait_for(std::size_t count, double rate) {
  thread_local std::chrono::nanoseconds late{0};
  thread_local bool is_exact = false;
  if (!is_exact) ::prctl(PR_SET_TIMERSLACK, 1UL);  // the kernel may otherwise add 50 us
  is_exact = true;
  const std::chrono::duration<double> span{static_cast<double>(count) / rate};
  const auto until =
      clock_type::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(span) - late;
  std::this_thread::sleep_until(until);
  late = clock_type::now() - until;
}

/// A source and sink that waits. A rate of 0 means host memory at its own speed.
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

void transfer(benchmark::State& state, const point& at, bool is_upload, bool is_whole) {
  const ps::cpu_device device = device_of(at.bus);
  const auto stream = device.make_stream();
  const ps::bulk_options options{.workers = static_cast<std::size_t>(at.workers),
                                 .piece_bytes = piece};
  const medium end{static_cast<double>(at.medium * mega), host_memory()};
  ps::bulk_copier copier{device, options};
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      if (is_whole) {
        ps::upload(device, stream, std::span{device_memory()}, end, options).wait();
      } else if (is_upload) {
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

/// Returns the processor time of the calling thread. Other programs on the machine do not add to
/// it.
double thread_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct staging_point {
  std::int64_t is_huge;
  std::int64_t threads;
  std::int64_t piece_kib;
};

void staging(benchmark::State& state, const staging_point& at, bool is_non_temporal) {
  static const std::span<std::byte> sources[] = {source_in(false), source_in(true)};
  const ps::memory_source source{sources[at.is_huge]};
  const auto piece_bytes = static_cast<std::size_t>(at.piece_kib) << 10;
  const auto count = static_cast<std::size_t>(at.threads);
  const ps::cpu_device device;
  const ps::detail::slab<ps::cpu_device> ring{device, 2 * count * piece_bytes,
                                              ps::detail::memory_kind::pinned, piece_bytes};
  std::vector<double> seconds(count);
  const auto fill = [&](std::size_t thread) {
    const double begin = thread_seconds();
    std::size_t turn = 0;
    for (std::size_t i = thread; i < bytes / piece_bytes; i += count, ++turn) {
      const std::span<std::byte> to{ring.slot(thread + turn % 2 * count), piece_bytes};
      if (is_non_temporal) {
        source.read_non_temporal(i * piece_bytes, to);
      } else {
        source.read(i * piece_bytes, to);
      }
    }
    seconds[thread] = thread_seconds() - begin;
  };
  for (auto _ : state) {
    {
      std::vector<std::jthread> others;
      for (std::size_t i = 1; i < count; ++i) others.emplace_back(fill, i);
      fill(0);
    }
    state.SetIterationTime(*std::max_element(seconds.begin(), seconds.end()));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}

void sum(benchmark::State& state) {
  for (auto _ : state) {
    state.SetIterationTime(seconds_of([&] {
      ps::detail::crc64nvme_checksum of;
      of.add(host_memory());
      benchmark::DoNotOptimize(of.value());
    }));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
}

}  // namespace

int main(int argc, char** argv) {
  const auto once = [](benchmark::internal::Benchmark* made) {
    made->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
  };
  std::vector<bench::goal> goals;
  const auto add = [&](const char* name, const point& at, bool is_upload, bool is_whole) {
    const std::string full =
        bench::named(name, {{"bus", at.bus}, {"medium", at.medium}, {"workers", at.workers}});
    once(benchmark::RegisterBenchmark(full.c_str(), transfer, at, is_upload, is_whole));
    const bool is_bus = at.medium == 0 || at.medium * at.workers >= at.bus;
    const std::string floor =
        is_bus ? bench::named("bus_alone", {{"bus", at.bus}})
               : bench::named("medium_alone", {{"medium", at.medium}, {"workers", at.workers}});
    goals.push_back({full, floor, bench::goal::kind::time_at_most, is_whole ? 0 : 1 / 0.95});
  };
  for (const std::int64_t bus : {500, 1000}) {
    for (const std::int64_t workers : {2, 4}) {
      for (const point& at :
           {point{bus, 0, workers}, point{bus, 400, workers}, point{bus, 100, workers}}) {
        add("upload", at, true, false);
        add("download", at, false, false);
      }
    }
    once(benchmark::RegisterBenchmark(bench::named("bus_alone", {{"bus", bus}}).c_str(), bus_alone,
                                      bus));
  }
  add("whole_upload", {1000, 0, 4}, true, true);
  for (const std::int64_t workers : {2, 4}) {
    for (const std::int64_t rate : {100, 400}) {
      once(benchmark::RegisterBenchmark(
          bench::named("medium_alone", {{"medium", rate}, {"workers", workers}}).c_str(),
          medium_alone, rate, workers));
    }
  }
  for (const std::int64_t is_huge : {0, 1}) {
    for (const std::int64_t threads : {1, 2}) {
      for (const std::int64_t kib : {64, 256, 1024, 4096}) {
        const staging_point at{is_huge, threads, kib};
        const auto name = [&](const char* copy) {
          return bench::named(copy, {{"huge", is_huge}, {"threads", threads}, {"piece_kib", kib}});
        };
        once(benchmark::RegisterBenchmark(name("memcpy").c_str(), staging, at, false));
        once(benchmark::RegisterBenchmark(name("non_temporal").c_str(), staging, at, true));
        goals.push_back({name("non_temporal"), name("memcpy"), bench::goal::kind::time_at_most, 0});
      }
    }
  }
  once(benchmark::RegisterBenchmark("sum", sum));
  // Sets a default before the caller's options, because the grid is large.
  std::vector<char*> words{argv, argv + argc};
  std::string few{"--benchmark_repetitions=5"};
  words.insert(words.begin() + 1, few.data());
  return bench::run(static_cast<int>(words.size()), words.data(), "bulk_bench", goals);
}
