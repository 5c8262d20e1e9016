// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/detail/huge_pages.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/memory/registered_memory.hpp>

#include "support/catch.hpp"
#include "support/ledger_device.hpp"
#include "support/some_bytes.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// A device that accepts every registration, and can touch the pages as a real one does.
struct accepting_device : ledger_device {
  bool touches = false;
  void register_memory(void* data, std::size_t bytes, bool) const {
    if (touches) std::memset(data, 1, bytes);
  }
  void unregister_memory(void*, std::size_t) const noexcept {}
};

/// A mapping of `bytes` bytes that begins `shift` bytes after a boundary of huge pages.
class mapping {
 public:
  explicit mapping(std::size_t bytes, std::size_t shift = 0, int flags = MAP_ANONYMOUS,
                   int file = -1)
      : length_(bytes + shift + 2 * mebibyte) {
    // Reserves address space, and then maps the aligned part of it.
    all_ = ::mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(all_ != MAP_FAILED);
    const auto address = reinterpret_cast<std::uintptr_t>(all_);
    auto* const begin = static_cast<std::byte*>(all_) +
                        (2 * mebibyte - address % (2 * mebibyte)) % (2 * mebibyte) + shift;
    const int share = (flags & MAP_SHARED) != 0 ? 0 : MAP_PRIVATE;
    void* const part =
        ::mmap(begin, bytes, PROT_READ | PROT_WRITE, flags | share | MAP_FIXED, file, 0);
    if (part != MAP_FAILED) bytes_ = {begin, bytes};
  }
  mapping(mapping&&) = delete;
  ~mapping() { ::munmap(all_, length_); }
  /// Empty if the system denied the mapping.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::size_t length_;
  void* all_ = nullptr;
  std::span<std::byte> bytes_;
};

/// Fills `memory` with bytes that differ, and returns a copy of them.
std::vector<std::byte> filled(std::span<std::byte> memory) {
  auto bytes = test::some_bytes<std::vector<std::byte>>(memory.size());
  std::copy(bytes.begin(), bytes.end(), memory.begin());
  return bytes;
}

bool holds(std::span<const std::byte> memory, const std::vector<std::byte>& bytes) {
  return std::equal(memory.begin(), memory.end(), bytes.begin(), bytes.end());
}

/// Returns the sum of `key` in KiB over the mappings that lie in `memory`.
std::size_t kib_of(const std::string& key, std::span<const std::byte> memory) {
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  std::ifstream file{"/proc/self/smaps"};
  std::size_t sum = 0;
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long from = 0;
    unsigned long to = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      is_inside = from >= first && to <= first + memory.size();
    } else if (is_inside && line.rfind(key + ":", 0) == 0) {
      sum += std::strtoul(line.c_str() + key.size() + 1, nullptr, 10);
    }
  }
  return sum;
}

/// Returns true if the system has transparent huge pages of 2 MiB, and has not disabled them.
bool has_huge_pages() {
  const auto enabled = ps::detail::text_of_file("/sys/kernel/mm/transparent_hugepage/enabled");
  return ps::detail::huge_page_size() == 2 * mebibyte &&
         enabled.find("[never]") == std::string::npos;
}
/// Returns true if the kernel also moves pages that were touched to huge pages (Linux 6.1).
bool kernel_collapses() { return has_huge_pages() && ::madvise(nullptr, 0, 25) == 0; }

}  // namespace

TEST_CASE("registered memory moves to huge pages and keeps its contents", "[memory]") {
  if (!kernel_collapses()) {
    WARN("not tested: the kernel does not move touched pages to huge pages");
    return;
  }
  const mapping memory{9 * mebibyte, mebibyte};  // half a huge page and four whole huge pages
  const auto bytes = filled(memory.bytes());
  ps::registered_memory locked{accepting_device{}, memory.bytes()};
  CHECK(holds(memory.bytes(), bytes));
  CHECK(locked.huge_page_bytes() == 8 * mebibyte);
  CHECK(kib_of("AnonHugePages", memory.bytes()) == 8 * 1024);
  ps::registered_memory moved{std::move(locked)};
  CHECK(moved.huge_page_bytes() == 8 * mebibyte);
  CHECK(locked.huge_page_bytes() == 0);
  locked = std::move(moved);
  CHECK(locked.huge_page_bytes() == 8 * mebibyte);
}

TEST_CASE("memory that is marked with MADV_NOHUGEPAGE keeps its pages", "[memory]") {
  const mapping memory{8 * mebibyte};
  ::madvise(memory.bytes().data(), memory.bytes().size(), MADV_NOHUGEPAGE);
  const auto bytes = filled(memory.bytes());
  const ps::registered_memory locked{accepting_device{}, memory.bytes()};
  CHECK(locked.huge_page_bytes() == 0);
  CHECK(kib_of("AnonHugePages", memory.bytes()) == 0);
  CHECK(holds(memory.bytes(), bytes));
}

TEST_CASE("only the registered part of a mapping moves to huge pages", "[memory]") {
  if (!kernel_collapses()) {
    WARN("not tested: the kernel does not move touched pages to huge pages");
    return;
  }
  const mapping memory{16 * mebibyte};
  const auto bytes = filled(memory.bytes());
  // Starts one byte after a boundary, and ends one byte before a boundary.
  const auto part = memory.bytes().subspan(2 * mebibyte + 1, 10 * mebibyte - 2);
  const std::span<const std::byte> constant{part};
  const ps::registered_memory locked{accepting_device{}, constant};
  CHECK(locked.huge_page_bytes() == 6 * mebibyte);
  CHECK(kib_of("AnonHugePages", memory.bytes()) == 6 * 1024);
  CHECK(holds(memory.bytes(), bytes));
}

TEST_CASE("memory without a whole huge page keeps its pages", "[memory]") {
  const mapping memory{3 * mebibyte, mebibyte};
  const auto bytes = filled(memory.bytes());
  const ps::registered_memory locked{accepting_device{}, memory.bytes().first(2 * mebibyte)};
  CHECK(locked.huge_page_bytes() == 0);
  CHECK(holds(memory.bytes(), bytes));
}

TEST_CASE("mapped files and shared memory keep their pages", "[memory]") {
  const test::temp_dir folder;
  const std::string path = folder.path("pages");
  const auto in_file = test::some_bytes<std::string>(4 * mebibyte);
  std::ofstream(path, std::ios::binary) << in_file;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  const auto keeps = [](const mapping& memory) {
    const auto huge_kib = [&] {  // the page cache may have huge pages of its own
      return kib_of("AnonHugePages", memory.bytes()) + kib_of("ShmemPmdMapped", memory.bytes()) +
             kib_of("FilePmdMapped", memory.bytes());
    };
    const std::vector<std::byte> contents(memory.bytes().begin(), memory.bytes().end());
    const std::size_t before = huge_kib();
    const ps::registered_memory locked{accepting_device{}, memory.bytes()};
    CHECK(locked.huge_page_bytes() == 0);
    CHECK(holds(memory.bytes(), contents));
    CHECK(huge_kib() == before);
  };
  const mapping shared_file{4 * mebibyte, 0, MAP_SHARED, file};
  keeps(shared_file);
  const mapping private_file{4 * mebibyte, 0, MAP_PRIVATE, file};
  static_cast<void>(filled(private_file.bytes()));  // now anonymous copies of the file's pages
  keeps(private_file);
  const mapping shared{4 * mebibyte, 0, MAP_SHARED | MAP_ANONYMOUS};
  static_cast<void>(filled(shared.bytes()));
  keeps(shared);
  ::close(file);
}

TEST_CASE("areas of huge pages are read from the list of mappings", "[memory]") {
  const test::temp_dir folder;
  const std::string path = folder.path("smaps");
  // No address is accessed.
  const std::span<std::byte> memory{reinterpret_cast<std::byte*>(0x10100000), 0x1000000};
  const auto areas = [&](const std::string& text) {
    std::ofstream(path) << text;
    std::vector<std::pair<std::size_t, std::size_t>> found;  // offset and size in MiB
    std::size_t in_use = 0;
    ps::detail::visit_huge_page_areas(
        memory, 2 * mebibyte, path.c_str(), [&](std::span<std::byte> area, std::size_t huge_bytes) {
          found.emplace_back(static_cast<std::size_t>(area.data() - memory.data()) / mebibyte,
                             area.size() / mebibyte);
          in_use += huge_bytes;
        });
    return std::pair{found, in_use / mebibyte};
  };
  const auto mapped = [](const char* range, const char* rest, int kib, const char* flags) {
    return std::string{range} + rest +
           "\nSize: 4 kB\nAnonymous: 8 kB\nAnonHugePages:  " + std::to_string(kib) +
           " kB\nVmFlags: rd wr mr mw me ac" + flags + " \n";
  };
  using list = std::vector<std::pair<std::size_t, std::size_t>>;
  const char* const anonymous = " rw-p 00000000 00:00 0 ";
  // The range is 0x10100000 to 0x11100000.
  CHECK(areas(mapped("10000000-12000000", anonymous, 4096, "")) == std::pair{list{{1, 14}}, 4UL});
  CHECK(areas(mapped("10000000-12000000", anonymous, 99999, "")) == std::pair{list{{1, 14}}, 14UL});
  CHECK(areas(mapped("10000000-12000000", anonymous, 4096, " nh")).first.empty());
  CHECK(areas(mapped("10000000-12000000", " rw-p 00000000 fe:00 77   /a file", 4096, ""))
            .first.empty());
  CHECK(areas(mapped("10000000-12000000", " rw-s 00000000 00:01 5 /dev/zero (deleted)", 0, ""))
            .first.empty());
  CHECK(areas(mapped("0f000000-10100000", anonymous, 4096, "") +
              mapped("10100000-10600000", anonymous, 2048, " hg") +
              mapped("10600000-10800000", anonymous, 0, " nh") +
              mapped("10800000-11000000", anonymous, 6144, "") +
              mapped("11200000-12000000", anonymous, 4096, "")) ==
        std::pair{list{{1, 4}, {7, 8}}, 8UL});
  // A long path does not look like another mapping.
  CHECK(areas(mapped("10000000-12000000",
                     (" rw-p 00000000 fe:00 77 /" + std::string(1000, 'x')).c_str(), 4096, ""))
            .first.empty());
  CHECK(areas("").first.empty());
  CHECK(areas("no mappings\n").first.empty());
  std::filesystem::remove(path);
  bool is_called = false;
  ps::detail::visit_huge_page_areas(memory, 2 * mebibyte, path.c_str(),
                                    [&](auto, auto) { is_called = true; });
  ps::detail::visit_huge_page_areas(memory, 0, "/proc/self/smaps",
                                    [&](auto, auto) { is_called = true; });
  CHECK_FALSE(is_called);
}

TEST_CASE("pages that the registration touches first are huge pages", "[memory]") {
  if (!has_huge_pages()) {
    WARN("not tested: the system has no transparent huge pages of 2 MiB");
    return;
  }
  const mapping memory{8 * mebibyte};
  accepting_device device;
  device.touches = true;
  const ps::registered_memory locked{device, memory.bytes()};
  CHECK(locked.huge_page_bytes() == 8 * mebibyte);
  CHECK(kib_of("AnonHugePages", memory.bytes()) == 8 * 1024);
}

TEST_CASE("a rejection to move pages is no error, and untouched memory is not occupied",
          "[memory]") {
  const mapping memory{8 * mebibyte};
  const ps::registered_memory locked{accepting_device{}, memory.bytes()};
  CHECK(locked.huge_page_bytes() == 0);
  CHECK(kib_of("Rss", memory.bytes()) == 0);
}
