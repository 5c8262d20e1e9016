// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/support/adaptor_base.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A dataset whose complete batches are transformed in place (see `map_batch`).
template <class Base, class F>
class map_batch_dataset : public adaptor_base<Base> {
  using below = adaptor_base<Base>;
  using below::base_;

 public:
  using typename below::record_type;
  static constexpr bool borrows = detail::borrows<Base> || function_borrows<F>;
  /// True if the function accepts a random generator.
  static constexpr bool is_random =
      std::invocable<const F&, batch_view<record_type>, sample_generator&>;

  static_assert(is_random || std::invocable<const F&, batch_view<record_type>>,
                "penstock::map_batch: the function must take (batch_view<Record>) or "
                "(batch_view<Record>, sample_generator&) of the dataset's own record, as const");

  /// Transforms the batches of `base` with `function`.
  map_batch_dataset(Base base, F function)
      : below(std::move(base)), function_(std::move(function)) {}

  /// Applies the functions of `base` to the batch, and then this function.
  void finish_batch(batch_view<record_type> all, sample_generator& rng) const {
    if constexpr (finishes_batches<Base>) base_.finish_batch(all, rng);
    if constexpr (is_random) {
      function_(all, rng);
    } else {
      function_(all);
    }
  }

 private:
  F function_;
};

/// The adaptor returned by `map_batch`.
template <class F>
using map_batch_adaptor = holding_adaptor<map_batch_dataset, F>;

template <class F>
inline constexpr bool is_last<map_batch_adaptor<F>> = true;

}  // namespace detail

/// Transforms each batch in place after all its samples have been read, before it is delivered or
/// copied to a device: `data | map_batch(f)` with `f(batch_view<R> all)` or
/// `f(batch_view<R> all, sample_generator& rng)`, where R is the record of the dataset. Suits
/// operations across samples, such as mixup. A preceding `map` can add fields that the function
/// needs, such as a float label. `map_batch` must be last in a pipeline, or followed only by
/// another `map_batch`.
///
/// The worker that reads the last sample of a batch calls the function, so batches are transformed
/// in parallel. Without workers, the consumer thread calls it. `rng` is keyed by (seed, epoch,
/// batch), and the batch functions of a pipeline share it in pipeline order. The result does not
/// depend on the number of workers, but depends on the batch size and, with `sharded`, on the
/// number of ranks.
///
/// `all` contains the samples of the batch, including padding from `last_batch::pad`, but excluding
/// skipped samples. The function is moved in. Several threads call it concurrently through a const
/// reference. If the function throws, the consumer receives the exception with the affected batch.
/// `error_policy` does not apply to them, and `last_failure()` has the stage "batch". The function
/// is not called for failed or empty batches, and `loader_options::faults` does not apply to it.
template <class F>
[[nodiscard]] detail::map_batch_adaptor<std::decay_t<F>> map_batch(F&& function) {
  return detail::map_batch_adaptor<std::decay_t<F>>{std::forward<F>(function)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
