// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/blob/support/group_cache.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/half_float.hpp>
#include <penstock_ext/indexed/hdf5/detail/hdf5_chunks.hpp>
#include <penstock_ext/indexed/hdf5/detail/hdf5_index.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of `hdf5_dataset`.
struct hdf5_options {
  /// The dataset in the file for each field, such as "train/images". If empty, each field takes the
  /// dataset with its name.
  std::vector<std::string> datasets = {};
  /// Maximum size of the cache of decoded chunks in bytes, at least the size of the largest chunk
  /// with filters. Decoding a chunk takes memory for its compressed bytes in addition.
  std::uint64_t cache_bytes = std::uint64_t{1} << 28;
  /// True if the constructor calls libhdf5 in a child process made by `fork()`. Damaged metadata
  /// can crash libhdf5, and then only the child ends. Set this option to false if the program must
  /// not fork. See docs/hdf5.md.
  bool child_process = true;
};

namespace detail {

/// Returns the name of the element type `T` in a file, such as "float32".
template <class T>
[[nodiscard]] std::string hdf5_type_of() {
  static_assert(std::is_arithmetic_v<T> ? sizeof(T) <= 8 : sizeof(T) == 2,
                "penstock: an HDF5 dataset holds bool, integers, float or double, and types of two "
                "bytes such as ps::half");
  const std::string bits = std::to_string(8 * sizeof(T));
  if (std::same_as<T, bool>) return "bool";
  if (std::integral<T>) return (std::is_signed_v<T> ? "int" : "uint") + bits;
  return std::floating_point<T> || is_half_float<T>() ? "float" + bits : "bfloat16";
}

/// Returns the requirements of a field for the dataset with its name.
template <name Name, class T, std::size_t... Extents>
[[nodiscard]] hdf5_spec hdf5_spec_of(std::type_identity<field<Name, T, Extents...>>) {
  return {Name.str(), Name.str(), hdf5_type_of<T>(), {Extents...}};
}

}  // namespace detail

/// A dataset over an HDF5 file. Each field takes the dataset with its name, whose first dimension
/// counts samples and whose other dimensions are the field extents:
///
///     using sample = record<field<"image", std::uint8_t, 28, 28>, field<"label", std::int64_t>>;
///     hdf5_dataset<sample> train{"train.h5"};
///     hdf5_dataset<sample> other{"all.h5", {.datasets = {"test/x", "test/y"}}};
///
/// Dynamic extents are those of the file. Elements have the type of the field and any byte order:
/// bool as stored by h5py, integers, float or double. float16 and bfloat16 can be read as a two-byte
/// type such as `half`, or as their bits in a `std::uint16_t`. Datasets are contiguous, or chunked
/// with the filters deflate, shuffle and LZF, or none. Missing chunks have the fill value.
///
/// The constructor lists all chunks with libhdf5, under a mutex of this class, in a child process.
/// No other thread may call libhdf5 in the meantime. Later,
/// threads read and decode in parallel without libhdf5. Without filters, only the bytes of the
/// samples are read. Chunks with filters are decoded whole and cached. A single thread decodes a chunk.
/// Other threads that need the chunk first read the other chunks of their samples, and then wait.
/// Therefore read such files in the order `sequential` or `block_shuffled{.block = data.block()}`.
///
/// The file must not change while it is open. Copies share it and the cache. Reading is thread-safe.
template <penstock::record_type Record>
class hdf5_dataset {
  static_assert(Record::ragged_fields == 0,
                "penstock::hdf5_dataset: all samples of a dataset have the same length: write your "
                "own dataset for a ragged field, see docs/ragged.md");

 public:
  using record_type = Record;

  /// Opens the file `path` and lists its datasets. Throws:
  /// - `file_unreadable`, also if the child process cannot be started; `file_truncated`;
  ///   `file_changed`
  /// - `file_format_error` with the message of libhdf5 if the file is not an HDF5 file, or if a
  ///   dataset is missing or damaged, or has another layout or filter
  /// - `file_corrupt` if a chunk or a dataset has an impossible size, or if libhdf5 crashed or
  ///   exceeded its processor time in the child process
  /// - `element_type_mismatch` if the element type does not match the field
  /// - `dimension_mismatch` if the rank or the extents differ from the field extents, or if there
  ///   are more than 2^28 chunks
  /// - `length_mismatch` if the number of samples differs from the first dataset
  /// - `option_error` if a chunk exceeds `cache_bytes`, or if `datasets` has another size than the
  ///   record
  explicit hdf5_dataset(const std::string& path, const hdf5_options& options = {})
      : shared_(std::make_shared<shared>(path, options)), layout_(extents_in_file(), 1) {}

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return shared_->size(); }
  /// Returns the extents of each sample.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }
  /// Returns the number of samples in the longest chunk with filters, at least 1. Use it as the
  /// block size of `block_shuffled`.
  [[nodiscard]] std::uint64_t block() const noexcept { return shared_->block; }
  /// Returns the number of chunks decoded so far.
  [[nodiscard]] std::uint64_t decoded() const { return shared_->cache.made(); }
  /// Returns the current size of the cached chunks in bytes.
  [[nodiscard]] std::uint64_t held_bytes() const { return shared_->cache.held(); }

  /// Copies the samples `indices` into `out`. Throws `index_error` if an index is out of range,
  /// `file_corrupt` if a chunk is damaged, `file_changed` and `file_unreadable`.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    const auto to = [&](std::size_t i, std::size_t field) { return out[i].address(field); };
    std::vector<run> with_filters;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      if (indices[i] >= size()) throw index_error("hdf5_dataset", indices[i], size());
    }
    for (std::size_t field = 0; field < Record::size; ++field) {
      const detail::hdf5_array& array = shared_->arrays[field];
      const std::uint64_t rows = array.chunk[0];
      for (std::size_t i = 0, end = 0; i < indices.size(); i = end) {
        while (end < indices.size() && indices[end] / rows == indices[i] / rows) ++end;
        const std::uint64_t first = indices[i] / rows * array.inner_cells;
        for (std::uint64_t cell = first; cell < first + array.inner_cells; ++cell) {
          const detail::hdf5_chunk* const chunk = array.find(cell);
          const run one{0, array.chunk_bytes, field, cell, chunk, i, end};
          if (chunk == nullptr || array.filters.empty()) {
            context.at(i);
            read_directly(one, indices, to);
          } else {
            with_filters.push_back(one);
            with_filters.back().group =
                shared_->first_group[field] + static_cast<std::size_t>(chunk - array.chunks.data());
          }
        }
      }
    }
    const auto begin = [&](const run& one) { context.at(one.begin); };
    const auto make = [&](const run& one) { return shared_->decode(one.field, *one.chunk); };
    shared_->cache.get_each(with_filters, begin, make, [&](const run& one, const auto& chunk) {
      const detail::hdf5_array& array = shared_->arrays[one.field];
      array.for_each_piece(one.cell, [&](auto from, auto at, auto bytes) {
        for (std::size_t i = one.begin; i < one.end; ++i) {
          const std::uint64_t row = indices[i] % array.chunk[0] * array.row_bytes;
          std::memcpy(to(i, one.field) + at, chunk.memory.get() + row + from, bytes);
        }
      });
    });
  }

 private:
  // Samples at the positions [begin, end) of a list whose parts in a column of cells are in one
  // chunk, or in none.
  struct run {
    std::size_t group;    // number of the chunk in the cache
    std::uint64_t bytes;  // size in the cache
    std::size_t field;
    std::uint64_t cell;
    const detail::hdf5_chunk* chunk;  // null if the chunk is missing
    std::size_t begin;
    std::size_t end;
  };

  struct shared {
    shared(const std::string& path, const hdf5_options& options)
        : file(path, "HDF5 files stay open: raise the limit (ulimit -n)"),
          cache(options.cache_bytes) {
      auto selection = [&]<std::size_t... Is>(std::index_sequence<Is...>) {
        return std::vector{
            detail::hdf5_spec_of(std::type_identity<typename Record::template field_at<Is>>{})...};
      }(std::make_index_sequence<Record::size>{});
      const std::vector<std::string>& names = options.datasets;
      if (!names.empty() && names.size() != Record::size) {
        detail::throw_option_error(
            "datasets", {"must name ", Record::size,
                         " datasets, one for each field, or none, but names ", names.size()});
      }
      for (std::size_t i = 0; i < names.size(); ++i) selection[i].dataset = names[i];
      arrays = detail::list_hdf5(file, selection, options.child_process);
      std::size_t chunks = 0;
      for (const detail::hdf5_array& one : arrays) {
        first_group.push_back(std::exchange(chunks, chunks + one.chunks.size()));
        if (one.lengths[0] != size()) {
          throw length_mismatch(path, 0,
                                std::to_string(size()) + " samples in dataset \"" + one.name +
                                    "\", as in dataset \"" + arrays[0].name + '"',
                                std::to_string(one.lengths[0]));
        }
        if (one.filters.empty()) continue;
        block = (std::max)(block, std::uint64_t{one.chunk[0]});
        if (one.chunk_bytes <= options.cache_bytes) continue;
        detail::throw_option_error(
            "cache_bytes", {"must be at least ", one.chunk_bytes,
                            ", the bytes of a chunk of dataset \"", one.name, "\" in ", path});
      }
      file.require_unchanged();
    }

    [[nodiscard]] std::uint64_t size() const noexcept { return arrays[0].lengths[0]; }

    [[nodiscard]] detail::hdf5_buffer decode(std::size_t field, const detail::hdf5_chunk& chunk) {
      const detail::hdf5_array& array = arrays[field];
      detail::hdf5_buffer stored{chunk.bytes};
      file.read_unchanged(chunk.offset, stored.bytes());
      const auto fail = [&](const std::string& expected, const std::string& found) {
        throw file_corrupt(file.path(), chunk.offset,
                           expected + " in dataset \"" + array.name + '"',
                           found + ": the chunk is damaged: write the file again");
      };
      auto made = detail::decode_hdf5_chunk(std::move(stored), array.filters, chunk.skipped,
                                            array.chunk_bytes, decompressors, fail);
      array.convert(made.bytes());
      return made;
    }

    detail::shard_file file;
    std::vector<detail::hdf5_array> arrays;  // one for each field
    std::vector<std::size_t> first_group;    // number of the first chunk of each field
    std::uint64_t block = 1;
    detail::deflate_pool decompressors;
    detail::group_cache<detail::hdf5_buffer> cache;
  };

  // Reads parts of samples from a chunk without filters, or fills them if the chunk is missing.
  template <class To>
  void read_directly(const run& one, std::span<const std::uint64_t> indices, const To& to) const {
    const detail::hdf5_array& array = shared_->arrays[one.field];
    array.for_each_piece(one.cell, [&](auto from, auto at, auto bytes) {
      for (std::size_t i = one.begin, end = 0; i < one.end; i = end) {
        std::byte* const first = to(i, one.field) + at;
        // Whole samples that are consecutive in the file and in the batch are a single read.
        end = i + 1;
        while (array.split == 0 && end < one.end && indices[end] == indices[i] + (end - i) &&
               to(end, one.field) == first + (end - i) * bytes) {
          ++end;
        }
        const std::span<std::byte> out{first, (end - i) * bytes};
        if (one.chunk == nullptr) {
          for (std::size_t k = 0; k < out.size(); ++k) out[k] = array.fill[k % array.element];
        } else {
          const std::uint64_t row = indices[i] % array.chunk[0] * array.row_bytes;
          shared_->file.read_unchanged(one.chunk->offset + row + from, out);
          array.convert(out);
        }
      }
    });
  }

  [[nodiscard]] record_extents<Record> extents_in_file() const {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return record_extents<Record>{
          detail::extents_in<typename Record::template field_at<Is>::extents_type>(
              std::span{shared_->arrays[Is].lengths}.subspan(1))...};
    }(std::make_index_sequence<Record::size>{});
  }

  std::shared_ptr<shared> shared_;
  batch_layout<Record> layout_;
};

static_assert(dataset<hdf5_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
