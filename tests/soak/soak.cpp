// SPDX-License-Identifier: BSL-1.0
// Creates, uses, leaves and destroys loaders and feeds in random configurations for ROUNDS rounds.
// No resource may remain after a round.
//
//   penstock_soak ROUNDS [SEED]
//
// Exits with 1 if a batch is wrong, if a thread or a descriptor remains, or if memory grows
// steadily.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "flow/state_machine.hpp"

namespace {

using clock_type = std::chrono::steady_clock;

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all{folder};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
/// Returns the number of open descriptors, including the descriptor that lists the folder.
std::size_t descriptors() { return entries_of("/proc/self/fd"); }
/// Returns the number of threads, including the calling thread.
std::size_t threads() { return entries_of("/proc/self/task"); }

/// Waits until at most `count` threads exist, because a joined thread may remain listed for a
/// moment. Returns false after 30 seconds.
bool threads_become(std::size_t count) {
  const auto deadline = clock_type::now() + std::chrono::seconds{30};
  while (threads() > count) {
    if (clock_type::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Restarts this program without glibc's per-thread caches. Thread caches count as used memory and
/// fill over thousands of rounds, which looks like growth. Returns if the caches are already
/// disabled, or if the restart fails.
void run_without_thread_caches(char** argv) {
  constexpr const char* name = "GLIBC_TUNABLES";
  if (std::getenv(name) != nullptr) return;  // already set by this function or by the user
  if (::setenv(name, "glibc.malloc.tcache_count=0", 1) == 0) ::execv("/proc/self/exe", argv);
}

/// Returns the number of heap bytes in use, over all arenas.
std::size_t heap_bytes() {
  const auto heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

/// Returns the resident memory of the process in bytes. The value includes slabs, which are mapped
/// outside the heap.
std::size_t resident_bytes() {
  std::ifstream file{"/proc/self/statm"};
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A measurement over the whole run, except the first tenth. Stores the minimum of each fifth. The
/// value grows steadily if each minimum exceeds the previous minimum, and the last exceeds the
/// first by more than a tolerance. Memory that a cache allocates once, or frees again, therefore
/// does not count as growth. Adding a value allocates no memory.
class figure {
 public:
  figure(const char* name, std::size_t allowed) : name_(name), allowed_(allowed) {
    min_.fill((std::numeric_limits<std::size_t>::max)());
  }
  /// Adds a value that was measured when `share` of the run, in [0, 1), was complete.
  void add(double share, std::size_t value) {
    if (share < 0.1) return;
    const auto part = static_cast<std::size_t>((share - 0.1) / 0.9 * static_cast<double>(parts));
    std::size_t& min = min_.at((std::min)(part, parts - 1));
    min = (std::min)(min, value);
  }
  [[nodiscard]] bool grows() const {
    return min_.back() > min_.front() + allowed_ &&
           std::adjacent_find(min_.begin(), min_.end(), std::greater_equal<>{}) == min_.end();
  }
  void print() const {
    std::printf("  %-9s least of each fifth:", name_);
    for (const std::size_t min : min_) std::printf(" %zu", min);
    std::printf("%s\n", grows() ? "  GROWS" : "");
  }

 private:
  static constexpr std::size_t parts = 5;
  const char* name_;
  std::size_t allowed_;
  std::array<std::size_t, parts> min_{};
};

int soak(std::uint64_t rounds, std::uint64_t seed) {
  constexpr std::uint64_t steps = 300;
  const auto begin = clock_type::now();
  const std::uint64_t rounds_a_line = (std::max<std::uint64_t>)(500, rounds / 20);
  const std::size_t threads_before = threads();
  const std::size_t descriptors_before = descriptors();
  figure heap{"heap", std::size_t{64} << 10};
  figure resident{"resident", std::size_t{4} << 20};
  std::map<std::string_view, std::uint64_t> counts;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    {
      stress::machine machine{seed + round};
      machine.run(steps);
      for (const auto& [what, times] : machine.counts()) counts[what] += times;
    }
    if (!threads_become(threads_before)) {
      std::printf("round %llu left a thread behind: %zu, were %zu\n",
                  static_cast<unsigned long long>(round), threads(), threads_before);
      return 1;
    }
    if (descriptors() != descriptors_before) {
      std::printf("round %llu left a descriptor behind: %zu, were %zu\n",
                  static_cast<unsigned long long>(round), descriptors(), descriptors_before);
      return 1;
    }
    const double share = static_cast<double>(round) / static_cast<double>(rounds);
    heap.add(share, heap_bytes());
    resident.add(share, resident_bytes());
    if ((round + 1) % rounds_a_line != 0) continue;
    std::printf(
        "%6lld s: %llu rounds, heap %zu, resident %zu\n",
        static_cast<long long>(
            std::chrono::duration_cast<std::chrono::seconds>(clock_type::now() - begin).count()),
        static_cast<unsigned long long>(round + 1), heap_bytes(), resident_bytes());
    std::fflush(stdout);
  }
  std::printf("%llu rounds of %llu steps from seed %llu, %zu threads, %zu descriptors\n",
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(steps),
              static_cast<unsigned long long>(seed), threads(), descriptors());
  heap.print();
  resident.print();
  for (const auto& [what, times] : counts) {
    std::printf("  %s: %llu\n", std::string{what}.c_str(), static_cast<unsigned long long>(times));
  }
  return heap.grows() || resident.grows() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (argc > 3 || rounds == 0) {
    std::fprintf(stderr, "usage: %s ROUNDS [SEED]\n", argv[0]);
    return 2;
  }
  run_without_thread_caches(argv);
  try {
    return soak(rounds, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
