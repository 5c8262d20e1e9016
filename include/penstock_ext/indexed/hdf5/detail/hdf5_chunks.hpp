// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <libdeflate.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock_ext/blob/support/state_pool.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The supported filters of chunks, with the numbers of the HDF5 format.
enum class hdf5_filter_id : std::int32_t { deflate = 1, shuffle = 2, lzf = 32000 };

/// A filter of a dataset.
struct hdf5_filter {
  hdf5_filter_id id;
  std::size_t width = 1;  ///< element size in bytes, for `shuffle`, at least 1
};

/// Uninitialized bytes.
struct hdf5_buffer {
  explicit hdf5_buffer(std::uint64_t bytes)
      : memory(std::make_unique_for_overwrite<std::byte[]>(bytes)), size(bytes) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {memory.get(), size}; }

  std::unique_ptr<std::byte[]> memory;
  std::size_t size;
};

/// A pool of decompressors of libdeflate, because creating a decompressor for each
/// small chunk is slow. A pointer is null until its first use.
using deflate_pool = state_pool<std::shared_ptr<::libdeflate_decompressor>>;

/// Decompresses LZF data into `out`. Returns the number of bytes written, or nothing if the data is
/// damaged or exceeds `out`.
[[nodiscard]] inline std::optional<std::size_t> lzf_decompress(std::span<const std::byte> in,
                                                               std::span<std::byte> out) noexcept {
  std::size_t at = 0;
  std::size_t filled = 0;
  const auto next = [&] { return std::to_integer<std::size_t>(in[at++]); };
  while (at < in.size()) {
    const std::size_t control = next();
    if (control < 32) {  // literal bytes
      const std::size_t count = control + 1;
      if (count > in.size() - at || count > out.size() - filled) return std::nullopt;
      std::memcpy(&out[filled], &in[at], count);
      at += count;
      filled += count;
      continue;
    }
    std::size_t length = (control >> 5U) + 2;
    if (length == 9 && at < in.size()) length += next();
    if (at == in.size()) return std::nullopt;
    const std::size_t distance = ((control & 31U) << 8U) + next() + 1;
    if (distance > filled || length > out.size() - filled) return std::nullopt;
    // Copies bytes one after another, because a source that overlaps its copy repeats.
    for (const std::size_t end = filled + length; filled < end; ++filled) {
      out[filled] = out[filled - distance];
    }
  }
  return filled;
}

/// Interleaves the bytes of `count` elements. `in` contains the first bytes of all elements, then
/// their second bytes, and so on.
template <std::size_t... Bytes>
void join_bytes(const std::byte* __restrict in, std::size_t count, std::byte* __restrict out,
                std::index_sequence<Bytes...>) noexcept {
  constexpr std::size_t width = sizeof...(Bytes);
  constexpr std::size_t block = 64;
  std::size_t begin = 0;
  // GCC vectorizes the inner loop at -O2 because its number of iterations is constant.
  for (; block <= count - begin; begin += block) {
    const std::byte* __restrict from = in + begin;
    std::byte* __restrict to = out + begin * width;
    for (std::size_t i = 0; i < block; ++i)
      ((to[i * width + Bytes] = from[Bytes * count + i]), ...);
  }
  for (; begin < count; ++begin) ((out[begin * width + Bytes] = in[Bytes * count + begin]), ...);
}

/// Reverses the shuffle filter of elements of `width` bytes. Bytes after the last whole element are
/// not shuffled. `out` has as many bytes as `in`.
inline void unshuffle(std::span<const std::byte> in, std::size_t width, std::byte* out) noexcept {
  const std::size_t count = in.size() / width;
  if (width == 2) {
    join_bytes(in.data(), count, out, std::make_index_sequence<2>{});
  } else if (width == 4) {
    join_bytes(in.data(), count, out, std::make_index_sequence<4>{});
  } else if (width == 8) {
    join_bytes(in.data(), count, out, std::make_index_sequence<8>{});
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t b = 0; b < width; ++b) out[i * width + b] = in[b * count + i];
    }
  }
  std::copy(in.end() - static_cast<std::ptrdiff_t>(in.size() % width), in.end(),
            out + count * width);
}

/// Reverses the filters of a chunk with the content `stored`. Bit i of `skipped` is set if filter i
/// was not applied to this chunk. The result has `bytes` bytes. If the chunk is damaged, calls
/// `fail(expected, found)`, which must throw.
template <class Fail>
[[nodiscard]] hdf5_buffer decode_hdf5_chunk(hdf5_buffer stored,
                                            std::span<const hdf5_filter> filters,
                                            std::uint32_t skipped, std::uint64_t bytes,
                                            deflate_pool& decompressors, const Fail& fail) {
  for (std::size_t i = filters.size(); i-- > 0;) {
    const auto [id, width] = filters[i];
    if ((skipped >> i & 1U) != 0 || (id == hdf5_filter_id::shuffle && width == 1)) continue;
    hdf5_buffer out{id == hdf5_filter_id::shuffle ? stored.size : bytes};
    if (id == hdf5_filter_id::shuffle) {
      unshuffle(stored.bytes(), width, out.memory.get());
    } else if (id == hdf5_filter_id::lzf) {
      const auto size = lzf_decompress(stored.bytes(), out.bytes());
      if (!size) fail("LZF data", "damaged data, or more than " + std::to_string(bytes) + " bytes");
      out.size = *size;
    } else {
      const auto decompressor = decompressors.take();
      if (*decompressor == nullptr) {
        decompressor->reset(::libdeflate_alloc_decompressor(), ::libdeflate_free_decompressor);
        if (*decompressor == nullptr) throw std::bad_alloc();
      }
      std::size_t size = 0;
      // Verifies the checksum. Ignores bytes after the stream, like libhdf5.
      if (::libdeflate_zlib_decompress(decompressor->get(), stored.memory.get(), stored.size,
                                       out.memory.get(), out.size, &size) != LIBDEFLATE_SUCCESS) {
        fail("a deflate stream",
             "a damaged stream, or more than " + std::to_string(bytes) + " bytes");
      }
      out.size = size;
    }
    stored = std::move(out);
  }
  if (stored.size != bytes) {
    fail("a chunk of " + std::to_string(bytes) + " bytes", std::to_string(stored.size));
  }
  return stored;
}

/// A chunk in a file.
struct hdf5_chunk {
  std::uint64_t cell = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;    ///< size in the file
  std::uint32_t skipped = 0;  ///< filters that were not applied, one bit each
};

/// A dataset in a file, without references to libhdf5. Cells are the places of chunks, numbered in
/// row-major order. The first dimension counts samples. A contiguous dataset is a single chunk.
struct hdf5_array {
  using sizes = std::vector<unsigned long long>;  // as in libhdf5

  std::string name;
  sizes lengths;                     ///< dimensions, outermost first, at least one
  sizes chunk;                       ///< dimensions of a chunk, at least 1 each
  std::size_t element = 1;           ///< element size in bytes
  bool is_swapped = false;           ///< true if the elements do not have native byte order
  bool is_bool = false;              ///< true if elements may be any byte that means a bool
  std::vector<hdf5_filter> filters;  ///< in the order of writing
  std::vector<std::byte> fill;       ///< element of missing chunks
  std::vector<hdf5_chunk> chunks;    ///< sorted by cell

  sizes grid;                      ///< number of cells in each dimension
  std::uint64_t cells = 1;         ///< number of all cells, at least 1
  std::uint64_t inner_cells = 1;   ///< number of cells with parts of the same sample
  std::uint64_t sample_bytes = 0;  ///< size of a sample
  std::uint64_t row_bytes = 0;     ///< size of a sample's part of a chunk
  std::uint64_t chunk_bytes = 0;   ///< size of a decoded chunk
  std::size_t split = 0;           ///< the last dimension of a sample that chunks divide, or 0

  /// Computes the members from `grid` to `split`. Returns false if a number exceeds 64 bits.
  [[nodiscard]] bool measure() {
    bool is_too_large = false;
    const auto times = [&](std::uint64_t& value, std::uint64_t factor) {
      is_too_large = __builtin_mul_overflow(value, factor, &value) || is_too_large;
    };
    grid.resize(lengths.size());
    sample_bytes = chunk_bytes = element;
    for (std::size_t d = lengths.size(); d-- > 0;) {
      grid[d] = (std::max)(lengths[d] / chunk[d] + (lengths[d] % chunk[d] == 0 ? 0U : 1U), 1ULL);
      times(cells, grid[d]);
      row_bytes = chunk_bytes;
      times(chunk_bytes, chunk[d]);
      if (d == 0) break;
      times(inner_cells, grid[d]);
      times(sample_bytes, lengths[d]);
      if (split == 0 && chunk[d] != lengths[d]) split = d;
    }
    std::uint64_t all = cells;
    times(all, chunk_bytes);
    return !is_too_large;
  }

  /// Returns the chunk in a cell, or null if it is missing.
  [[nodiscard]] const hdf5_chunk* find(std::uint64_t cell) const noexcept {
    if (chunks.size() == cells) return &chunks[cell];
    const auto found =
        std::lower_bound(chunks.begin(), chunks.end(), cell,
                         [](const hdf5_chunk& one, std::uint64_t at) { return one.cell < at; });
    return found != chunks.end() && found->cell == cell ? &*found : nullptr;
  }

  /// Calls `piece(from, to, bytes)` for each contiguous piece of a sample in `cell`. `from` is
  /// relative to the sample's row in the chunk, and `to` to the sample.
  template <class Piece>
  void for_each_piece(std::uint64_t cell, const Piece& piece) const {
    if (split == 0) return piece(std::uint64_t{0}, std::uint64_t{0}, sample_bytes);
    place_pieces(lengths.size() - 1, cell, element, element, 0, 0, 0, piece);
  }

  /// Converts elements from the file to native values.
  void convert(std::span<std::byte> values) const noexcept {
    if (is_swapped && element == 2) swap_bytes<2>(values);
    if (is_swapped && element == 4) swap_bytes<4>(values);
    if (is_swapped && element == 8) swap_bytes<8>(values);
    if (!is_bool) return;
    for (std::byte& one : values) one = std::byte{one != std::byte{0}};
  }

 private:
  // Places the dimensions up to `d`, where neighbours are `in_chunk` and `in_sample` bytes apart.
  // `bytes` is the size of a piece, or 0 while dimension `split` is not reached.
  template <class Piece>
  void place_pieces(std::size_t d, std::uint64_t cell, std::uint64_t in_chunk,
                    std::uint64_t in_sample, std::uint64_t from, std::uint64_t to,
                    std::uint64_t bytes, const Piece& piece) const {
    if (d == 0) return piece(from, to, bytes);
    const std::uint64_t begin = cell % grid[d] * chunk[d];
    std::uint64_t count = (std::min)(chunk[d], lengths[d] - begin);
    if (d >= split) bytes = count * in_sample;
    if (d >= split) count = 1;
    to += begin * in_sample;
    for (std::uint64_t i = 0; i < count; ++i) {
      place_pieces(d - 1, cell / grid[d], in_chunk * chunk[d], in_sample * lengths[d],
                   from + i * in_chunk, to + i * in_sample, bytes, piece);
    }
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
