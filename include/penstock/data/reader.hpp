// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Reads the samples `indices` into `out` through the preferred member that the dataset provides.
/// Adaptors read their wrapped dataset through this function. Sample `indices[i]` is written to
/// `out[i]`, so both must have the same size.
template <dataset D>
void read_chunk(const D& data, std::span<const std::uint64_t> indices,
                batch_view<typename D::record_type> out, const chunk_context& context) {
  if constexpr (detail::reads_chunks_in_context<D>) {
    context.at_any();  // clears the position recorded by the previous chunk or an outer adaptor
    data.read_chunk(indices, out, context);
  } else if constexpr (detail::reads_chunks<D>) {
    context.at_all();
    try {
      data.read_chunk(indices, out);
    } catch (...) {
      // The dataset does not report which sample failed, so each sample is read again individually.
      // The consumer still receives the first exception.
      const auto original = std::current_exception();
      for (std::size_t i = 0; i < indices.size(); ++i) {
        context.at(i);
        try {
          data.read_chunk(indices.subspan(i, 1), out.subchunk(i, 1));
        } catch (...) {
          std::rethrow_exception(original);
        }
      }
      context.at_any();
      std::rethrow_exception(original);
    }
  } else {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      detail::prefetch_ahead(data, indices, i);
      if constexpr (detail::reads_randomly<D>) {
        auto rng = context.generator(i, 0);
        data.read(indices[i], out[i], rng);
      } else {
        data.read(indices[i], out[i]);
      }
    }
  }
}

namespace detail {

/// A thread's scratch memory for reading chunks, so that reading does not allocate, and the
/// position of the current sample. Not thread-safe, except `progress`.
class chunk_memory {
 public:
  /// Allocates `scratch_bytes` bytes of scratch memory. Throws std::bad_alloc.
  explicit chunk_memory(std::size_t scratch_bytes)
      : scratch_size_(scratch_bytes), scratch_(allocate(scratch_bytes)) {}

  chunk_memory(chunk_memory&& other) noexcept
      : scratch_size_(std::exchange(other.scratch_size_, 0)),
        scratch_(std::exchange(other.scratch_, nullptr)),
        progress_(other.progress_.load(std::memory_order_relaxed)) {}
  chunk_memory& operator=(chunk_memory&&) = delete;
  ~chunk_memory() {
    if (scratch_ != nullptr) ::operator delete(scratch_, alignment);
  }

  /// Returns the context for reading the samples `indices` with the random bits of `key`, valid
  /// until the next call. Samples are timed unless `times` is null.
  [[nodiscard]] chunk_context begin(std::span<const std::uint64_t> indices, const random_key& key,
                                    sample_clock* times) noexcept {
    progress_.store(0, std::memory_order_relaxed);
    return {key, indices, {scratch_, scratch_size_}, progress_, times};
  }
  /// Returns the position of the current sample in the chunk. Any thread may read it.
  [[nodiscard]] const std::atomic<std::size_t>& progress() const noexcept { return progress_; }

 private:
  static constexpr std::align_val_t alignment{256};
  static std::byte* allocate(std::size_t bytes) {
    return bytes == 0 ? nullptr : static_cast<std::byte*>(::operator new(bytes, alignment));
  }

  std::size_t scratch_size_;
  std::byte* scratch_;
  std::atomic<std::size_t> progress_{0};
};

}  // namespace detail

/// Reads chunks of samples from a dataset. Owns the scratch memory, so that reading does not
/// allocate, and records which sample failed. Not thread-safe. Each thread needs its own reader.
/// References the dataset, which must outlive it.
template <dataset D>
class reader {
 public:
  using record_type = typename D::record_type;

  /// References `data`, which must outlive this object.
  explicit reader(const D& data) : data_(&data), memory_(scratch_bytes_of(data)) {}

  /// Reads the samples `indices` into `out` with the random bits of `key`. If the dataset throws,
  /// the exception propagates, and `failed_at()` returns the position of the failed sample. Samples
  /// are timed unless `times` is null.
  void read(std::span<const std::uint64_t> indices, batch_view<record_type> out,
            const random_key& key, detail::sample_clock* times = nullptr) {
    read_chunk(*data_, indices, out, memory_.begin(indices, key, times));
  }

  /// Returns the chunk position of the sample that failed in the last `read`. Call this only after
  /// an exception.
  [[nodiscard]] std::size_t failed_at() const noexcept {
    return memory_.progress().load(std::memory_order_relaxed);
  }

 private:
  const D* data_;
  detail::chunk_memory memory_;
};

namespace detail {

// Prefetches at most one kilobyte, after which the hardware prefetcher has detected the stream.
inline constexpr std::size_t prefetch_bytes = 1024;

inline void prefetch_row(const std::byte* row, std::size_t bytes) noexcept {
  constexpr std::size_t line = 64;
  const std::size_t count = (std::min)(bytes, prefetch_bytes);
  for (std::size_t b = 0; b < count; b += line) __builtin_prefetch(row + b);
  // A row need not start at a cache line boundary, so its last byte may lie in an additional cache
  // line.
  if (count > 0) __builtin_prefetch(row + count - 1);
  // Without this statement, GCC would assume that the function has no effect, and would remove
  // calls to it.
  asm volatile("");
}

/// Copies the samples `indices` of `data` to `out`, and prefetches the next rows. `data` must have
/// `view` and `prefetch`. Throws the same errors as `view`.
template <class Dataset, class Record>
void copy_rows(const Dataset& data, const batch_layout<Record>& layout,
               std::span<const std::uint64_t> indices, batch_view<Record> out,
               const chunk_context& context) {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    context.at(i);
    prefetch_ahead(data, indices, i);
    const auto in = data.view(indices[i]);
    const auto place = out[i];
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (std::memcpy(place.address(Is), in.address(Is), layout.template sample_bytes<Is>()), ...);
    }(std::make_index_sequence<Record::size>{});
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
