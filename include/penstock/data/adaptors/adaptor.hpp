// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <penstock/data/dataset.hpp>
#include <penstock/data/support/over_dataset.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How a pipeline keeps a dataset: an lvalue is referred to, an rvalue is moved in. The rule of
/// `std::views::all`.
template <class D>
using stored_dataset_t = typename detail::stored_dataset<D>::type;

namespace detail {

struct adaptor_tag {};

/// Refuses to adapt, sample by sample, a dataset that changes whole batches: those changes would be
/// lost.
template <class D>
constexpr void refuse_batch_maps() {
  static_assert(!finishes_batches<D>,
                "penstock::map_batch: it comes last in a pipeline: no other adaptor passes whole "
                "batches on");
}

/// Whether an adaptor passes on changes to whole batches from below.
template <class Adaptor>
inline constexpr bool is_last = false;

}  // namespace detail

/// The right-hand side of `data | map(f)`: a callable that takes a dataset and returns one. Derive
/// a class from it as `struct my_adaptor : adaptor<my_adaptor>` and has `template <class Data> auto
/// operator()(Data&& data) &&`, which keeps the dataset as `stored_dataset_t<Data>`: an lvalue is
/// referred to and must outlive the result, an rvalue is moved in. An rvalue adaptor is moved from,
/// so it may hold what can't be copied.
template <class Derived>
class adaptor : detail::adaptor_tag {
  template <class Data>
    requires(!std::derived_from<std::remove_cvref_t<Data>, detail::adaptor_tag>)
  friend constexpr auto operator|(Data&& data, Derived self) {
    detail::require_dataset<std::remove_cvref_t<Data>>();
    if constexpr (!detail::is_last<Derived>) {
      detail::refuse_batch_maps<std::remove_cvref_t<Data>>();
    }
    // One readable sentence instead of a page of unmet constraints.
    if constexpr (dataset<std::remove_cvref_t<Data>>) {
      return std::move(self)(std::forward<Data>(data));
    }
  }
};

namespace detail {

/// An adaptor that makes a `Made` of a dataset and of what it holds, which is moved on.
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
