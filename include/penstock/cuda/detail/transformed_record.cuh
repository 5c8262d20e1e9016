// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

template <name... Names>
struct name_list {
  static constexpr std::size_t size = sizeof...(Names);
  /// Returns the index of `key` in the list, or `size` if the list does not contain `key`.
  static consteval std::size_t index_of(const name& key) {
    constexpr name keys[] = {Names...};
    for (std::size_t i = 0; i < size; ++i) {
      if (keys[i] == key) return i;
    }
    return size;
  }
  /// Returns true if a record of these fields contains all names of the list.
  template <class... Fields>
  static consteval bool are_among() {
    return (has<Fields...>(Names) && ...);
  }

 private:
  template <class... Fields>
  static consteval bool has(const name& key) {
    return ((Fields::key == key) || ...);
  }
};

template <class F, class In>
struct made_by {
#if defined(__CUDACC_EXTENDED_LAMBDA__)
  static_assert(!__nv_is_extended_device_lambda_closure_type(F) ||
                    __nv_is_extended_device_lambda_with_preserved_return_type(F),
                "penstock::on_device: a __device__ lambda must have an explicit return type: "
                "[] __device__ (std::uint8_t x) -> float { ... }");
#endif
  // In host code, nvcc replaces a __device__ lambda with a placeholder that cannot be called
  // through a const reference.
  using callable = std::conditional_t<std::is_invocable_v<const F&, const In&>, const F&, F&>;
  static_assert(std::is_invocable_v<callable, const In&>,
                "penstock::on_device: the function cannot be called with an element of the field");
  using type = std::remove_cvref_t<std::invoke_result_t<callable, const In&>>;
};

/// The result field of applying `Functions` to `Field`, if its name is in `Names`.
template <class Field, class Names, class Functions,
          bool = Names::index_of(Field::key) < Names::size>
struct made_field {
  using type = Field;
};
template <class Field, class Names, class Functions>
struct made_field<Field, Names, Functions, true> {
  using function = std::tuple_element_t<Names::index_of(Field::key), Functions>;
  using type =
      typename retyped_field<Field,
                             typename made_by<function, typename Field::value_type>::type>::type;
};

template <class In, class Names, class Functions>
struct transformed_record;
template <class... Fields, class Names, class Functions>
struct transformed_record<record<Fields...>, Names, Functions> {
  static_assert(Names::template are_among<Fields...>(),
                "penstock::on_device: the record has no such field");
  using type = record<typename made_field<Fields, Names, Functions>::type...>;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
