// SPDX-License-Identifier: BSL-1.0
// Decodes arbitrary bytes as a chunk of an HDF5 dataset, with filters and dimensions that the first
// bytes select. The result is an error or a chunk of the right size. The pieces of a sample lie in
// the chunk and in the sample, and cover the sample once.
#include <penstock_ext/indexed/hdf5/detail/hdf5_chunks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using id = ps::detail::hdf5_filter_id;
  if (size < 16) return 0;
  ps::detail::hdf5_array array;
  constexpr std::size_t elements[] = {1, 2, 4, 8, 3};
  array.element = elements[data[0] % 5];
  array.is_swapped = data[0] >= 128;
  array.is_bool = array.element == 1 && data[0] % 2 == 0;
  const std::size_t rank = 1 + data[1] % 5;
  for (std::size_t d = 0; d < rank; ++d) {
    array.lengths.push_back(1U + data[2 + d] % 6);
    array.chunk.push_back(1U + data[2 + d] / 6 % 7);
  }
  if (data[7] == 255) array.lengths.back() = 1ULL << 62;
  for (std::size_t i = 0; i < data[8] % 4U; ++i) {
    constexpr id ids[] = {id::deflate, id::shuffle, id::lzf, id::lzf};
    array.filters.push_back({ids[data[9 + i] % 4], 1U + data[9 + i] / 4 % 9});
  }
  if (!array.measure()) return 0;
  ps::detail::hdf5_buffer stored{size - 16};
  std::copy(data + 16, data + size, reinterpret_cast<std::uint8_t*>(stored.memory.get()));
  const auto fail = [](const std::string& expected, const std::string& found) {
    throw std::runtime_error(expected + found);
  };
  if (array.chunk_bytes > 1U << 20 || array.inner_cells > 4096) return 0;
  try {
    static ps::detail::deflate_pool decompressors;  // reused, also after damaged streams
    const auto made = ps::detail::decode_hdf5_chunk(std::move(stored), array.filters, data[12],
                                                    array.chunk_bytes, decompressors, fail);
    fuzz::require(made.size == array.chunk_bytes, "a chunk has its size");
    array.convert(made.bytes());
  } catch (const std::runtime_error&) {
  }
  if (array.sample_bytes > 1U << 20) return 0;
  std::vector<std::uint8_t> covered(array.sample_bytes);
  for (std::uint64_t cell = 0; cell < array.inner_cells; ++cell) {
    array.for_each_piece(cell, [&](std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
      fuzz::require(from <= array.row_bytes && bytes <= array.row_bytes - from, "in the chunk");
      fuzz::require(to <= covered.size() && bytes <= covered.size() - to, "in the sample");
      for (std::uint64_t i = to; i < to + bytes; ++i) ++covered[i];
    });
  }
  fuzz::require(std::ranges::count(covered, 1) == static_cast<std::ptrdiff_t>(covered.size()),
                "each byte of a sample is placed once");
  return 0;
}
