// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a run of samples is read with, besides their indices: the key of the random bits, memory
/// for intermediate samples, and the place where a failing read is noted. Made by `reader`; an
/// adaptor hands it on to the dataset below, a source without randomness ignores it.
class run_context {
 public:
  /// What a run of `samples` reads with under `key`.
  run_context(const random_key& key, std::span<const std::uint64_t> samples,
              std::span<std::byte> scratch, std::atomic<std::size_t>& progress) noexcept
      : key_(key), samples_(samples), scratch_(scratch), progress_(&progress) {}

  /// The generator of the i-th sample of the run. Keyed by (seed, epoch, the sample's index as the
  /// sampler gave it, stage): every random stage of a pipeline names another `stage`.
  [[nodiscard]] sample_generator generator(std::size_t i, std::uint32_t stage) const noexcept {
    return sample_generator{key_.at_stage(stage), samples_[i]};
  }

  /// Notes that the i-th sample is worked on now: what `last_failure()` names if it throws, and a
  /// warning while it hangs. Where `i` is no sample of the run, the run's first is named, and not
  /// as exact.
  void at(std::size_t i) const noexcept {
    progress_->store(first_ + i, std::memory_order_relaxed);  // says nothing about other memory
  }

  /// Memory that this thread may use while the run is read, at least as large as `scratch_bytes()`
  /// of the outermost dataset, aligned to 256 bytes.
  [[nodiscard]] std::span<std::byte> scratch() const noexcept { return scratch_; }

  /// The context of a part of the run.
  [[nodiscard]] run_context subrun(std::size_t begin, std::size_t count) const noexcept {
    run_context part = *this;
    part.samples_ = samples_.subspan(begin, count);
    part.first_ = first_ + begin;
    return part;
  }

  /// This context without the first `used` bytes of the scratch memory.
  [[nodiscard]] run_context below(std::size_t used) const noexcept {
    run_context inner = *this;
    inner.scratch_ = scratch_.subspan(used);
    return inner;
  }

 private:
  random_key key_;
  std::span<const std::uint64_t> samples_;
  std::span<std::byte> scratch_;
  std::atomic<std::size_t>* progress_;
  std::size_t first_ = 0;
};

namespace detail {

template <class D>
concept has_record = requires {
  requires record_type<typename D::record_type>;
};

template <class D>
concept has_size = requires(const D& d) {
  { d.size() } -> std::convertible_to<std::uint64_t>;
};

template <class D>
concept has_extents = requires(const D& d) {
  { d.extents() } -> std::convertible_to<record_extents<typename D::record_type>>;
};

template <class D>
concept reads = requires(const D& d, std::uint64_t i, sample<typename D::record_type> out) {
  d.read(i, out);
};

template <class D>
concept reads_randomly = requires(const D& d, std::uint64_t i, sample<typename D::record_type> out,
                                  sample_generator& rng) {
  d.read(i, out, rng);
};

template <class D>
concept reads_runs = requires(const D& d, std::span<const std::uint64_t> indices,
                              batch_view<typename D::record_type> out) {
  d.read_run(indices, out);
};

template <class D>
concept reads_runs_in_context = requires(const D& d, std::span<const std::uint64_t> indices,
                                         batch_view<typename D::record_type> out,
                                         const run_context& context) {
  d.read_run(indices, out, context);
};

template <class D>
concept views_samples = requires(const D& d, std::uint64_t i) {
  { d.view(i) } -> std::convertible_to<const_sample<typename D::record_type>>;
};

template <class D>
concept prefetches = requires(const D& d, std::uint64_t i) {
  { d.prefetch(i) }
  noexcept;
};

template <class D>
concept has_origins = requires(const D& d, std::uint64_t i) {
  { d.origin(i) }
  noexcept->std::convertible_to<sample_origin>;
  { d.base_sizes() } -> std::convertible_to<std::vector<std::uint64_t>>;
};

template <class D>
concept has_scratch = requires(const D& d) {
  { d.scratch_bytes() } -> std::convertible_to<std::size_t>;
};

}  // namespace detail

/// Random access to samples. The contract:
///
///     struct source {
///       using record_type = record<field<...>...>;
///       std::uint64_t size() const;                                  // constant while in use
///       void read(std::uint64_t index, sample<record_type> out) const;
///       record_extents<record_type> extents() const;                 // only with dyn extents
///     };
///
/// `read` writes every element of every field of sample `index` in [0, size()) straight to its
/// place in the batch. It is called from several threads at once, for different places. What it
/// throws reaches the consumer at that batch's turn.
///
/// Instead of `read(index, out)`, or beside it, a dataset may offer, best first:
/// - `read_run(indices, batch_view<record_type> out)`: several samples at once, for vectored or
///   prefetched reading; `out[i]` is the place of `indices[i]`;
/// - `read(index, out, rng)`: random work while reading; `rng` is a `sample_generator&` keyed by
///   (seed, epoch, index);
/// - `view(index)`: the sample where it lies, as a `const_sample` (its fields may lie in different
///   arrays), so that `map` needs no copy of it; valid while the dataset is neither moved nor
/// changed;
/// - `prefetch(index) noexcept`: a hint that the sample will be read soon.
///
/// An adaptor of your own says what its samples are in the datasets below, for failures and
/// quarantine lists: `sample_origin origin(index) const noexcept` and `std::vector<std::uint64_t>
/// base_sizes() const`, by `origin_of` and `base_sizes_of` of what it adapts. Without, it is itself
/// the bottom.
///
/// A dataset that holds pointers into memory of another owner says `static constexpr bool borrows =
/// true`: a loader's destructor waits for its reads then, also for those beyond
/// `loader_options::timeout`.
template <class D>
concept dataset = detail::has_record<D> && detail::has_size<D> &&
    (!D::record_type::has_dynamic_extents ||
     detail::has_extents<D>)&&(detail::reads<D> || detail::reads_randomly<D> ||
                               detail::reads_runs<D> || detail::reads_runs_in_context<D>);

namespace detail {

/// How many samples ahead rows are prefetched; four gained most on rows of 784 bytes.
inline constexpr std::size_t prefetch_distance = 4;

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
    static_assert(reads<D> || reads_randomly<D> || reads_runs<D> || reads_runs_in_context<D>,
                  "penstock: a dataset needs `void read(std::uint64_t, sample<record_type>) const` "
                  "(is it const? it is called from several threads)");
  }
}

/// How many random stages a dataset has below its own: keeps their random bits apart.
template <class D>
inline constexpr std::uint32_t stages_of = 0;
template <class D>
  requires requires { D::stages; }
inline constexpr std::uint32_t stages_of<D> = D::stages;

/// Whether reading needs memory of another owner, so that nothing may read once that owner is gone.
/// A dataset of your own that holds pointers says `static constexpr bool borrows = true`.
template <class D>
inline constexpr bool borrows = false;
template <class D>
  requires requires { D::borrows; }
inline constexpr bool borrows<D> = D::borrows;

/// Whether a function in a pipeline borrows: what it holds may be references, so a function that
/// holds anything counts as borrowing unless it says `static constexpr bool borrows = false`.
template <class F>
inline constexpr bool function_borrows = !std::is_empty_v<F>;
template <class F>
  requires requires { F::borrows; }
inline constexpr bool function_borrows<F> = F::borrows;

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

/// Reads the samples `indices` into `out` by the best member that the dataset has. `out[i]` is the
/// place of `indices[i]`; both have the same size. The way in which adaptors read what is below
/// them.
template <dataset D>
void read_run(const D& data, std::span<const std::uint64_t> indices,
              batch_view<typename D::record_type> out, const run_context& context) {
  if constexpr (detail::reads_runs_in_context<D>) {
    data.read_run(indices, out, context);
  } else if constexpr (detail::reads_runs<D>) {
    context.at(0);
    try {
      data.read_run(indices, out);
    } catch (...) {
      // The run does not say where it failed. One by one finds the sample; what the consumer gets
      // is the first exception all the same.
      const auto original = std::current_exception();
      for (std::size_t i = 0; i < indices.size(); ++i) {
        context.at(i);
        try {
          data.read_run(indices.subspan(i, 1), out.subrun(i, 1));
        } catch (...) {
          std::rethrow_exception(original);
        }
      }
      context.at(0);
      std::rethrow_exception(original);
    }
  } else {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      if constexpr (detail::reads_randomly<D>) {
        auto rng = context.generator(i, 0);
        data.read(indices[i], out[i], rng);
      } else {
        data.read(indices[i], out[i]);
      }
    }
  }
}

/// A dataset that is not owned and outlives this one: what an lvalue becomes in a
/// pipeline, as with `std::ranges::ref_view`.
template <dataset D>
class dataset_ref {
 public:
  using record_type = typename D::record_type;
  static constexpr std::uint32_t stages = detail::stages_of<D>;
  static constexpr bool borrows = true;

  /// Refers to `data`, which must outlive it.
  explicit dataset_ref(const D& data) noexcept : data_(&data) {}

  [[nodiscard]] std::uint64_t size() const { return data_->size(); }
  [[nodiscard]] record_extents<record_type> extents() const { return extents_of(*data_); }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of(*data_); }
  void read_run(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                const run_context& context) const {
    penstock::read_run(*data_, indices, out, context);
  }
  [[nodiscard]] const_sample<record_type> view(
      std::uint64_t index) const requires detail::views_samples<D> {
    return data_->view(index);
  }
  void prefetch(std::uint64_t index) const noexcept requires detail::prefetches<D> {
    data_->prefetch(index);
  }
  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    return origin_of(*data_, index);
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const { return base_sizes_of(*data_); }

 private:
  const D* data_;
};

namespace detail {

template <class D>
struct stored_dataset {
  using type = std::remove_cvref_t<D>;
};
template <class D>
struct stored_dataset<D&> {
  using type = dataset_ref<std::remove_const_t<D>>;
};

}  // namespace detail

/// How a pipeline keeps a dataset: an lvalue is referred to, an rvalue is moved in. The rule of
/// `std::views::all`.
template <class D>
using stored_dataset_t = typename detail::stored_dataset<D>::type;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
