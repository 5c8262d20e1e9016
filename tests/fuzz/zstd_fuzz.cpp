// SPDX-License-Identifier: BSL-1.0
// A zstd file out of any bytes: it is unpacked, or refused with a file error that points into the
// bytes; what was packed by libzstd comes back.
#include <penstock/files/zstd.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

// A file in memory, written anew for each input.
class scratch_file {
 public:
  scratch_file() : descriptor_(::memfd_create("fuzzed", MFD_CLOEXEC)) {
    fuzz::require(descriptor_ >= 0, "memfd_create");
  }
  void write(std::span<const std::byte> bytes) const {
    fuzz::require(::ftruncate(descriptor_, 0) == 0, "ftruncate");
    fuzz::require(
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "pwrite");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const scratch_file file;
  const auto bytes = std::as_bytes(std::span{data, size});
  constexpr std::size_t most = std::size_t{1} << 20;
  try {
    file.write(bytes);
    (void)ps::detail::read_zstd_file(file.path(), most);
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= std::max(size, most), "an error points into the file");
  }
  // These bytes as a content, once for sixteen inputs: packing is slow.
  if (size % 16 == 0) {
    file.write(ps::zstd{1}.packed(bytes));
    const auto back = ps::detail::read_zstd_file(file.path());
    fuzz::require(std::equal(back.begin(), back.end(), bytes.begin(), bytes.end()),
                  "a content comes back");
  }
  return 0;
}
