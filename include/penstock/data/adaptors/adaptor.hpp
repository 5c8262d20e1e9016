// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <penstock/data/dataset.hpp>
#include <penstock/data/support/adaptor_base.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The type in which an adaptor stores a dataset: a reference for an lvalue, and the dataset itself
/// for an rvalue. Follows the rule of `std::views::all`.
template <class D>
using stored_dataset_t = typename detail::stored_dataset<D>::type;

namespace detail {

struct adaptor_tag {};

/// Rejects, at compile time, a sample-by-sample adaptor over a dataset that transforms whole
/// batches, because the adaptor would lose the transformation.
template <class D>
constexpr void reject_batch_maps() {
  static_assert(!finishes_batches<D>,
                "penstock::map_batch: it must be the last adaptor of a pipeline, because no other "
                "adaptor forwards whole batches");
}

/// True if an adaptor forwards the batch transformations of the dataset that it wraps.
template <class Adaptor>
inline constexpr bool is_last = false;

}  // namespace detail

/// The right-hand side of `data | map(f)`: a callable that takes a dataset and returns a dataset.
/// Derive a class as `struct my_adaptor : adaptor<my_adaptor>` with
/// `template <class Data> auto operator()(Data&& data) &&`, which stores the dataset as
/// `stored_dataset_t<Data>`. An lvalue dataset is referenced and must outlive the result, and an
/// rvalue is moved in. An rvalue adaptor is moved from, so it may hold move-only objects.
template <class Derived>
class adaptor : detail::adaptor_tag {
  template <class Data>
    requires(!std::derived_from<std::remove_cvref_t<Data>, detail::adaptor_tag>)
  friend constexpr auto operator|(Data&& data, Derived self) {
    detail::require_dataset<std::remove_cvref_t<Data>>();
    if constexpr (!detail::is_last<Derived>) {
      detail::reject_batch_maps<std::remove_cvref_t<Data>>();
    }
    // A static_assert reports the error in one sentence instead of a page of unsatisfied
    // constraints.
    if constexpr (dataset<std::remove_cvref_t<Data>>) {
      return std::move(self)(std::forward<Data>(data));
    }
  }
};

namespace detail {

/// An adaptor that creates a `Made` from a dataset and a held object, which is moved into the
/// result.
template <template <class, class> class Made, class Held>
class holding_adaptor : public adaptor<holding_adaptor<Made, Held>> {
 public:
  explicit holding_adaptor(Held held) : held_(std::move(held)) {}

  template <class Data>
  [[nodiscard]] auto operator()(Data&& data) && {
    using base = stored_dataset_t<Data>;
    return Made<base, Held>{base(std::forward<Data>(data)), std::move(held_)};
  }

 private:
  Held held_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
