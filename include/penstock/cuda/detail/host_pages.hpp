// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// What the calling thread, and threads that it starts, allocate comes from `node` for a scope, if
/// the node has room. Best effort: nothing happens for a node below 0, where the program has a
/// policy of its own (numactl), and where these calls are forbidden, as they are in many
/// containers.
class scoped_node {
 public:
  explicit scoped_node(int node) noexcept {
    constexpr std::size_t word_bits = 8 * sizeof(unsigned long);
    const auto bit = static_cast<std::size_t>(node);
    if (node < 0 || bit >= bits) return;
    int mode = preferred;
    if (::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) != 0 || mode != none)
      return;
    std::array<unsigned long, bits / word_bits> nodes{};
    nodes[bit / word_bits] = 1UL << (bit % word_bits);
    changed_ = ::syscall(SYS_set_mempolicy, preferred, nodes.data(), bits) == 0;
  }
  scoped_node(scoped_node&&) = delete;
  ~scoped_node() {
    if (changed_) ::syscall(SYS_set_mempolicy, none, nullptr, 0UL);
  }

 private:
  static constexpr unsigned long bits = 1024;  // the kernel's own limit
  static constexpr int none = 0;               // MPOL_DEFAULT
  static constexpr int preferred = 1;          // MPOL_PREFERRED

  bool changed_ = false;
};

/// How many threads touch `length` bytes: a core zeroes some GB/s, the memory of a node several
/// times that; few of them saturate it.
[[nodiscard]] inline std::size_t touching_threads(std::size_t length) noexcept {
  constexpr std::size_t most = 8;
  constexpr std::size_t least_bytes = std::size_t{16} << 20;
  const std::size_t cores = (std::max)(1U, std::thread::hardware_concurrency());
  return std::clamp<std::size_t>(length / least_bytes, 1, (std::min)(most, cores));
}

/// Writes to every page on `threads` threads, the calling one among them, so that the pages are
/// there before they are registered: the driver would fetch them one by one on one thread.
inline void touch_pages(std::byte* data, std::size_t length, std::size_t page,
                        std::size_t threads) noexcept {
  const std::size_t pages = length / page;
  const auto touch = [=](std::size_t part) noexcept {
    for (std::size_t at = part * pages / threads; at < (part + 1) * pages / threads; ++at) {
      *static_cast<volatile std::byte*>(data + at * page) = std::byte{0};
    }
  };
  std::vector<std::thread> helpers;
  std::size_t next = 1;
  try {
    helpers.reserve(threads - 1);
    for (; next < threads; ++next) helpers.emplace_back(touch, next);
  } catch (...) {  // a process that may start no thread touches alone
  }
  touch(0);
  for (; next < threads; ++next) touch(next);
  for (auto& helper : helpers) helper.join();
}

/// Owns anonymous pages in huge pages where the system has them; aligned to 2 MiB, untouched.
class page_mapping {
 public:
  /// `asked` is what the message of `out_of_memory` says.
  page_mapping(std::size_t length, std::size_t asked) : length_(length) {
    constexpr std::size_t huge = std::size_t{2} << 20;
    // Room to move in. Where the sum wraps, the length alone is more than any address space.
    const std::size_t room = (std::max)(length, length + huge);
    void* const mapped =
        ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      throw out_of_memory("pinned", asked,
                          std::string{std::strerror(errno)} +
                              ": take fewer slots (prefetch) or a smaller batch_size");
    }
    auto* const begin = static_cast<std::byte*>(mapped);
    const std::size_t before =
        (huge - static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(begin)) % huge) % huge;
    data_ = begin + before;
    if (before != 0) ::munmap(begin, before);
    ::munmap(data_ + length, huge - before);
    ::madvise(data_, length, MADV_HUGEPAGE);
    // A forked child must not share pages that a device reads: this process would go on writing to
    // copies of them.
    ::madvise(data_, length, MADV_DONTFORK);
  }
  page_mapping(page_mapping&&) = delete;
  ~page_mapping() {
    if (data_ != nullptr) ::munmap(data_, length_);
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::byte* release() noexcept { return std::exchange(data_, nullptr); }

 private:
  std::size_t length_;
  std::byte* data_ = nullptr;
};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
