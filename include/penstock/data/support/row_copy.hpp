// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/support/dataset_members.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

// After the first kilobyte of a row the hardware prefetcher has recognised the stream.
inline constexpr std::size_t prefetch_bytes = 1024;

inline void prefetch_row(const std::byte* row, std::size_t bytes) noexcept {
  constexpr std::size_t line = 64;
  const std::size_t count = (std::min)(bytes, prefetch_bytes);
  for (std::size_t b = 0; b < count; b += line) __builtin_prefetch(row + b);
  // A row need not be aligned to cache lines: its last byte may lie in one more line.
  if (count > 0) __builtin_prefetch(row + count - 1);
  // GCC would remove the call of a function that only prefetches as having no effect.
  asm volatile("");
}

/// Copies the samples `indices` of `data`, which has `view` and `prefetch`, to `out`, prefetching
/// the next rows. Throws what `view` throws.
template <class Dataset, class Record>
void copy_rows(const Dataset& data, const batch_layout<Record>& layout,
               std::span<const std::uint64_t> indices, batch_view<Record> out,
               const chunk_context& context) {
  const std::size_t count = indices.size();
  for (std::size_t i = 0; i < (std::min)(prefetch_distance, count); ++i) {
    data.prefetch(indices[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    context.at(i);
    if (i + prefetch_distance < count) data.prefetch(indices[i + prefetch_distance]);
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
