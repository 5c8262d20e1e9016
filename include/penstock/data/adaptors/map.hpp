// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <type_traits>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/support/map_dataset.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// What `map(f)` returns: `data | map(f)`.
template <class F>
using map_adaptor = holding_adaptor<map_dataset, F>;

/// What `map<Out>(f)` returns: `data | map<Out>(f)`.
template <record_type Out, class F>
class map_into_adaptor : public adaptor<map_into_adaptor<Out, F>> {
 public:
  /// Holds the function and the extents until a dataset comes.
  map_into_adaptor(F function, const record_extents<Out>& lengths)
      : function_(std::move(function)), lengths_(lengths) {}

  /// The dataset `data`, mapped.
  template <class Data>
  [[nodiscard]] auto operator()(Data&& data) && {
    using base = stored_dataset_t<Data>;
    return map_into_dataset<base, Out, F>{base(std::forward<Data>(data)), std::move(function_),
                                          lengths_};
  }

 private:
  F function_;
  record_extents<Out> lengths_;
};

}  // namespace detail

/// Transforms every sample in place after it is read: `data | map(f)` with `f(sample<R> s)`, where
/// R is the dataset's record. The function may take more, in this order: the sample's index in
/// `data` (`std::uint64_t`), and a generator (`sample_generator&`). The generator is keyed by
/// (seed, epoch, sample index, place of this map among the random ones), so that the result depends
/// neither on the number of threads nor on other maps' use of random bits.
///
/// The function is moved in and called as const from many threads at once; what it throws reaches
/// the consumer at that batch's turn.
template <class F>
[[nodiscard]] detail::map_adaptor<std::decay_t<F>> map(F&& function) {
  return detail::map_adaptor<std::decay_t<F>>{std::forward<F>(function)};
}

/// Makes samples of record `Out` from those of the dataset: `data | map<Out>(f)` with
/// `f(const_sample<In> in, sample<Out> out)`, and optionally index and generator as above. It must
/// write every element of `out`. `in` refers to the dataset's own memory if the dataset has `view`,
/// otherwise to a copy in the thread's memory. It is valid during the call. Threads and exceptions
/// as with the other `map`.
///
/// A loop over `get<"image">(in).flat()` that fills `get<"x">(out).flat()` is vectorised at -O3; at
/// -O2 GCC 12 leaves it scalar, because it would have to check that the two do not overlap.
template <record_type Out, class F>
[[nodiscard]] detail::map_into_adaptor<Out, std::decay_t<F>> map(
    F&& function, const record_extents<Out>& lengths) {
  return {std::forward<F>(function), lengths};
}

/// For a record without dynamic extents.
template <record_type Out, class F>
[[nodiscard]] auto map(F&& function) {
  static_assert(!Out::has_dynamic_extents,
                "penstock::map: a record with dyn extents needs them: map<Out>(function, extents)");
  if constexpr (!Out::has_dynamic_extents) {
    return map<Out>(std::forward<F>(function), record_extents<Out>{});
  }
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
