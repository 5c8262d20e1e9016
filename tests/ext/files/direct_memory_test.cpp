// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/support/system_file.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

// Returns the kernel's flags ("rd wr mr ... hg") for the mapping that contains `address`, or an
// empty string on an old kernel.
std::string flags_at(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps{"/proc/self/smaps"};
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      is_here = begin <= at && at < end;
    } else if (is_here && line.starts_with("VmFlags:")) {
      return line + ' ';
    }
  }
  return "";
}

}  // namespace

TEST_CASE("memory for direct reads is aligned, asks for huge pages, and grows", "[files]") {
  ps::detail::direct_memory memory;
  std::byte* const small = memory.room_for(1);
  CHECK(reinterpret_cast<std::uintptr_t>(small) % (std::size_t{2} << 20) == 0);
  std::memset(small, 1, std::size_t{2} << 20);  // allocates whole huge pages
  CHECK(memory.room_for(std::size_t{2} << 20) == small);
  constexpr std::size_t more = (std::size_t{5} << 20) + 1;
  std::byte* const large = memory.room_for(more);
  CHECK(reinterpret_cast<std::uintptr_t>(large) % ps::detail::direct_memory::alignment == 0);
  std::memset(large, 2, more);
  CHECK(memory.room_for(1) == large);
  const std::string flags = flags_at(large);
  if (flags.empty() || !std::ifstream{"/sys/kernel/mm/transparent_hugepage/enabled"}) {
    WARN("the kernel does not say which pages it was asked for");
  } else {
    CHECK(flags.find(" hg ") != std::string::npos);
  }
}
