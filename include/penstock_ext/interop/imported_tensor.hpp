// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <penstock/core/extents.hpp>
#include <penstock/core/tensor_view.hpp>
#include <penstock_ext/interop/detail/tensor_check.hpp>
#include <penstock_ext/interop/dlpack_abi.hpp>
#include <penstock_ext/interop/dlpack_error.hpp>
#include <penstock_ext/interop/dlpack_type.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A tensor of another library's in host memory, seen as samples: the outermost dimension counts
/// them, and each is an array of `Extents`, fixed or `dyn`. Nothing is copied. The samples may lie
/// any number of elements apart, as those of a slice or a reversed array do; each is in one piece.
///
/// Owns the tensor: copies have it in common, and the last one calls its deleter, on its thread. So
/// a tensor of Python's may end on a worker: its producer's deleter takes the interpreter lock
/// itself, as numpy's and PyTorch's do. The memory must not change meanwhile. Reading is
/// thread-safe.
template <dlpack::element T, std::size_t... Extents>
class imported_tensor {
 public:
  /// What an element is, to read.
  using element_type = const T;
  using value_type = T;
  /// The extents of one sample.
  using extents_type = penstock::extents<Extents...>;

  /// Takes the tensor over. Throws `dlpack_error`, which begins with `where`, for null, another
  /// version of the layout, and a tensor of another rank, type, device, shape or of other strides
  /// than these; and `std::bad_alloc`. The deleter is called then.
  imported_tensor(  // NOLINT: implicit, so that a dataset takes tensors as they come
      dlpack::managed_ptr managed, std::string_view where = "from_dlpack")
      : imported_tensor(array_of(managed.get(), where), where) {
    owner_ = std::move(managed);
  }
  /// Takes over a tensor of the older layout, without a version.
  imported_tensor(  // NOLINT: implicit, as above
      dlpack::unversioned_ptr managed, std::string_view where = "from_dlpack")
      : imported_tensor(array_of(managed.get(), where), where) {
    owner_ = std::move(managed);
  }

  /// How many samples there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return rows_.count; }
  /// The extents of each.
  [[nodiscard]] const extents_type& extents() const noexcept { return extents_; }
  /// The bytes from one sample to the next: below 0 where they lie backwards, 0 where all are one.
  [[nodiscard]] std::ptrdiff_t stride_bytes() const noexcept { return rows_.stride_bytes; }

  /// Sample `index`, below `size()`, where it lies.
  [[nodiscard]] tensor_view<const T, Extents...> operator[](std::uint64_t index) const noexcept {
    return {address(index), extents_};
  }

  /// Whether the samples lie one after the other, as `flat` needs it.
  [[nodiscard]] bool is_contiguous() const noexcept { return rows_.are_contiguous(); }
  /// All samples as one array, for a `memory_dataset` too, which the tensor must outlive. Throws
  /// `dlpack_error` where they do not lie one after the other.
  [[nodiscard]] std::span<const T> flat() const {
    require_contiguous();
    return {address(0), static_cast<std::size_t>(size()) * extents_.size()};
  }

 private:
  static constexpr std::array<std::size_t, sizeof...(Extents)> lengths{Extents...};

  imported_tensor(const dlpack::tensor& given, std::string_view where)
      : rows_(detail::tensor_check{expected(where), given}.rows()), extents_(extents_of(given)) {}

  template <class Managed>
  static const dlpack::tensor& array_of(const Managed* managed, std::string_view where) {
    if (managed == nullptr) {
      throw dlpack_error(where, "tensor", "one", "null", "hand over what the producer gave");
    }
    if constexpr (requires { managed->version; }) {
      if (managed->version.layout != dlpack::layout_version) {
        throw dlpack_error(where, "version", std::to_string(dlpack::layout_version) + ".x",
                           std::to_string(managed->version.layout) + "." +
                               std::to_string(managed->version.feature),
                           "ask the producer for an older one, which Python calls max_version");
      }
    }
    return managed->array;
  }

  static detail::expected_tensor expected(std::string_view where) noexcept {
    return {where, dlpack::type_of<T>::value, sizeof(T), alignof(T), lengths};
  }

  static extents_type extents_of([[maybe_unused]] const dlpack::tensor& given) noexcept {
    if constexpr (extents_type::dynamic_rank == 0) {
      return {};
    } else {
      std::array<std::size_t, extents_type::dynamic_rank> found{};
      std::size_t next = 0;
      for (std::size_t d = 0; d < lengths.size(); ++d) {
        if (lengths[d] == dyn) found[next++] = static_cast<std::size_t>(given.shape[d + 1]);
      }
      return std::apply([](auto... all) { return extents_type{all...}; }, found);
    }
  }

  [[nodiscard]] const T* address(std::uint64_t index) const noexcept {
    const auto offset = static_cast<std::int64_t>(index) * rows_.stride_bytes;
    return reinterpret_cast<const T*>(rows_.first + offset);
  }

  void require_contiguous() const {
    if (is_contiguous()) return;
    throw dlpack_error("imported_tensor", "strides",
                       std::to_string(rows_.row_bytes) + " bytes from sample to sample",
                       std::to_string(rows_.stride_bytes),
                       "give a tensor_dataset the tensor, or copy it, as `contiguous()` does");
  }

  detail::tensor_rows rows_;
  extents_type extents_;
  std::shared_ptr<void> owner_;
};

/// A tensor of another library's as samples of `Extents`, see `imported_tensor` for what it throws:
/// `ps::from_dlpack<float, 3, 224, 224>(std::move(tensor))`.
template <dlpack::element T, std::size_t... Extents>
[[nodiscard]] imported_tensor<T, Extents...> from_dlpack(dlpack::managed_ptr managed) {
  return {std::move(managed)};
}
/// Takes over a tensor of the older layout, without a version.
template <dlpack::element T, std::size_t... Extents>
[[nodiscard]] imported_tensor<T, Extents...> from_dlpack(dlpack::unversioned_ptr managed) {
  return {std::move(managed)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
