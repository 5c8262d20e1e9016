// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include <penstock/core/support/text_of_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the size of transparent huge pages on this system in bytes, or 0 if they are not
/// supported.
[[nodiscard]] inline std::size_t huge_page_size() {
  return static_cast<std::size_t>(
      number_in("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").value_or(0));
}

/// Calls `visit(area, huge_bytes)` for each area of whole huge pages in `memory` that is private
/// and anonymous, and not marked with `MADV_NOHUGEPAGE`. `huge` is the size of a huge page in
/// bytes. `huge_bytes` is the number of bytes already in huge pages. `smaps` is the path of
/// /proc/self/smaps, which lists mappings by ascending address. If the file cannot be read, the
/// function visits no area.
template <class Visit>
void visit_huge_page_areas(std::span<std::byte> memory, std::size_t huge, const char* smaps,
                           const Visit& visit) noexcept {
  if (huge == 0 || memory.size() < huge) return;
  const auto close = [](std::FILE* file) noexcept { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file{std::fopen(smaps, "re"), close};
  if (file == nullptr) return;
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  std::uintptr_t begin = 0;  // The whole huge pages of `memory` within the mapping.
  std::uintptr_t end = 0;
  std::size_t in_use = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    unsigned long from = 0;
    unsigned long to = 0;
    unsigned long inode = 0;
    unsigned long kib = 0;
    if (std::sscanf(line, "%lx-%lx %*s %*x %*x:%*x %lu", &from, &to, &inode) == 3) {
      if (from >= first + memory.size()) return;
      begin = ((std::max<std::uintptr_t>)(from, first) + huge - 1) / huge * huge;
      end = (std::min<std::uintptr_t>)(to, first + memory.size()) / huge * huge;
      if (inode != 0) end = 0;
    } else if (std::sscanf(line, "AnonHugePages: %lu", &kib) == 1) {
      in_use = std::size_t{kib} * 1024;
    } else if (std::strncmp(line, "VmFlags:", 8) == 0) {  // last line of a mapping
      if (begin >= end || std::strstr(line, " nh") != nullptr) continue;
      const std::size_t bytes = end - begin;
      visit(memory.subspan(begin - first, bytes), (std::min)(in_use, bytes));
    }
  }
}

/// Moves the areas of `memory` to huge pages if the kernel allows it. The contents are preserved.
/// Untouched pages become huge pages on the first access. Kernels before Linux 6.1 do not move
/// pages that were touched.
inline void use_huge_pages(std::span<std::byte> memory, std::size_t huge,
                           const char* smaps = "/proc/self/smaps") noexcept {
  visit_huge_page_areas(memory, huge, smaps, [](std::span<std::byte> area, std::size_t in_use) {
    if (in_use == area.size()) return;
    constexpr int collapse = 25;  // MADV_COLLAPSE, which older headers do not define
    ::madvise(area.data(), area.size(), MADV_HUGEPAGE);
    ::madvise(area.data(), area.size(), collapse);
  });
}

/// Returns the number of bytes in the areas of `memory` that are in huge pages. The result is exact
/// if the mappings end where the areas end, as after `use_huge_pages`, and otherwise an upper
/// bound.
[[nodiscard]] inline std::size_t bytes_in_huge_pages(
    std::span<std::byte> memory, std::size_t huge,
    const char* smaps = "/proc/self/smaps") noexcept {
  std::size_t sum = 0;
  visit_huge_page_areas(memory, huge, smaps,
                        [&](std::span<std::byte>, std::size_t in_use) { sum += in_use; });
  return sum;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
