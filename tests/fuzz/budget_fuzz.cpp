// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as the kernel's memory information. The result must be a number no larger
// than the result for the first file alone. The input contains the five files in sequence,
// separated by form feeds.
#include <penstock/memory/budget.hpp>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace ps = penstock;
namespace fs = std::filesystem;

namespace {

/// A root folder laid out as by the kernel. Both cgroup versions read the same files.
class kernel_files {
 public:
  kernel_files() : root_(fs::temp_directory_path() / "penstock_fuzz_XXXXXX") {
    std::string name = root_.string();
    fuzz::require(::mkdtemp(name.data()) != nullptr, "mkdtemp");
    root_ = name;
    static constexpr std::array<const char*, count> v2{
        "proc/meminfo", "proc/self/cgroup", "sys/fs/cgroup/memory.max",
        "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"};
    static constexpr std::array<const char*, count> v1{"", "", "memory.limit_in_bytes",
                                                       "memory.usage_in_bytes", "memory.stat"};
    for (std::size_t i = 0; i < count; ++i) {
      const fs::path path = root_ / v2[i];
      fs::create_directories(path.parent_path());
      descriptors_[i] = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
      fuzz::require(descriptors_[i] >= 0, "open");
      if (*v1[i] == '\0') continue;
      fs::create_directories(root_ / "sys/fs/cgroup/memory");
      fs::create_symlink(path, root_ / "sys/fs/cgroup/memory" / v1[i]);
    }
  }
  ~kernel_files() {
    for (const int descriptor : descriptors_) ::close(descriptor);
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  kernel_files(kernel_files&&) = delete;

  void write(std::string_view text) const {
    for (const int descriptor : descriptors_) {
      const std::string_view part = text.substr(0, text.find('\f'));
      text.remove_prefix(part.size() == text.size() ? text.size() : part.size() + 1);
      fuzz::require(::ftruncate(descriptor, 0) == 0, "ftruncate");
      fuzz::require(
          ::pwrite(descriptor, part.data(), part.size(), 0) == static_cast<ssize_t>(part.size()),
          "pwrite");
    }
  }
  [[nodiscard]] std::string root() const { return root_.string(); }

 private:
  static constexpr std::size_t count = 5;
  fs::path root_;
  std::array<int, count> descriptors_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const kernel_files files;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  // The kernel writes no zero bytes. A zero byte would truncate a path, which could then lead
  // anywhere.
  if (text.find('\0') != std::string_view::npos) return 0;
  files.write(text);
  const std::uint64_t all = ps::available_memory(files.root());
  files.write(text.substr(0, text.find('\f')));
  fuzz::require(all <= ps::available_memory(files.root()), "a cgroup gives nothing");
  return 0;
}
