// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <fstream>
#include <ios>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/threads/cpu_list.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The cores of a NUMA node, out of `root`/devices/system/node; nothing where the system does not
/// say, or the node has none. Reads a file. `root` is "/sys" but for tests.
[[nodiscard]] inline std::optional<cpu_list> cpus_of_node(const std::string& root, int node) {
  constexpr std::streamsize most = 1 << 16;  // a longer list is none of a kernel's
  std::ifstream file{root + "/devices/system/node/node" + std::to_string(node) + "/cpulist"};
  if (!file) return std::nullopt;
  std::string text(static_cast<std::size_t>(most), '\0');
  file.read(text.data(), most);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return cpu_list::parse(text);
}

/// A set of cores as the kernel takes and gives it: a bit a core.
class cpu_bits {
 public:
  explicit cpu_bits(std::size_t cores) : words_((cores + word_bits - 1) / word_bits) {}
  explicit cpu_bits(const cpu_list& cores)
      : cpu_bits(cores.empty() ? 1 : cores.numbers().back() + 1) {
    for (const unsigned core : cores.numbers())
      words_[core / word_bits] |= 1UL << (core % word_bits);
  }
  [[nodiscard]] unsigned long* data() noexcept { return words_.data(); }
  [[nodiscard]] const unsigned long* data() const noexcept { return words_.data(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return words_.size() * sizeof(unsigned long); }
  [[nodiscard]] cpu_list list() const {
    std::vector<unsigned> numbers;
    for (unsigned core = 0; core < words_.size() * word_bits; ++core) {
      if ((words_[core / word_bits] >> (core % word_bits) & 1UL) != 0) numbers.push_back(core);
    }
    return cpu_list{std::move(numbers)};
  }

 private:
  static constexpr unsigned word_bits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> words_;
};

/// What asks for the calling thread's mask, `bytes` long at `mask`: the bytes written, or -1 and
/// errno. By a name of its own, so that tests have kernels of any size.
struct ask_kernel {
  long operator()(std::size_t bytes, unsigned long* mask) const noexcept {
    return ::syscall(SYS_sched_getaffinity, 0, bytes, mask);
  }
};

/// The cores that the calling thread may run on, as many as the machine may have; nothing where the
/// system refuses to tell, and then errno says why.
template <class Ask = ask_kernel>
[[nodiscard]] std::optional<cpu_list> affinity_of_this_thread(const Ask& ask = {}) {
  // The kernel refuses a mask that is shorter than its own (EINVAL), and tells no length.
  for (std::size_t cores = 1024; cores <= cpu_list::limit; cores *= 2) {
    cpu_bits mask{cores};
    if (ask(mask.bytes(), mask.data()) >= 0) return mask.list();
    if (errno != EINVAL) return std::nullopt;
  }
  return std::nullopt;
}

/// Has the calling thread run on these cores alone. Returns 0, or what errno says.
[[nodiscard]] inline int bind_this_thread(const cpu_bits& cores) noexcept {
  return ::syscall(SYS_sched_setaffinity, 0, cores.bytes(), cores.data()) == 0 ? 0 : errno;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
