// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <penstock/core/checked.hpp>
#include <penstock/core/extents.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

template <class T, std::size_t... Extents>
class tensor_view;

namespace detail {

template <class T, class List, std::size_t... Extents>
struct inner_view;  // view of an element in the outermost dimension

template <class T, std::size_t First, std::size_t... Rest>
struct inner_view<T, extents<First, Rest...>> {
  using type = tensor_view<T, Rest...>;
};

/// The members of a view except its pointer. An aggregate, because nvcc does not initialize two
/// base classes in their declaration order.
template <class Extents>
struct view_parts : Extents, lease_tag {};

}  // namespace detail

/// A non-owning view of a dense row-major array, which consists of a pointer and extents.
///
/// The view is cheap to copy and usable in kernels, except for `flat()`, `shape()` and `strides()`.
/// A view of `const T` is read-only, as with `std::span`. In a view of a batch, the outermost
/// dimension is dynamic and counts the samples.
template <class T, std::size_t... Extents>
class tensor_view : detail::view_parts<penstock::extents<Extents...>> {
  using parts = detail::view_parts<penstock::extents<Extents...>>;

 public:
  /// The element type, which is `const` in a read-only view.
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using extents_type = penstock::extents<Extents...>;
  /// The number of dimensions.
  static constexpr std::size_t rank = sizeof...(Extents);

  /// Creates a view of the elements starting at `data`, in row-major order. `lease` identifies the
  /// lease that the view belongs to, if any (see `core/checked.hpp`).
  PENSTOCK_HOST_DEVICE constexpr tensor_view(T* data, extents_type lengths,
                                             detail::lease_tag lease = {}) noexcept
      : parts{lengths, lease}, data_(data) {}

  /// Converts a `T` view to a `const T` view.
  template <class U>
    requires(std::same_as<const U, T> && !std::same_as<U, T>)
  PENSTOCK_HOST_DEVICE constexpr tensor_view(  // NOLINT: implicit, as with std::span
      const tensor_view<U, Extents...>& other) noexcept
      : parts{other.stored(), other.tag()}, data_(other.data_) {}

  /// Returns a pointer to the first element, in host or device memory.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr T* data() const noexcept {
    tag().record_address();
    return data_;
  }
  /// Returns the number of elements.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t size() const noexcept {
    return stored().size();
  }
  /// Returns the length of dimension `dimension`, where 0 is the outermost.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t extent(
      std::size_t dimension) const noexcept {
    return stored()[dimension];
  }
  /// Returns the lengths of all dimensions.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr extents_type extents() const noexcept {
    return stored();
  }

  /// Returns the element at the given position, with one index per dimension. An `assert` checks
  /// the indices.
  template <std::convertible_to<std::size_t>... Indices>
    requires(sizeof...(Indices) == rank)
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr T& operator()(Indices... indices) const noexcept {
    tag().require_data();
    std::size_t offset = 0;
    if constexpr (rank > 0) {
      const std::size_t position[rank] = {static_cast<std::size_t>(indices)...};
      for (std::size_t d = 0; d < rank; ++d) {
        assert(position[d] < stored()[d]);
        offset = offset * stored()[d] + position[d];
      }
    }
    return data_[offset];
  }

  /// Returns the `index`-th element of the outermost dimension, as a reference if the rank is 1,
  /// and otherwise as a view of rank - 1. An `assert` checks the index.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr decltype(auto) operator[](
      std::size_t index) const noexcept
    requires(rank > 0)
  {
    assert(index < stored()[0]);
    if constexpr (rank == 1) {
      tag().require_data();
      return (data_[index]);
    } else {
      tag().require_alive();
      using inner = typename detail::inner_view<T, extents_type>::type;
      const auto lengths = inner_extents<typename inner::extents_type>();
      return inner{data_ + index * lengths.size(), lengths, tag()};
    }
  }

  /// Returns the lengths of all dimensions as signed integers, as array libraries expect. Not
  /// callable in kernels.
  [[nodiscard]] constexpr std::array<std::int64_t, rank> shape() const noexcept {
    std::array<std::int64_t, rank> lengths{};
    for (std::size_t d = 0; d != rank; ++d) lengths[d] = static_cast<std::int64_t>(stored()[d]);
    return lengths;
  }
  /// Returns the distance in elements between neighbors along each dimension, which is 1 for the
  /// innermost dimension. Not callable in kernels.
  [[nodiscard]] constexpr std::array<std::int64_t, rank> strides() const noexcept {
    std::array<std::int64_t, rank> steps{};
    std::int64_t step = 1;
    for (std::size_t d = rank; d != 0; --d) {
      steps[d - 1] = step;
      step *= static_cast<std::int64_t>(stored()[d - 1]);
    }
    return steps;
  }

  /// Returns all elements as a span. Only for host memory.
  [[nodiscard]] constexpr std::span<T> flat() const noexcept { return {data(), size()}; }

  /// Converts to `cuda::std::mdspan`, `std::mdspan`, and any similar type with the same rank and
  /// element type that is constructible from a pointer and one length per dimension.
  template <class Mdspan>
    requires requires {
      typename Mdspan::extents_type;
      typename Mdspan::data_handle_type;
      requires(Mdspan::rank() == rank);
      requires std::same_as<typename Mdspan::element_type, T>;
    }
  [[nodiscard]] constexpr operator Mdspan() const {  // NOLINT: implicit by intent
    return to_mdspan<Mdspan>(std::make_index_sequence<rank>{});
  }

 private:
  template <class, std::size_t...>
  friend class tensor_view;

  template <class Inner>
  PENSTOCK_HOST_DEVICE constexpr Inner inner_extents() const noexcept {
    if constexpr (Inner::dynamic_rank == 0) {
      return Inner{};
    } else {
      return dynamic_inner<Inner>(std::make_index_sequence<Inner::dynamic_rank>{});
    }
  }

  template <class Inner, std::size_t... Is>
  PENSTOCK_HOST_DEVICE constexpr Inner dynamic_inner(std::index_sequence<Is...>) const noexcept {
    constexpr std::size_t fixed[rank] = {Extents...};
    std::size_t found[Inner::dynamic_rank] = {};
    std::size_t count = 0;
    for (std::size_t d = 1; d < rank; ++d) {
      if (fixed[d] == dyn) found[count++] = stored()[d];
    }
    return Inner{found[Is]...};
  }

  template <class Mdspan, std::size_t... Ds>
  constexpr Mdspan to_mdspan(std::index_sequence<Ds...>) const {
    return Mdspan(data(), stored()[Ds]...);
  }

  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr const extents_type& stored() const noexcept {
    return *this;
  }
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr const detail::lease_tag& tag() const noexcept {
    return *this;
  }

  T* data_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
