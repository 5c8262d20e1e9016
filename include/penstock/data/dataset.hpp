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
#include <utility>
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

// Concepts for the optional members of a dataset, which are documented at `dataset`.

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

/// A dataset that returns the lengths of a sample's ragged fields before the sample is read.
template <class D>
concept reports_lengths =
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

/// A dataset with its own prefetch hints. The concepts from here to `warns` also apply to blob
/// sources.
template <class D>
concept has_prefetch_hint =
    requires(const D& d, std::span<const std::uint64_t> indices) { d.prefetch_hint(indices); };

/// A dataset that returns the storage sizes of its samples.
template <class D>
concept has_storage_size = requires(const D& d, std::uint64_t i) {
  { d.storage_size(i) } -> std::convertible_to<std::uint64_t>;
};

template <class D>
concept has_prefetch_capacity = requires(const D& d) {
  { d.prefetch_capacity() } -> std::convertible_to<std::uint64_t>;
};

/// A dataset that accepts a plan of later reads without fetching them.
template <class D>
concept has_access_plan =
    requires(const D& d, std::span<const std::uint64_t> indices) { d.access_plan(indices); };

template <class D>
concept has_plan_capacity = requires(const D& d) {
  { d.plan_capacity() } -> std::convertible_to<std::uint64_t>;
};

/// A dataset with warnings.
template <class D>
concept warns = requires(const D& d) {
  { d.warnings() } -> std::convertible_to<std::vector<std::string>>;
};

/// A function for `each_base` that does nothing.
struct no_base_function {
  template <class Base>
  void operator()(const Base&, std::span<const std::uint64_t>) const noexcept {}
};

/// A dataset that adapts other datasets (see `each_base` in the documentation of `dataset`).
template <class D>
concept has_bases = requires(const D& d, std::span<const std::uint64_t> indices) {
  d.each_base(indices, no_base_function{});
};

/// True if a loader may have to look ahead for a dataset, because the dataset or a wrapped dataset
/// has prefetch hints or access plans. An adaptor may declare this as
/// `static constexpr bool looks_ahead`. If the value is false, the look-ahead is not compiled. The
/// default for adaptors is true.
template <class D>
inline constexpr bool looks_ahead = has_prefetch_hint<D> || has_access_plan<D> || has_bases<D>;
template <class D>
  requires requires { D::looks_ahead; }
inline constexpr bool looks_ahead<D> = D::looks_ahead;

template <class D>
concept has_fingerprint = requires(const D& d) {
  { d.fingerprint() } -> std::convertible_to<std::uint64_t>;
};

/// A dataset that transforms each batch after all its samples have been read (see `map_batch`). One
/// thread calls `finish_batch` once for each batch. Several batches may be finished concurrently.
template <class D>
concept finishes_batches = requires(const D& d, batch_view<typename D::record_type> all,
                                    sample_generator& rng) { d.finish_batch(all, rng); };

template <class D>
concept has_scratch = requires(const D& d) {
  { d.scratch_bytes() } -> std::convertible_to<std::size_t>;
};

/// Number of samples by which prefetching runs ahead of reading. 4 was measured to be fastest for
/// rows of 784 bytes.
inline constexpr std::size_t prefetch_distance = 4;

/// Prefetches the samples that are read after `indices[i]`, if the dataset has `prefetch`. The
/// caller passes each `i` in turn, and reads sample `indices[i]` after the call.
template <class D>
void prefetch_ahead(const D& data, std::span<const std::uint64_t> indices, std::size_t i) noexcept {
  if constexpr (prefetches<D>) {
    const std::size_t end = (std::min)(i + prefetch_distance + 1, indices.size());
    for (std::size_t k = i == 0 ? 1 : i + prefetch_distance; k < end; ++k)
      data.prefetch(indices[k]);
  }
}

template <class D>
concept counts_stages = requires(const D& d) {
  { d.stages() } -> std::convertible_to<std::uint32_t>;
};

template <class D>
concept names_stages = requires {
  { D::stages } -> std::convertible_to<std::uint32_t>;
};

/// Returns the number of random stages of a dataset, including its wrapped datasets. Each stage has
/// its own random bits. `stages` is a constant, or a function if the type does not determine the
/// number.
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

/// True if reading uses memory that the dataset does not own, so that no read may outlive that
/// memory. A user-defined dataset that holds pointers should declare
/// `static constexpr bool borrows = true`.
template <class D>
inline constexpr bool borrows = false;
template <class D>
  requires requires { D::borrows; }
inline constexpr bool borrows<D> = D::borrows;

/// True if a function in a pipeline borrows memory. The function's captures may be references, so a
/// function with any state counts as borrowing unless it declares
/// `static constexpr bool borrows = false`.
template <class F>
inline constexpr bool function_borrows = !std::is_empty_v<F>;
template <class F>
  requires requires { F::borrows; }
inline constexpr bool function_borrows<F> = F::borrows;

}  // namespace detail

/// Random access to samples. A dataset has these members:
///
///     struct source {
///       using record_type = record<field<...>...>;
///       std::uint64_t size() const;                                  // constant while in use
///       void read(std::uint64_t index, sample<record_type> out) const;
///       record_extents<record_type> extents() const;  // only with dyn extents or ragged fields
///       std::uint64_t length(std::uint64_t index) const;  // only with a ragged field
///     };
///
/// `read` writes all elements of all fields of sample `index`, in [0, size()), directly into the
/// batch. Several threads call it concurrently for different positions. The consumer receives
/// exceptions with the affected batch.
///
/// The optional members are listed by capability below, and in a table in docs/from_pytorch.md.
///
/// **Reading.** Instead of `read(index, out)`, or in addition, in order of preference:
/// - `read_chunk(indices, batch_view<record_type> out)`: reads several samples in one call, for
///   vectored or prefetched reads. Sample `indices[i]` is written to `out[i]`;
/// - `read(index, out, rng)`: reads with random bits; `rng` is a `sample_generator&` keyed by
///   (seed, epoch, index);
/// - `view(index)`: returns a view of the sample in memory as a `const_sample`, whose fields may be
///   in different arrays, so that `map` needs no copy. Valid until the dataset is moved or changed;
/// - `prefetch(index) noexcept`: starts loading the sample into the CPU cache. Several threads call
///   it concurrently, also before they call `length`.
///
/// **Lengths.** `length` returns the number of values in the ragged field of a sample. If there are
/// several ragged fields, `sample_lengths<record_type> lengths(index)` returns all lengths in field
/// order. The loader calls it for all samples of a batch before it reads any sample, from several
/// threads concurrently. `length` should take no longer than an index lookup and must always return
/// the same value. The limits of `loader_options::faults` do not apply to it. The consumer receives
/// exceptions with the affected batch.
///
/// **Hints** about upcoming reads from a disk or network (see `loader_options::lookahead_bytes`):
/// - `prefetch_hint(indices)`: announces that these samples will be read next, in this order, after
///   the samples of earlier calls. Starts fetching them and returns quickly. One loader thread
///   calls it while others read. Exceptions are counted but have no other effect;
/// - `std::uint64_t storage_size(index) const`: the storage size of the sample in bytes. If the
///   member is absent or returns 0, the loader assumes the sample's size in a batch. For a ragged
///   record, it assumes the mean size of the samples read so far;
/// - `std::uint64_t prefetch_capacity() const`: the maximum total size of prefetched samples in
///   bytes, or unlimited if absent;
/// - `access_plan(indices)`: announces later reads to a cache: these samples will be read, in this
///   order, after the samples of earlier calls. Fetches nothing. An empty list retracts the plan.
///   Called in the same way as `prefetch_hint`;
/// - `std::uint64_t plan_capacity() const`: the maximum total size of useful plans in bytes, 0 if
///   the dataset needs no plan, or unlimited if absent.
///
/// **Borrowing.** A dataset that references memory of another owner declares
/// `static constexpr bool borrows = true`. A loader's destructor then waits for all reads, even
/// beyond `loader_options::faults.timeout`.
///
/// **Adaptors.** A user-defined adaptor forwards hints, plans, origins and warnings through one
/// member:
/// `template <class F> void each_base(std::span<const std::uint64_t> indices, const F& f) const`.
/// `each_base` calls `f(base, local_indices)` for each dataset that the adaptor wraps, in a fixed
/// order, with the sample indices in that dataset. The list is empty for a dataset without any of
/// the samples. Indices out of range are skipped. A long list may be split into pieces, each of
/// which is forwarded to all datasets. An empty list is forwarded once. Any thread may call
/// `each_base`, and it throws only the exceptions of `f`. If the adaptor itself has one of the
/// members listed here, that member replaces the forwarded calls. If an adaptor has its own
/// `origin` and the list is not empty, it may omit the calls with empty lists, so that an adaptor
/// can wrap many datasets.
///
/// The origin of a sample is in the first dataset that receives its index. `sample_origin::part`
/// numbers the source datasets, which wrap no other dataset, in the order of the calls. An adaptor
/// may report origins itself through `sample_origin origin(index) const noexcept` and
/// `std::vector<std::uint64_t> base_sizes() const`. An adaptor that selects samples by a list also
/// has `std::uint64_t fingerprint() const`, a hash of the list and of `fingerprint_of` its wrapped
/// dataset. A loader then rejects a state saved with a different list.
///
/// **Warnings.** `std::vector<std::string> warnings() const`: messages about the dataset for
/// `loader::footprint` and a log, for example that its files have no checksums.
///
/// @see examples/02_own_dataset.cpp; data/adaptors/adaptor.hpp for adaptors
template <class D>
concept dataset = detail::has_record<D> && detail::has_size<D> &&
                  (!D::record_type::has_dynamic_extents || detail::has_extents<D>) &&
                  (D::record_type::ragged_fields == 0 || detail::reports_lengths<D>) &&
                  (detail::reads<D> || detail::reads_randomly<D> || detail::reads_chunks<D> ||
                   detail::reads_chunks_in_context<D>);

namespace detail {

/// Reports each unmet requirement of the concept in a readable sentence.
template <class D>
constexpr void require_dataset() {
  static_assert(has_record<D>,
                "penstock: a dataset needs `using record_type = penstock::record<field<...>...>`");
  if constexpr (has_record<D>) {
    static_assert(has_size<D>, "penstock: a dataset needs `std::uint64_t size() const`");
    static_assert(!D::record_type::has_dynamic_extents || has_extents<D>,
                  "penstock: a dataset with dyn extents needs "
                  "`record_extents<record_type> extents() const`");
    static_assert(D::record_type::ragged_fields == 0 || reports_lengths<D>,
                  "penstock: a dataset with a ragged field needs `std::uint64_t "
                  "length(std::uint64_t) const`; with several, `sample_lengths<record_type> "
                  "lengths(std::uint64_t) const`");
    static_assert(reads<D> || reads_randomly<D> || reads_chunks<D> || reads_chunks_in_context<D>,
                  "penstock: a dataset needs `void read(std::uint64_t, sample<record_type>) "
                  "const`, which must be const because several threads call it");
  }
}

}  // namespace detail

/// Returns the extents of a dataset: its `extents()`, or the fixed extents of its record.
template <dataset D>
[[nodiscard]] record_extents<typename D::record_type> extents_of(const D& data) {
  if constexpr (detail::has_extents<D>) {
    return data.extents();
  } else {
    return {};
  }
}

/// Returns the lengths of the ragged fields of sample `index`, in field order. Exceptions of the
/// dataset propagate.
template <dataset D>
  requires detail::reports_lengths<D>
[[nodiscard]] sample_lengths<typename D::record_type> lengths_of(const D& data,
                                                                 std::uint64_t index) {
  if constexpr (detail::has_lengths<D>) {
    return data.lengths(index);
  } else {
    return {data.length(index)};
  }
}

/// Returns the size in bytes of the scratch memory that a thread needs to read `data`.
template <dataset D>
[[nodiscard]] std::size_t scratch_bytes_of(const D& data) {
  if constexpr (detail::has_scratch<D>) {
    return data.scratch_bytes();
  } else {
    return 0;
  }
}

namespace detail {

/// Returns the number of source datasets of `data`.
template <class D>
[[nodiscard]] std::uint64_t base_count_of(const D& data) {
  if constexpr (has_origins<D>) {
    return data.base_sizes().size();
  } else if constexpr (has_bases<D>) {
    std::uint64_t count = 0;
    data.each_base({}, [&](const auto& base, auto) { count += base_count_of(base); });
    return count;
  } else {
    return 1;
  }
}

/// Returns the joint capacity of the datasets wrapped by `data`, which is the smallest nonzero
/// `capacity_of(base)`. Datasets with capacity 0 do not count.
template <class D, class Capacity>
[[nodiscard]] std::uint64_t joint_capacity(const D& data, const Capacity& capacity_of) {
  std::uint64_t joint = 0;
  data.each_base({}, [&](const auto& base, auto) {
    const std::uint64_t one = capacity_of(base);
    if (joint == 0 || (one != 0 && one < joint)) joint = one;
  });
  return joint;
}

}  // namespace detail

/// Returns the source dataset of sample `index` and the sample index there. If `data` wraps no
/// other dataset, `data` itself is the source. Thread-safe, even if the index is out of range.
template <class D>
[[nodiscard]] sample_origin origin_of(const D& data, std::uint64_t index) noexcept {
  if constexpr (detail::has_origins<D>) {
    return data.origin(index);
  } else {
    sample_origin found{index, 0};
    if constexpr (detail::has_bases<D>) {
      bool is_found = false;
      std::uint64_t before = 0;
      data.each_base({&index, 1}, [&](const auto& base, auto local) {
        if (is_found) return;
        is_found = !local.empty();
        if (is_found) {
          found = origin_of(base, local.front());
          found.part += before;
        } else {
          before += detail::base_count_of(base);
        }
      });
    }
    return found;
  }
}

/// Returns the sizes of the source datasets, indexed by `sample_origin::part`.
template <class D>
[[nodiscard]] std::vector<std::uint64_t> base_sizes_of(const D& data) {
  if constexpr (detail::has_origins<D>) {
    return data.base_sizes();
  } else if constexpr (detail::has_bases<D>) {
    std::vector<std::uint64_t> all;
    data.each_base({}, [&](const auto& base, auto) {
      const auto some = base_sizes_of(base);
      all.insert(all.end(), some.begin(), some.end());
    });
    return all;
  } else {
    return {data.size()};
  }
}

/// Sends a prefetch hint for the samples `indices` to `data` or the datasets that it wraps.
/// Exceptions of the datasets propagate.
template <class D>
void prefetch_hint([[maybe_unused]] const D& data,
                   [[maybe_unused]] std::span<const std::uint64_t> indices) {
  if constexpr (detail::has_prefetch_hint<D>) {
    data.prefetch_hint(indices);
  } else if constexpr (detail::has_bases<D>) {
    data.each_base(indices, [](const auto& base, auto local) {
      if (!local.empty()) prefetch_hint(base, local);
    });
  }
}

/// Returns the maximum total size of prefetched samples in bytes, or 0 if `data` does not accept
/// hints.
template <class D>
[[nodiscard]] std::uint64_t prefetch_capacity_of([[maybe_unused]] const D& data) {
  if constexpr (detail::has_prefetch_hint<D>) {
    if constexpr (detail::has_prefetch_capacity<D>) return data.prefetch_capacity();
    return (std::numeric_limits<std::uint64_t>::max)();
  } else if constexpr (detail::has_bases<D>) {
    return detail::joint_capacity(data,
                                  [](const auto& base) { return prefetch_capacity_of(base); });
  } else {
    return 0;
  }
}

/// Appends the samples `indices` to the plan of `data` or the datasets that it wraps. An empty list
/// retracts the plan. Exceptions of the datasets propagate.
template <class D>
void access_plan([[maybe_unused]] const D& data,
                 [[maybe_unused]] std::span<const std::uint64_t> indices) {
  if constexpr (detail::has_access_plan<D>) {
    data.access_plan(indices);
  } else if constexpr (detail::has_bases<D>) {
    data.each_base(indices, [&](const auto& base, auto local) {
      if (indices.empty() || !local.empty()) access_plan(base, local);
    });
  }
}

/// Returns the maximum total size of useful plans in bytes, or 0 if `data` does not accept plans.
template <class D>
[[nodiscard]] std::uint64_t plan_capacity_of([[maybe_unused]] const D& data) {
  if constexpr (detail::has_access_plan<D>) {
    if constexpr (detail::has_plan_capacity<D>) return data.plan_capacity();
    return (std::numeric_limits<std::uint64_t>::max)();
  } else if constexpr (detail::has_bases<D>) {
    return detail::joint_capacity(data, [](const auto& base) { return plan_capacity_of(base); });
  } else {
    return 0;
  }
}

namespace detail {

/// Returns true if any dataset that contributes to sample `index` accepts hints or plans.
template <class D>
[[nodiscard]] bool is_looked_ahead([[maybe_unused]] const D& data,
                                   [[maybe_unused]] std::uint64_t index) {
  bool is_found = false;
  if constexpr (has_prefetch_hint<D>) is_found = prefetch_capacity_of(data) != 0;
  if constexpr (has_access_plan<D>) is_found = is_found || plan_capacity_of(data) != 0;
  if constexpr (has_bases<D>) {
    if (is_found) return true;
    data.each_base({&index, 1}, [&](const auto& base, auto local) {
      is_found = is_found || (!local.empty() && is_looked_ahead(base, local.front()));
    });
  }
  return is_found;
}

}  // namespace detail

/// Returns the storage size of sample `index` in bytes, or 0 if unknown. For an adaptor, returns
/// the total of the wrapped datasets that accept hints or plans.
template <class D>
[[nodiscard]] std::uint64_t storage_size_of([[maybe_unused]] const D& data,
                                            [[maybe_unused]] std::uint64_t index) {
  if constexpr (detail::has_storage_size<D>) {
    return data.storage_size(index);
  } else if constexpr (detail::has_bases<D>) {
    std::uint64_t total = 0;
    bool is_known = true;
    data.each_base({&index, 1}, [&](const auto& base, auto local) {
      if (local.empty() || !detail::is_looked_ahead(base, local.front())) return;
      const std::uint64_t one = storage_size_of(base, local.front());
      is_known = is_known && one != 0;
      total += one;
    });
    return is_known ? total : 0;
  } else {
    return 0;
  }
}

/// Returns the warnings of `data` or the datasets that it wraps, one sentence each. Usually empty.
template <class D>
[[nodiscard]] std::vector<std::string> warnings_of([[maybe_unused]] const D& data) {
  if constexpr (detail::warns<D>) {
    return data.warnings();
  } else {
    std::vector<std::string> all;
    if constexpr (detail::has_bases<D>) {
      data.each_base({}, [&](const auto& base, auto) {
        for (std::string& warning : warnings_of(base)) all.push_back(std::move(warning));
      });
    }
    return all;
  }
}

/// Returns a hash of the selections made by adaptors, such as the lists of `subset` and `exclude`
/// and the weights of `interleave`. Returns 0 without a selection. Stored in a `loader_state`.
template <dataset D>
[[nodiscard]] std::uint64_t fingerprint_of([[maybe_unused]] const D& data) {
  if constexpr (detail::has_fingerprint<D>) {
    return data.fingerprint();
  } else {
    return 0;
  }
}

namespace detail {

/// The mean size of the samples read so far, which estimates unknown sample sizes. Thread-safe.
class mean_bytes {
 public:
  /// Adds `samples` samples with a total of `bytes` bytes.
  void add(std::uint64_t bytes, std::uint64_t samples = 1) noexcept {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    samples_.fetch_add(samples, std::memory_order_release);
  }
  /// Returns the mean, at least 1 so that no sample counts as empty. Returns 0 before the first
  /// sample.
  [[nodiscard]] std::uint64_t value() const noexcept {
    const std::uint64_t samples = samples_.load(std::memory_order_acquire);
    if (samples == 0) return 0;
    return (std::max)(std::uint64_t{1}, bytes_.load(std::memory_order_relaxed) / samples);
  }

 private:
  // Invariant: `bytes_` includes all samples counted in `samples_`, so the first mean is not too
  // small. The release pairs with the acquire.
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> samples_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
