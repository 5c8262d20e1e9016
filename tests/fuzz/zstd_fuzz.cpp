// SPDX-License-Identifier: BSL-1.0
// Decompresses arbitrary bytes as a zstd file. The bytes must be decompressed, or rejected with a
// file error that points into them. Data compressed by libzstd must survive a round trip.
#include <penstock_ext/files/zstd/zstd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <penstock_ext/files/support/system_file.hpp>

#include "ext/files/zstd_packed.hpp"
#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::scratch_file file;
  const auto bytes = std::as_bytes(std::span{data, size});
  constexpr std::size_t max = std::size_t{1} << 20;
  try {
    file.write(bytes);
    ps::zstd_source source{file.path()};
    (void)ps::detail::read_bytes(source, max);
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= std::max(size, max), "an error points into the file");
  }
  // Compresses only one input in sixteen, because compression is slow.
  if (size % 16 == 0) {
    const std::string packed =
        test::zstd_packed(std::string_view{reinterpret_cast<const char*>(data), size});
    file.write(std::as_bytes(std::span{packed}));
    ps::zstd_source source{file.path()};
    const auto back = ps::detail::read_bytes(source);
    fuzz::require(std::equal(back.begin(), back.end(), bytes.begin(), bytes.end()),
                  "a content comes back");
  }
  return 0;
}
