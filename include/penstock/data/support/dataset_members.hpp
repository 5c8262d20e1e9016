// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

// The optional members of a dataset; `dataset` documents each.

template <class D>
concept has_record = requires { requires record_type<typename D::record_type>; };

template <class D>
concept has_size = requires(const D& d) {
  { d.size() } -> std::convertible_to<std::uint64_t>;
};

template <class D>
concept has_extents = requires(const D& d) {
  { d.extents() } -> std::convertible_to<record_extents<typename D::record_type>>;
};

template <class D>
concept has_length = D::record_type::ragged_fields == 1 && requires(const D& d, std::uint64_t i) {
  { d.length(i) } -> std::convertible_to<std::uint64_t>;
};

template <class D>
concept has_lengths = requires(const D& d, std::uint64_t i) {
  { d.lengths(i) } -> std::convertible_to<sample_lengths<typename D::record_type>>;
};

/// Knows the lengths of a sample's ragged fields before the sample is read.
template <class D>
concept tells_lengths =
    has_record<D> && D::record_type::ragged_fields != 0 && (has_lengths<D> || has_length<D>);

template <class D>
concept reads =
    requires(const D& d, std::uint64_t i, sample<typename D::record_type> out) { d.read(i, out); };

template <class D>
concept reads_randomly = requires(const D& d, std::uint64_t i, sample<typename D::record_type> out,
                                  sample_generator& rng) { d.read(i, out, rng); };

template <class D>
concept reads_chunks =
    requires(const D& d, std::span<const std::uint64_t> indices,
             batch_view<typename D::record_type> out) { d.read_chunk(indices, out); };

template <class D>
concept reads_chunks_in_context = requires(
    const D& d, std::span<const std::uint64_t> indices, batch_view<typename D::record_type> out,
    const chunk_context& context) { d.read_chunk(indices, out, context); };

template <class D>
concept views_samples = requires(const D& d, std::uint64_t i) {
  { d.view(i) } -> std::convertible_to<const_sample<typename D::record_type>>;
};

template <class D>
concept prefetches = requires(const D& d, std::uint64_t i) {
  { d.prefetch(i) } noexcept;
};

template <class D>
concept has_origins = requires(const D& d, std::uint64_t i) {
  { d.origin(i) } noexcept -> std::convertible_to<sample_origin>;
  { d.base_sizes() } -> std::convertible_to<std::vector<std::uint64_t>>;
};

/// Accepts prefetch hints.
template <class D>
concept accepts_hints =
    requires(const D& d, std::span<const std::uint64_t> indices) { d.prefetch_hint(indices); };

/// Knows the sizes of its samples in storage. Also for blob sources, as are the next ones.
template <class D>
concept has_storage_size = requires(const D& d, std::uint64_t i) {
  { d.storage_size(i) } -> std::convertible_to<std::uint64_t>;
};

template <class D>
concept bounds_prefetch = requires(const D& d) {
  { d.prefetch_capacity() } -> std::convertible_to<std::uint64_t>;
};

/// Accepts a plan of later reads, of which nothing is fetched.
template <class D>
concept accepts_access_plans =
    requires(const D& d, std::span<const std::uint64_t> indices) { d.access_plan(indices); };

/// Wants to know what comes in one way or the other: what a loader spends a thread on.
template <class D>
concept looks_ahead = accepts_hints<D> || accepts_access_plans<D>;

template <class D>
concept bounds_access_plans = requires(const D& d) {
  { d.plan_capacity() } -> std::convertible_to<std::uint64_t>;
};

/// Has warnings.
template <class D>
concept warns = requires(const D& d) {
  { d.warnings() } -> std::convertible_to<std::vector<std::string>>;
};

template <class D>
concept has_fingerprint = requires(const D& d) {
  { d.fingerprint() } -> std::convertible_to<std::uint64_t>;
};

/// Transforms each batch after all its samples are read, see `map_batch`. Called once per batch, on
/// one thread; several batches may be finished at once.
template <class D>
concept finishes_batches = requires(const D& d, batch_view<typename D::record_type> all,
                                    sample_generator& rng) { d.finish_batch(all, rng); };

template <class D>
concept has_scratch = requires(const D& d) {
  { d.scratch_bytes() } -> std::convertible_to<std::size_t>;
};

/// How many samples ahead rows are prefetched; four was fastest for rows of 784 bytes.
inline constexpr std::size_t prefetch_distance = 4;

template <class D>
concept counts_stages = requires(const D& d) {
  { d.stages() } -> std::convertible_to<std::uint32_t>;
};

template <class D>
concept names_stages = requires {
  { D::stages } -> std::convertible_to<std::uint32_t>;
};

/// The number of random stages of a dataset, including those below it; keeps their random bits
/// apart. `stages` is a constant, or a function if the type does not determine it.
template <class D>
[[nodiscard]] constexpr std::uint32_t stages_of([[maybe_unused]] const D& data) {
  if constexpr (counts_stages<D>) {
    return data.stages();
  } else if constexpr (names_stages<D>) {
    return D::stages;
  } else {
    return 0;
  }
}

/// Whether reading needs memory of another owner, so that no read may outlive it. Your own dataset
/// that holds pointers has `static constexpr bool borrows = true`.
template <class D>
inline constexpr bool borrows = false;
template <class D>
  requires requires { D::borrows; }
inline constexpr bool borrows<D> = D::borrows;

/// Whether a function in a pipeline borrows. Its captures may be references, so a function with any
/// state counts as borrowing unless it has `static constexpr bool borrows = false`.
template <class F>
inline constexpr bool function_borrows = !std::is_empty_v<F>;
template <class F>
  requires requires { F::borrows; }
inline constexpr bool function_borrows<F> = F::borrows;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
