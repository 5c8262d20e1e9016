// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
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

/// Random access to samples. The contract:
///
///     struct source {
///       using record_type = record<field<...>...>;
///       std::uint64_t size() const;                                  // constant while in use
///       void read(std::uint64_t index, sample<record_type> out) const;
///       record_extents<record_type> extents() const;  // only with dyn extents or ragged fields
///       std::uint64_t length(std::uint64_t index) const;  // only with a ragged field
///     };
///
/// `read` writes every element of every field of sample `index` in [0, size()) directly into the
/// batch. It is called from several threads at once, for different positions. Exceptions reach the
/// consumer at that batch's turn.
///
/// The optional members, by capability; docs/from_pytorch.md has them in a table.
///
/// **Reading.** Instead of `read(index, out)`, or in addition, in order of preference:
/// - `read_chunk(indices, batch_view<record_type> out)`: reads several samples at once, for
///   vectored or prefetched reading; `indices[i]` goes to `out[i]`;
/// - `read(index, out, rng)`: reads with random bits; `rng` is a `sample_generator&` keyed by
///   (seed, epoch, index);
/// - `view(index)`: refers to the sample in memory as a `const_sample` (its fields may lie in
///   different arrays), so that `map` needs no copy; valid until the dataset is moved or changed;
/// - `prefetch(index) noexcept`: starts to load the sample into the processor's cache.
///
/// **Lengths.** `length` returns the number of values in the ragged field of a sample; with several
/// ragged fields, `sample_lengths<record_type> lengths(index)` returns all of them, in the record's
/// order. It is called for all samples of a batch before any of them is read, from several threads
/// at once. It should take no longer than an index lookup and must always return the same value;
/// the limits of `loader_options::faults` do not cover it. Exceptions reach the consumer at that
/// batch's turn.
///
/// **Hints** about coming reads, for a disk or a network, see `loader_options::ahead`:
/// - `prefetch_hint(indices)`: a prefetch hint: these samples will be read next, in this order,
///   after those of earlier calls. Starts to fetch them and returns soon. Called by one thread of a
///   loader while others read; exceptions are counted and have no other effect;
/// - `std::uint64_t storage_size(index) const`: the bytes of the sample in storage. If absent or 0,
///   its bytes in a batch are assumed, or for a ragged record the mean of the samples read so far;
/// - `std::uint64_t prefetch_capacity() const`: the most prefetched bytes that it keeps; unbounded
///   if absent;
/// - `access_plan(indices)`: the plan of later reads, by which a cache decides what to keep: these
///   samples will be read, in this order, after those of earlier calls. Fetches nothing. An empty
///   list retracts the plan. Called as `prefetch_hint`;
/// - `std::uint64_t plan_capacity() const`: the most planned bytes that it can make use of; 0 for
///   no plan at all; unbounded if absent.
///
/// **Borrowing.** A dataset that refers to memory of another owner has `static constexpr bool
/// borrows = true`: then a loader's destructor waits for all its reads, even beyond
/// `loader_options::faults.timeout`.
///
/// **Origins.** Your own adaptor states the origin of its samples in the datasets below, for
/// failures and quarantine lists: `sample_origin origin(index) const noexcept` and
/// `std::vector<std::uint64_t> base_sizes() const`, by means of `origin_of` and `base_sizes_of`.
/// Without these members it counts as the bottom. `give_prefetch_hint`, `extend_access_plan`,
/// `storage_size_of`, `prefetch_capacity_of` and `plan_capacity_of` forward hints and plans. An
/// adaptor that selects samples by a list also has `std::uint64_t fingerprint() const`, a hash of
/// the list and of `fingerprint_of` the dataset below, so that a state of another list is refused.
///
/// **Warnings.** `std::vector<std::string> warnings() const`: sentences about itself for
/// `loader::footprint` and a log, such as that its files have no checksums. An adaptor forwards
/// `warnings_of` the dataset below.
///
/// @see examples/02_own_dataset.cpp; data/adaptors/adaptor.hpp for adaptors
template <class D>
concept dataset = detail::has_record<D> && detail::has_size<D> &&
                  (!D::record_type::has_dynamic_extents || detail::has_extents<D>) &&
                  (D::record_type::ragged_fields == 0 || detail::tells_lengths<D>) &&
                  (detail::reads<D> || detail::reads_randomly<D> || detail::reads_chunks<D> ||
                   detail::reads_chunks_in_context<D>);

namespace detail {

/// One readable sentence for each requirement of the concept that a type may fail.
template <class D>
constexpr void require_dataset() {
  static_assert(has_record<D>,
                "penstock: a dataset needs `using record_type = penstock::record<field<...>...>`");
  if constexpr (has_record<D>) {
    static_assert(has_size<D>, "penstock: a dataset needs `std::uint64_t size() const`");
    static_assert(!D::record_type::has_dynamic_extents || has_extents<D>,
                  "penstock: a dataset with dyn extents needs "
                  "`record_extents<record_type> extents() const`");
    static_assert(D::record_type::ragged_fields == 0 || tells_lengths<D>,
                  "penstock: a dataset with a ragged field needs `std::uint64_t "
                  "length(std::uint64_t) const`; with several, `sample_lengths<record_type> "
                  "lengths(std::uint64_t) const`");
    static_assert(reads<D> || reads_randomly<D> || reads_chunks<D> || reads_chunks_in_context<D>,
                  "penstock: a dataset needs `void read(std::uint64_t, sample<record_type>) const` "
                  "(is it const? it is called from several threads)");
  }
}

}  // namespace detail

/// The extents of a dataset's record: its `extents()`, or the fixed ones of the record's type.
template <dataset D>
[[nodiscard]] record_extents<typename D::record_type> extents_of(const D& data) {
  if constexpr (detail::has_extents<D>) {
    return data.extents();
  } else {
    return {};
  }
}

/// The lengths of the ragged fields of sample `index`, in the record's order. Throws what the
/// dataset throws.
template <dataset D>
  requires detail::tells_lengths<D>
[[nodiscard]] sample_lengths<typename D::record_type> lengths_of(const D& data,
                                                                 std::uint64_t index) {
  if constexpr (detail::has_lengths<D>) {
    return data.lengths(index);
  } else {
    return {data.length(index)};
  }
}

/// The bytes of scratch memory that one thread needs to read `data`.
template <dataset D>
[[nodiscard]] std::size_t scratch_bytes_of(const D& data) {
  if constexpr (detail::has_scratch<D>) {
    return data.scratch_bytes();
  } else {
    return 0;
  }
}

/// The origin of sample `index` at the bottom of the pipeline; `data` itself if it adapts nothing.
/// From any thread, also for an index that is out of range.
template <dataset D>
[[nodiscard]] sample_origin origin_of(const D& data, std::uint64_t index) noexcept {
  if constexpr (detail::has_origins<D>) {
    return data.origin(index);
  } else {
    return {index, 0};
  }
}

/// The sizes of the datasets at the bottom, by `sample_origin::part`.
template <dataset D>
[[nodiscard]] std::vector<std::uint64_t> base_sizes_of(const D& data) {
  if constexpr (detail::has_origins<D>) {
    return data.base_sizes();
  } else {
    return {data.size()};
  }
}

/// Gives `data` a prefetch hint for the samples `indices`, if it accepts hints. Throws what the
/// dataset throws.
template <class D>
void give_prefetch_hint([[maybe_unused]] const D& data,
                        [[maybe_unused]] std::span<const std::uint64_t> indices) {
  if constexpr (detail::accepts_hints<D>) data.prefetch_hint(indices);
}

/// The bytes of sample `index` in storage; 0 if unknown.
template <class D>
[[nodiscard]] std::uint64_t storage_size_of([[maybe_unused]] const D& data,
                                            [[maybe_unused]] std::uint64_t index) {
  if constexpr (detail::has_storage_size<D>) {
    return data.storage_size(index);
  } else {
    return 0;
  }
}

/// The most bytes that `data` keeps prefetched; 0 if it does not accept hints.
template <class D>
[[nodiscard]] std::uint64_t prefetch_capacity_of([[maybe_unused]] const D& data) {
  if constexpr (!detail::accepts_hints<D>) {
    return 0;
  } else if constexpr (detail::bounds_prefetch<D>) {
    return data.prefetch_capacity();
  } else {
    return (std::numeric_limits<std::uint64_t>::max)();
  }
}

/// Appends the samples `indices` to the plan of `data`, if it accepts plans; an empty list retracts
/// the plan. Throws what the dataset throws.
template <class D>
void extend_access_plan([[maybe_unused]] const D& data,
                        [[maybe_unused]] std::span<const std::uint64_t> indices) {
  if constexpr (detail::accepts_access_plans<D>) data.access_plan(indices);
}

/// The most planned bytes that `data` can make use of; 0 if it does not accept plans.
template <class D>
[[nodiscard]] std::uint64_t plan_capacity_of([[maybe_unused]] const D& data) {
  if constexpr (!detail::accepts_access_plans<D>) {
    return 0;
  } else if constexpr (detail::bounds_access_plans<D>) {
    return data.plan_capacity();
  } else {
    return (std::numeric_limits<std::uint64_t>::max)();
  }
}

/// The warnings of `data`, one sentence each; usually none.
template <class D>
[[nodiscard]] std::vector<std::string> warnings_of([[maybe_unused]] const D& data) {
  if constexpr (detail::warns<D>) {
    return data.warnings();
  } else {
    return {};
  }
}

namespace detail {

/// The joint capacity of two datasets: the smaller of the two, where 0 means that a dataset does
/// not take part.
[[nodiscard]] constexpr std::uint64_t least_ahead(std::uint64_t a, std::uint64_t b) noexcept {
  if (a == 0 || b == 0) return a + b;
  return a < b ? a : b;
}

}  // namespace detail

/// A hash of the selections that adaptors make: the lists of `subset` and `without`, the weights of
/// `interleave`. 0 without any. Part of a `loader_state`.
template <dataset D>
[[nodiscard]] std::uint64_t fingerprint_of([[maybe_unused]] const D& data) {
  if constexpr (detail::has_fingerprint<D>) {
    return data.fingerprint();
  } else {
    return 0;
  }
}

namespace detail {

/// The mean size of the samples read so far: an estimate for samples of unknown size. From any
/// thread.
class mean_bytes {
 public:
  /// Adds `samples` samples of `bytes` bytes in total.
  void add(std::uint64_t bytes, std::uint64_t samples = 1) noexcept {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    samples_.fetch_add(samples, std::memory_order_release);
  }
  /// The mean, at least 1 so that no sample is free; 0 before the first sample.
  [[nodiscard]] std::uint64_t value() const noexcept {
    const std::uint64_t samples = samples_.load(std::memory_order_acquire);
    if (samples == 0) return 0;
    return (std::max)(std::uint64_t{1}, bytes_.load(std::memory_order_relaxed) / samples);
  }

 private:
  // Invariant: `bytes_` includes all samples that `samples_` counts, so that the first mean is not
  // too small. The release pairs with the acquire.
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> samples_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
