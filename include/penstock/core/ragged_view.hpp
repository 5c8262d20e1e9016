// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <penstock/core/checked.hpp>
#include <penstock/core/tensor_view.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A ragged field of a batch, not owned: the values of all samples, one sample after the other
/// without gaps, and offsets that say where each begins. What varlen attention calls `cu_seqlens`,
/// and Arrow a list array.
///
///     const auto tokens = get<"tokens">(batch);
///     for (std::size_t i = 0; i < tokens.size(); ++i) use(tokens[i].flat());
///
/// Cheap to copy, usable in kernels. Constness is that of `T`. `size`, `data` and `offsets` look at
/// nothing; all else reads the offsets, and so belongs where the memory of the batch can be read:
/// on the host for a host batch, in a kernel for a batch on a GPU.
template <class T>
class ragged_view {
 public:
  /// What a value is, `const` for a view to read.
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  /// `size` samples: `offsets` has one entry more, which count values from `data` on. `lease` is
  /// for views of a lease, see `core/checked.hpp`.
  PENSTOCK_HOST_DEVICE constexpr ragged_view(T* data, const std::int32_t* offsets, std::size_t size,
                                             detail::lease_tag lease = {}) noexcept
      : data_(data), offsets_(offsets), size_(size), lease_(lease) {}

  /// A view of T is a view of const T.
  template <class U>
    requires(std::same_as<const U, T> && !std::same_as<U, T>)
  PENSTOCK_HOST_DEVICE constexpr ragged_view(  // NOLINT: implicit, as with std::span
      const ragged_view<U>& other) noexcept
      : data_(other.data_), offsets_(other.offsets_), size_(other.size_), lease_(other.lease_) {}

  /// The number of samples.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t size() const noexcept { return size_; }
  /// The first value of the batch, which the offsets count from.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr T* data() const noexcept {
    lease_.note_address();
    return data_;
  }
  /// Where the samples begin in `data()`, and last where the last one ends: `size() + 1` numbers
  /// that do not fall. The first is 0, except in a part of a batch.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<const std::int32_t, dyn> offsets()
      const noexcept {
    return {offsets_, extents<dyn>{size_ + 1}, lease_};
  }

  /// The values of sample `index`. Indices are checked by `assert`.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> operator[](
      std::size_t index) const noexcept {
    assert(index < size_);
    return part(index, index + 1);
  }
  /// How many values sample `index` has.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t length(
      std::size_t index) const noexcept {
    assert(index < size_);
    return offset(index + 1) - offset(index);
  }
  /// The values of all samples.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> values() const noexcept {
    return part(0, size_);
  }
  /// How many values the longest sample has, 0 without samples. Looks at all offsets.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t max_length() const noexcept {
    std::size_t most = 0;
    for (std::size_t i = 0; i < size_; ++i) most = length(i) > most ? length(i) : most;
    return most;
  }

 private:
  template <class>
  friend class ragged_view;

  PENSTOCK_HOST_DEVICE constexpr std::size_t offset(std::size_t index) const noexcept {
    lease_.require_data();
    return static_cast<std::size_t>(offsets_[index]);
  }
  PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> part(std::size_t begin,
                                                          std::size_t end) const noexcept {
    return {data_ + offset(begin), extents<dyn>{offset(end) - offset(begin)}, lease_};
  }

  T* data_;
  const std::int32_t* offsets_;
  std::size_t size_;
  [[no_unique_address]] detail::lease_tag lease_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
