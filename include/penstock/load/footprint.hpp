// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/faults/error_policy.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/load/support/ragged_batches.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/threads/cpu_list.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The host memory of a loader. `footprint` computes it in advance, and `loader::footprint` returns
/// the memory of an existing loader. A loader allocates all of this memory at construction.
struct loader_footprint {
  std::size_t slot_count = 0;  ///< number of host slots
  /// Number of slots requested by the options. May exceed `slot_count` if the budget or the system
  /// limits the slots.
  std::size_t slots_requested = 0;
  std::size_t slot_bytes = 0;  ///< size of each slot in bytes (see `batch_layout`)
  std::size_t bytes = 0;       ///< size in bytes of the slab, as requested from the device
  bool pinned = false;         ///< true if the slab is page-locked or, in advance, should be
  /// True if the slab could not be registered, so that `cudaHostAlloc` page-locks it instead.
  /// Registration fails in some containers and with confidential computing. Also true if a GPU
  /// cannot access registered memory at its host address.
  bool registration_failed = false;
  /// The size in bytes of the smallest slab that the system failed to page-lock, so that the
  /// loader has fewer slots (see `budget_action::fewer_slots`), or 0. If the slab is pinned, the
  /// system limit is at least `bytes` and less than this value.
  std::size_t failed_bytes = 0;

  /// The maximum number of bytes that the loader allocates in addition to the slab: 32 KiB, 1 KiB
  /// per slot, 8 KiB per worker, and 16 bytes per sample of a worker's chunk. An error policy adds
  /// 64 KiB. A policy that skips samples also adds a byte per sample of a slot.
  /// `loader_options::instrumentation.indices` adds 16 bytes per sample of a slot, and
  /// `error_policy::quarantine_list` adds 32 bytes per index. Thread stacks and allocations of the
  /// dataset, the sampler and transforms are not included.
  std::size_t bookkeeping = 0;

  /// The cores on which the workers run. Reported only by a loader, because `footprint` assumes a
  /// device without a NUMA node.
  affinity_report workers = {};

  /// Warnings of the dataset (see `dataset`), such as files without checksums or a column that is
  /// slow to decode. Reported only by a loader.
  std::vector<std::string> warnings = {};

  /// Returns the size of the page-locked memory in bytes.
  [[nodiscard]] std::size_t pinned_bytes() const noexcept { return pinned ? bytes : 0; }
  /// Returns the size of the pageable memory in the slab in bytes.
  [[nodiscard]] std::size_t pageable_bytes() const noexcept { return pinned ? 0 : bytes; }

  friend bool operator==(const loader_footprint&, const loader_footprint&) = default;
};

namespace detail {

/// The minimum number of slots. A loop over a loader or a transfer makes progress with one slot,
/// because `++` ends the lease, or transfers the slot to its copy, before it requests the next
/// batch. With one slot, nothing is read ahead.
inline constexpr std::size_t min_slots = 1;
/// The minimum number of slots with `automatic`. With a single slot, there would be nothing to
/// tune.
inline constexpr std::size_t min_tuned_slots = 2;

/// Returns `a * b + c`, or the maximum value if the result overflows.
constexpr std::size_t saturating_sum(std::size_t a, std::size_t b, std::size_t c) noexcept {
  constexpr std::size_t max = (std::numeric_limits<std::size_t>::max)();
  const auto product = static_cast<std::size_t>(saturating_product(a, b));
  return product > max - c ? max : product + c;
}

/// Returns the value of `loader_footprint::bookkeeping`.
inline std::size_t max_bookkeeping(const loader_options& options, std::size_t slot_count,
                                   std::size_t chunk) noexcept {
  constexpr std::size_t kib = 1024;
  const bool skips = options.faults.on_error.action == error_action::skip;
  const std::size_t fixed = (is_plain(options.faults.on_error) ? 32 * kib : 96 * kib) +
                            32 * options.faults.on_error.quarantine_list.value().size();
  const std::size_t workers = std::max<std::size_t>(1, options.workers.value());
  const std::size_t a_sample = (skips ? 1U : 0U) + (options.instrumentation.indices ? 16U : 0U);
  return saturating_sum(slot_count, saturating_sum(a_sample, options.batch_size, kib),
                        saturating_sum(workers, saturating_sum(16, chunk, 8 * kib), fixed));
}

/// Returns the footprint of a loader with these options and `slot_count` slots.
[[nodiscard]] inline loader_footprint footprint_of(std::size_t slot_bytes, std::size_t sample_bytes,
                                                   const loader_options& options,
                                                   std::size_t slot_count) noexcept {
  const bool anywhere = options.tuning.affinity == worker_affinity::anywhere;
  const std::size_t chunk = chunk_size_of(options, sample_bytes);
  return {.slot_count = slot_count,
          .slots_requested = wanted_slots(options, slot_bytes),
          .slot_bytes = slot_bytes,
          .bytes = static_cast<std::size_t>(saturating_product(slot_count, slot_bytes)),
          .pinned = options.pinned,
          .bookkeeping = max_bookkeeping(options, slot_count, chunk),
          .workers = {.binding = anywhere ? core_binding::disabled : core_binding::no_node},
          .warnings = {}};
}

/// Reserves the host slots of a loader from its budget. `options` must be resolved. Throws
/// `pinned_budget_exceeded` if the budget does not suffice.
inline memory_reservation reserve_slots(std::size_t slot_bytes, const loader_options& options) {
  constexpr double usual_share = 0.25;
  const std::size_t requested = wanted_slots(options, slot_bytes);
  const bool may_be_fewer = options.memory.on_budget_exceeded == budget_action::fewer_slots ||
                            options.prefetch.is_automatic();
  const std::size_t min = has_automatic(options) ? min_tuned_slots : min_slots;
  const memory_budget budget =
      options.memory.budget ? *options.memory.budget : memory_budget::share(usual_share);
  return budget.reserve(
      {.slot_count = requested, .min = may_be_fewer ? min : requested, .slot_bytes = slot_bytes});
}

/// Allocates the host slots that `granted` allows. While the system fails to page-lock them,
/// halves their number down to the minimum, and returns the other slots to the budget. After the
/// last failure, continues with all slots in pageable memory if the options allow it. Throws
/// `out_of_memory`, and errors from the device.
template <device Device>
[[nodiscard]] slab<Device> allocate_slots(const Device& device, std::size_t slot_bytes,
                                          const loader_options& options,
                                          memory_reservation& granted) {
  const auto all = static_cast<std::size_t>(granted.slot_count());
  const auto least = static_cast<std::size_t>(granted.min_slot_count());
  if (!options.pinned || all == least) return {device, slot_memory(options), slot_bytes, all};
  std::size_t failed_count = 0;
  for (std::size_t count = all;; count = (std::max)(least, count / 2)) {
    try {
      slab<Device> memory{device, memory_kind::pinned, slot_bytes, count};
      if (failed_count != 0) granted.shrink(count, failed_count);
      return memory;
    } catch (const out_of_memory&) {
      failed_count = count;
      if (count > least) continue;
      if (!options.memory.pageable_fallback) throw;
      granted.shrink(all, failed_count);
      return {device, memory_kind::pageable, slot_bytes, all};
    }
  }
}

}  // namespace detail

/// Returns the host memory that a loader of `Record` with these extents and options would allocate.
/// Does not allocate or reserve memory.
///
///     const auto need = ps::footprint<digit>({}, {.batch_size = 64, .workers = 8});
///
/// Counts all slots that the options request, regardless of the budget. `automatic` counts as its
/// maximum. `loader::footprint()` reports the slots granted by the budget, and
/// `pinned_budget_exceeded` reports the slots denied by the budget. Throws `option_error` and
/// `layout_error`.
template <record_type Record>
[[nodiscard]] loader_footprint footprint(const record_extents<Record>& extents,
                                         const loader_options& options) {
  detail::require_valid(options);
  const batch_layout<Record> layout{detail::extents_for(extents, options), options.batch_size};
  const loader_options max = detail::resolved(options);
  return detail::footprint_of(layout.bytes(), layout.sample_bytes(), max,
                              detail::wanted_slots(max, layout.bytes()));
}

/// Formats the footprint as a line with the slots, their memory, and the cores of the workers,
/// followed by a line for each warning of the dataset.
[[nodiscard]] inline std::string to_text(const loader_footprint& taken) {
  std::string text = detail::str_cat({taken.slot_count, " slots of ", taken.slot_bytes, " bytes"});
  if (taken.slots_requested > taken.slot_count)
    text += detail::str_cat({" (", taken.slots_requested, " were requested)"});
  if (taken.failed_bytes != 0)
    text += detail::str_cat({" (the system could not lock ", taken.failed_bytes, " bytes)"});
  text += detail::str_cat({", ", taken.bytes, " bytes ", taken.pinned ? "pinned" : "pageable",
                           taken.registration_failed ? " (registration failed)" : "", ", at most ",
                           taken.bookkeeping, " bytes of bookkeeping; ", to_text(taken.workers)});
  for (const std::string& warning : taken.warnings) (text += "\nwarning: ") += warning;
  return text;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
