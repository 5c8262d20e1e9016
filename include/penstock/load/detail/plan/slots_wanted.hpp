// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <penstock/load/detail/plan/limits.hpp>
#include <penstock/load/options.hpp>
#include <penstock/memory/support/slab.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether anything is chosen while the loop runs; for resolved options, see `resolved`.
inline bool has_automatic(const loader_options& options) noexcept {
  return options.workers != 0 && (options.cpus != automatic || options.prefetch == automatic);
}
/// How many workers take part at first; for resolved options.
inline std::size_t first_workers(const loader_options& options) noexcept {
  return options.cpus != automatic ? 1 : options.workers;
}

/// The batches that are read ahead where the options name no number.
inline std::size_t usual_prefetch(const loader_options& options, std::size_t slot_bytes) noexcept {
  if (options.workers == 0) return 1;  // one is read into while the other is copied
  // Many small batches a wake-up, few large ones: a hand-off costs the same for both.
  constexpr std::size_t cached_bytes = std::size_t{1} << 19;
  const std::size_t cached =
      std::min<std::size_t>(9, cached_bytes / std::max<std::size_t>(1, slot_bytes));
  const std::size_t wanted = (std::max)(cached, std::max<std::size_t>(2, options.workers) + 1);
  return std::min<std::size_t>(wanted, most_slots) - 1;  // 4096 workers want one more
}

/// How many host slots the resolved options ask for: one at the consumer, the others read ahead.
inline std::size_t wanted_slots(const loader_options& options, std::size_t slot_bytes) noexcept {
  if (options.prefetch != 0 && options.prefetch != automatic) return options.prefetch + 1;
  const std::size_t usual = usual_prefetch(options, slot_bytes);
  if (options.prefetch == 0 || options.workers == 0) return usual + 1;
  return std::min<std::size_t>(2 * usual + 1, most_slots);
}

/// What the host slots are made of.
inline memory_kind slot_memory(const loader_options& options) noexcept {
  if (!options.pinned) return memory_kind::pageable;
  return options.pageable_fallback ? memory_kind::pinned_or_pageable : memory_kind::pinned;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
