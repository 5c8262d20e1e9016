// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/data/run_context.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What the function of a `map` takes after its samples.
enum class map_form {
  none,            ///< it can't be called with the samples
  plain,           ///< nothing
  random,          ///< a generator
  indexed,         ///< the sample's index
  indexed_random,  ///< the index, then a generator
};

/// The first form in which an `F`, as it is qualified, can be called with `Args`. A form is tried
/// only where those before it do not fit: trying one may look into the function's body.
template <class F, class... Args>
consteval map_form form_of() {
  if constexpr (std::invocable<F, Args..., sample_generator&>) {
    return map_form::random;
  } else if constexpr (std::invocable<F, Args...>) {
    return map_form::plain;
  } else if constexpr (std::invocable<F, Args..., std::uint64_t, sample_generator&>) {
    return map_form::indexed_random;
  } else if constexpr (std::invocable<F, Args..., std::uint64_t>) {
    return map_form::indexed;
  } else {
    return map_form::none;
  }
}

/// The form in which `F` is called by a map, from many threads at once: as const.
template <class F, class... Args>
inline constexpr map_form map_form_of = form_of<const F&, Args...>();
/// Whether `F` could be called if it were not const.
template <class F, class... Args>
inline constexpr bool maps_mutably = form_of<F&, Args...>() != map_form::none;

/// Whether a function of this form takes random bits.
constexpr bool draws(map_form form) noexcept {
  return form == map_form::random || form == map_form::indexed_random;
}

/// The run that a map reads: the place of a sample gives its index and its random bits.
struct mapped_run {
  std::span<const std::uint64_t> indices;
  const run_context& context;
  std::uint32_t stage;  ///< of the random bits

  /// Calls `function` with `args`, the samples at place `i`, and what its form asks for.
  template <map_form Form, class F, class... Args>
  void call(const F& function, std::size_t i, Args... args) const {
    if constexpr (draws(Form)) {
      auto generator = context.generator(i, stage);
      if constexpr (Form == map_form::random) {
        function(args..., generator);
      } else {
        function(args..., indices[i], generator);
      }
    } else if constexpr (Form == map_form::plain) {
      function(args...);
    } else {
      function(args..., indices[i]);
    }
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
