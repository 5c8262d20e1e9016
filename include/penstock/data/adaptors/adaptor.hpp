// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <penstock/data/dataset.hpp>
#include <penstock/data/support/adaptor_base.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The type in which an adaptor stores a dataset: a reference to an lvalue, or the dataset itself,
/// which is moved from an rvalue. This is the rule of `std::views::all`.
template <class D>
using stored_dataset_t = typename detail::stored_dataset<D>::type;

namespace detail {

struct adaptor_tag {};

/// Fails to compile if a dataset that changes whole batches is adapted sample by sample, because
/// its changes would be lost.
template <class D>
constexpr void refuse_batch_maps() {
  static_assert(!finishes_batches<D>,
                "penstock::map_batch: it must be the last adaptor of a pipeline, because no other "
                "adaptor forwards whole batches");
}

/// True if an adaptor forwards the whole-batch changes made by the dataset that it wraps.
template <class Adaptor>
inline constexpr bool is_last = false;

}  // namespace detail

/// The right-hand side of `data | map(f)`: a callable that takes a dataset and returns a dataset.
/// Derive a class from it as `struct my_adaptor : adaptor<my_adaptor>` with `template <class Data>
/// auto operator()(Data&& data) &&`, which keeps the dataset as `stored_dataset_t<Data>`. That type
/// refers to an lvalue, which must outlive the result, and moves an rvalue in. An rvalue adaptor is
/// moved from, so it may hold objects that cannot be copied.
template <class Derived>
class adaptor : detail::adaptor_tag {
  template <class Data>
    requires(!std::derived_from<std::remove_cvref_t<Data>, detail::adaptor_tag>)
  friend constexpr auto operator|(Data&& data, Derived self) {
    detail::require_dataset<std::remove_cvref_t<Data>>();
    if constexpr (!detail::is_last<Derived>) {
      detail::refuse_batch_maps<std::remove_cvref_t<Data>>();
    }
    // Reports one readable sentence instead of a page of unmet constraints.
    if constexpr (dataset<std::remove_cvref_t<Data>>) {
      return std::move(self)(std::forward<Data>(data));
    }
  }
};

namespace detail {

/// An adaptor that makes a `Made` from a dataset and the object that the adaptor holds. The object
/// is moved into the result.
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
