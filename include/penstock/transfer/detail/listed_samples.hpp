// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/memory/support/sample_lists.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A batch in host memory that can say which samples it has.
template <class Batch>
concept batch_of_listed_samples = requires(const Batch& batch) {
  { batch.indices() } -> std::convertible_to<std::span<const std::uint64_t>>;
  { batch.substituted() } -> std::convertible_to<std::span<const std::uint64_t>>;
};

/// Takes memory for lists in `ring` where the batches of `source` will have some.
template <class Source, class Slots>
void list_samples_of([[maybe_unused]] const Source& source, [[maybe_unused]] Slots& ring) {
  if constexpr (batch_of_listed_samples<typename Source::batch_type> && requires {
                  { source.options().indices } -> std::convertible_to<bool>;
                }) {
    if (source.options().indices) {
      ring.lists = sample_lists{ring.most(), source.layout().batch_size()};
    }
  }
}

/// The batch that goes into `slot` has the samples of `batch`; the slot is free.
template <class Slots, class Batch>
void list_samples([[maybe_unused]] Slots& ring, [[maybe_unused]] std::size_t slot,
                  [[maybe_unused]] const Batch& batch) {
  if constexpr (batch_of_listed_samples<Batch>) {
    if (ring.lists.is_on()) [[unlikely]]
      ring.lists.take(slot, batch.indices(), batch.substituted());
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
