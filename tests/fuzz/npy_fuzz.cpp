// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as an npy or npz file. The elements must match the header, and an archive
// entry must lie within the archive. Otherwise the file must be rejected with an error that points
// into it.
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/npy_dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

void parse(std::span<const std::byte> bytes, std::uint64_t base) {
  const ps::detail::npy_header header = ps::detail::npy_header_parser{bytes, "x.npy", base}.read();
  fuzz::require(header.data >= 10 && header.data <= bytes.size(), "elements start in the file");
  fuzz::require(header.descr_at > base && header.descr_at < base + header.data &&
                    header.shape_at > base && header.shape_at < base + header.data,
                "places lie in the header");
  fuzz::require(header.descr.size() > 2 && !header.lengths.empty(), "there is a type and a shape");
  std::uint64_t elements = 1;
  for (const std::uint64_t length : header.lengths) elements *= length;
  const auto size = static_cast<unsigned>(header.descr.back() - '0');
  fuzz::require(header.bytes == elements * size || elements == 0, "as many bytes as elements");
  static_cast<void>(header.is_swapped());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes{reinterpret_cast<const std::byte*>(data), size};
  try {
    if (size == 0 || data[0] != 'P') {
      parse(bytes, 0);
    } else {
      const ps::detail::zip_directory entries{bytes, "x.npz"};
      const auto place = entries.find("x.npy");
      fuzz::require(place.begin >= 30 && place.size <= size && place.begin <= size - place.size,
                    "an entry lies in the archive");
      try {
        entries.require_checksum(place, "x.npy");
      } catch (const ps::file_corrupt& error) {
        fuzz::require(error.offset() == place.begin, "another sum is that of the entry");
      }
      parse(bytes.subspan(static_cast<std::size_t>(place.begin),
                          static_cast<std::size_t>(place.size)),
            place.begin);
    }
  } catch (const ps::file_error& error) {
    fuzz::require(error.offset() <= size, "an error points into the file");
  }
  return 0;
}
