// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/tensor_view.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A list of extents to the view's template arguments: with the batch as outermost dimension.
template <class T, class List>
struct views_of;

template <class T, std::size_t... Extents>
struct views_of<T, extents<Extents...>> {
  using sample_view = tensor_view<T, Extents...>;
  using batch_view = tensor_view<T, dyn, Extents...>;

  static constexpr batch_view make_batch(T* data, std::size_t count,
                                         const extents<Extents...>& lengths,
                                         lease_tag lease) noexcept {
    return batch_view{data, prepend(count, lengths), lease};
  }

 private:
  static constexpr extents<dyn, Extents...> prepend(std::size_t count,
                                                    const extents<Extents...>& lengths) noexcept {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      constexpr std::size_t dynamic_rank = extents<Extents...>::dynamic_rank;
      std::size_t values[dynamic_rank + 1] = {};
      if constexpr (dynamic_rank > 0) {
        constexpr std::size_t fixed[] = {Extents...};
        std::size_t next = 0;
        for (std::size_t d = 0; d < sizeof...(Extents); ++d) {
          if (fixed[d] == dyn) values[next++] = lengths[d];
        }
      }
      return extents<dyn, Extents...>{count, values[Is]...};
    }
    (std::make_index_sequence<extents<Extents...>::dynamic_rank>{});
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
