// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/support/dataset_members.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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
/// `read` writes every element of every field of sample `index` in [0, size()) straight to its
/// place in the batch. It is called from several threads at once, for different places. What it
/// throws reaches the consumer at that batch's turn.
///
/// `length` says how many values the ragged field of a sample has, and `sample_lengths<record_type>
/// lengths(index)` says it of each of several, in the record's order. It is asked for all samples
/// of a batch before any of them is read, so that all workers write straight to their places, and
/// by several threads at once. It should take no longer than a look into an index, and always gives
/// the same; `stall_warning` and `timeout` do not watch it. What it throws reaches the consumer in
/// the same way.
///
/// Instead of `read(index, out)`, or beside it, a dataset may offer, best first:
/// - `read_run(indices, batch_view<record_type> out)`: several samples at once, for vectored or
///   prefetched reading; `out[i]` is the place of `indices[i]`;
/// - `read(index, out, rng)`: random work while reading; `rng` is a `sample_generator&` keyed by
///   (seed, epoch, index);
/// - `view(index)`: the sample where it lies, as a `const_sample` (its fields may lie in different
///   arrays), so that `map` needs no copy of it; valid while the dataset is neither
///   moved nor changed;
/// - `prefetch(index) noexcept`: a hint that the sample will be read at once.
///
/// A dataset whose samples come from a disk or a network may want to know what comes, see
/// `loader_options::read_ahead`:
/// - `will_read(indices)`: these samples are read next, in this order, after those of earlier
///   calls. It starts to fetch them and returns soon. Called by one thread of a loader while others
///   read; what it throws is counted and changes no batch;
/// - `std::uint64_t stored_bytes(index) const`: the bytes that the sample takes there; 0, or
///   without: as many as in a batch, of a ragged record as the mean of those read so far;
/// - `std::uint64_t most_ahead() const`: the most of them that it keeps; without: no bound;
/// - `foresee(indices)`: for what decides by it what to keep, as a cache does, and fetches nothing:
///   these samples are read, in this order, after those of earlier calls; an empty list takes back
///   what earlier calls said. Called as `will_read`;
/// - `std::uint64_t most_foreseen() const`: the most bytes of those that it is of use to know; 0:
///   it is told nothing; without: no bound.
///
/// An adaptor of your own says what its samples are in the datasets below, for failures and
/// quarantine lists: `sample_origin origin(index) const noexcept` and `std::vector<std::uint64_t>
/// base_sizes() const`, by `origin_of` and `base_sizes_of` of what it adapts. Without, it is itself
/// the bottom. `tell_reads`, `foresee_reads`, `stored_bytes_of`, `most_ahead_of` and
/// `most_foreseen_of` pass on what comes. What chooses samples by a list also has `std::uint64_t
/// fingerprint() const`, a hash of the list and of `fingerprint_of` what is below: a state of
/// another list is refused then.
///
/// What people should know of a dataset, as that its files have no sums, it says by
/// `std::vector<std::string> warnings() const`: sentences for `loader::footprint` and a log. An
/// adaptor passes on `warnings_of` what it adapts.
///
/// A dataset that holds pointers into memory of another owner says `static constexpr bool borrows =
/// true`: a loader's destructor waits for its reads then, also for those beyond
/// `loader_options::timeout`.
///
/// @see examples/02_own_dataset.cpp; data/adaptors/adaptor.hpp for what goes over another dataset
template <class D>
concept dataset = detail::has_record<D> && detail::has_size<D> &&
                  (!D::record_type::has_dynamic_extents || detail::has_extents<D>) &&
                  (D::record_type::ragged_fields == 0 || detail::tells_lengths<D>) &&
                  (detail::reads<D> || detail::reads_randomly<D> || detail::reads_runs<D> ||
                   detail::reads_runs_in_context<D>);

namespace detail {

/// One readable sentence for each way in which a type can miss the concept.
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
    static_assert(reads<D> || reads_randomly<D> || reads_runs<D> || reads_runs_in_context<D>,
                  "penstock: a dataset needs `void read(std::uint64_t, sample<record_type>) const` "
                  "(is it const? it is called from several threads)");
  }
}

}  // namespace detail

/// The extents of a dataset's record: its `extents()`, or those that the types say.
template <dataset D>
[[nodiscard]] record_extents<typename D::record_type> extents_of(const D& data) {
  if constexpr (detail::has_extents<D>) {
    return data.extents();
  } else {
    return {};
  }
}

/// How many values each ragged field of sample `index` of `data` has, in the record's order. Throws
/// what the dataset throws.
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

/// The bytes of intermediate samples that one thread needs for reading `data`.
template <dataset D>
[[nodiscard]] std::size_t scratch_bytes_of(const D& data) {
  if constexpr (detail::has_scratch<D>) {
    return data.scratch_bytes();
  } else {
    return 0;
  }
}

/// What sample `index` of `data` is at the bottom of the pipeline: itself, where `data` adapts
/// nothing. From any thread, also for an index that is out of range.
template <dataset D>
[[nodiscard]] sample_origin origin_of(const D& data, std::uint64_t index) noexcept {
  if constexpr (detail::has_origins<D>) {
    return data.origin(index);
  } else {
    return {index, 0};
  }
}

/// How many samples the datasets at the bottom have, by `sample_origin::part`.
template <dataset D>
[[nodiscard]] std::vector<std::uint64_t> base_sizes_of(const D& data) {
  if constexpr (detail::has_origins<D>) {
    return data.base_sizes();
  } else {
    return {data.size()};
  }
}

/// Tells `data`, which may want to know, that the samples `indices` are read next. Throws what the
/// dataset throws.
template <class D>
void tell_reads([[maybe_unused]] const D& data,
                [[maybe_unused]] std::span<const std::uint64_t> indices) {
  if constexpr (detail::wants_plans<D>) data.will_read(indices);
}

/// The bytes that sample `index` of `data` takes where it is stored; 0 where that is not known.
template <class D>
[[nodiscard]] std::uint64_t stored_bytes_of([[maybe_unused]] const D& data,
                                            [[maybe_unused]] std::uint64_t index) {
  if constexpr (detail::tells_stored_bytes<D>) {
    return data.stored_bytes(index);
  } else {
    return 0;
  }
}

/// The most bytes that `data` fetches ahead of their reads; 0 where it does not want to know them.
template <class D>
[[nodiscard]] std::uint64_t most_ahead_of([[maybe_unused]] const D& data) {
  if constexpr (!detail::wants_plans<D>) {
    return 0;
  } else if constexpr (detail::bounds_plans<D>) {
    return data.most_ahead();
  } else {
    return (std::numeric_limits<std::uint64_t>::max)();
  }
}

/// Tells `data`, which may want to know, that the samples `indices` are read after those of earlier
/// calls; an empty list takes back what those said. Throws what the dataset throws.
template <class D>
void foresee_reads([[maybe_unused]] const D& data,
                   [[maybe_unused]] std::span<const std::uint64_t> indices) {
  if constexpr (detail::foresees<D>) data.foresee(indices);
}

/// The most bytes that it is of use to foresee; 0 where `data` does not want to.
template <class D>
[[nodiscard]] std::uint64_t most_foreseen_of([[maybe_unused]] const D& data) {
  if constexpr (!detail::foresees<D>) {
    return 0;
  } else if constexpr (detail::bounds_foresight<D>) {
    return data.most_foreseen();
  } else {
    return (std::numeric_limits<std::uint64_t>::max)();
  }
}

/// What `data` says of itself to people, sentence by sentence; mostly nothing.
template <class D>
[[nodiscard]] std::vector<std::string> warnings_of([[maybe_unused]] const D& data) {
  if constexpr (detail::warns<D>) {
    return data.warnings();
  } else {
    return {};
  }
}

namespace detail {

/// The bound of what two datasets fetch ahead together, each of which has one or, at 0, fetches
/// nothing.
[[nodiscard]] constexpr std::uint64_t least_ahead(std::uint64_t a, std::uint64_t b) noexcept {
  if (a == 0 || b == 0) return a + b;
  return a < b ? a : b;
}

}  // namespace detail

/// A hash of the choices that adaptors make of what is below them: the lists of `subset` and
/// `without`, the weights of `interleave`. 0 where nothing is chosen. Part of a `loader_state`.
template <dataset D>
[[nodiscard]] std::uint64_t fingerprint_of([[maybe_unused]] const D& data) {
  if constexpr (detail::has_fingerprint<D>) {
    return data.fingerprint();
  } else {
    return 0;
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
