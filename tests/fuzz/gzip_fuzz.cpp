// SPDX-License-Identifier: BSL-1.0
// Decompresses arbitrary bytes as a gzip file. The bytes must be decompressed, or rejected with a
// file error that points into them. Data compressed by zlib must survive a round trip.
#include <penstock_ext/files/gzip/gzip.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <zlib.h>

#include <penstock_ext/files/support/system_file.hpp>

#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;

namespace {

std::vector<std::uint8_t> packed(std::span<const std::uint8_t> bytes) {
  ::z_stream stream{};
  fuzz::require(::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
                "deflateInit2");
  std::vector<std::uint8_t> out(::deflateBound(&stream, bytes.size()) + 32);
  std::vector<std::uint8_t> in(bytes.begin(), bytes.end());
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  fuzz::require(::deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::scratch_file file;
  const std::span bytes{data, size};
  constexpr std::size_t max = std::size_t{1} << 20;
  try {
    file.write(std::as_bytes(bytes));
    ps::gzip_source source{file.path()};
    (void)ps::detail::read_bytes(source, max);
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= (size < max ? max : size), "an error points into the file");
  }
  // Compresses only one input in sixteen, because compression is slow.
  if (size % 16 == 0) {
    const std::vector<std::uint8_t> small_file = packed(bytes);
    file.write(std::as_bytes(std::span{small_file}));
    ps::gzip_source source{file.path()};
    const auto back = ps::detail::read_bytes(source);
    fuzz::require(back.size() == size, "a content comes back whole");
    for (std::size_t i = 0; i < size; ++i) {
      fuzz::require(std::to_integer<std::uint8_t>(back[i]) == data[i], "a content comes back");
    }
  }
  return 0;
}
