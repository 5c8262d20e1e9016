// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include <penstock/core/version.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// An extent known only at run time, as in `field<"image", float, 3, dyn, dyn>`.
inline constexpr std::size_t dyn = (std::numeric_limits<std::size_t>::max)();

namespace detail {

template <std::size_t Count>
struct dynamic_extents {
  std::size_t value[Count];
  friend constexpr bool operator==(const dynamic_extents&, const dynamic_extents&) = default;
};

template <>
struct dynamic_extents<0> {
  friend constexpr bool operator==(const dynamic_extents&, const dynamic_extents&) = default;
};

/// The number of `Extents` that are `dyn`.
template <std::size_t... Extents>
inline constexpr std::size_t dynamic_count = (std::size_t{0} + ... + (Extents == dyn ? 1U : 0U));

}  // namespace detail

/// The lengths of the array dimensions, outermost first. Each extent is fixed at compile time or
/// `dyn`. Only dynamic extents are stored. Usable in kernels.
template <std::size_t... Extents>
class extents : detail::dynamic_extents<detail::dynamic_count<Extents...>> {
  // Extents and views use base classes instead of [[no_unique_address]] members, because nvcc 13.0
  // lays out types with such members differently on the device and on the host.
  using stored = detail::dynamic_extents<detail::dynamic_count<Extents...>>;

 public:
  /// The number of dimensions.
  static constexpr std::size_t rank = sizeof...(Extents);
  /// The number of dynamic dimensions.
  static constexpr std::size_t dynamic_rank = detail::dynamic_count<Extents...>;

  // Defaulted, and therefore callable in kernels without an annotation.
  constexpr extents() noexcept
    requires(dynamic_rank == 0)
  = default;

  /// Sets the dynamic extents in order, as in `extents<3, dyn, dyn>{224, 224}`.
  template <std::convertible_to<std::size_t>... Sizes>
    requires(dynamic_rank > 0 && sizeof...(Sizes) == dynamic_rank)
  PENSTOCK_HOST_DEVICE constexpr extents(Sizes... sizes) noexcept  // NOLINT: implicit by intent
      : stored{{static_cast<std::size_t>(sizes)...}} {}

  /// Returns the length of dimension `dimension`, where 0 is the outermost. Returns 1 if `dimension
  /// >= rank`.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t operator[](
      std::size_t dimension) const noexcept {
    if constexpr (rank == 0) {
      return 1;
    } else {
      constexpr std::size_t fixed[rank] = {Extents...};
      if (dimension >= rank) return 1;
      if constexpr (dynamic_rank > 0) {
        if (fixed[dimension] == dyn) {
          std::size_t position = 0;
          for (std::size_t d = 0; d < dimension; ++d) position += fixed[d] == dyn ? 1U : 0U;
          return this->value[position];
        }
      }
      return fixed[dimension];
    }
  }

  /// Returns the number of elements, which is the product of the extents, or 1 for rank 0. Does not
  /// check for overflow, unlike `batch_layout`.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t size() const noexcept {
    std::size_t product = 1;
    for (std::size_t d = 0; d != rank; ++d) product *= (*this)[d];
    return product;
  }

  friend constexpr bool operator==(const extents&, const extents&) = default;
};

namespace detail {

/// Returns the d-th extent in the type `Lengths`, which is a length or `dyn`.
template <class Lengths>
[[nodiscard]] constexpr std::size_t fixed_extent(std::size_t d) noexcept {
  return [d]<std::size_t... Extents>(std::type_identity<penstock::extents<Extents...>>) {
    constexpr std::size_t values[] = {Extents..., 0};
    return values[d];
  }(std::type_identity<Lengths>{});
}

/// Returns extents of type `Lengths`. The dynamic extents are copied from `found`, which contains
/// all dimensions.
template <class Lengths, class Found>
[[nodiscard]] constexpr Lengths extents_in(const Found& found) noexcept {
  if constexpr (Lengths::dynamic_rank == 0) {
    return {};
  } else {
    std::size_t dynamic[Lengths::dynamic_rank] = {};
    std::size_t next = 0;
    for (std::size_t d = 0; d < Lengths::rank; ++d) {
      if (fixed_extent<Lengths>(d) == dyn) dynamic[next++] = static_cast<std::size_t>(found[d]);
    }
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      return Lengths{dynamic[Is]...};
    }(std::make_index_sequence<Lengths::dynamic_rank>{});
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
