// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/tensor_view.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the offset in bytes of the sample at `position` within field `Index` of the batch in
/// `slab`.
template <std::size_t Index, record_type Record>
[[nodiscard]] constexpr std::size_t place_in([[maybe_unused]] const std::byte* slab,
                                             const batch_layout<Record>& layout,
                                             std::size_t position) noexcept {
  using field = typename Record::template field_at<Index>;
  if constexpr (field::is_ragged) {
    const std::int32_t begin = layout.template value_begin<Index>(slab, position);
    return static_cast<std::size_t>(begin) * sizeof(typename field::value_type);
  } else {
    return position * layout.template sample_bytes<Index>();
  }
}

/// One integer for each ragged field of a record. Empty if no field is ragged.
template <std::size_t Count>
struct ragged_lengths {
  std::array<std::uint64_t, Count> of{};  ///< lengths of a sample in values
};
template <>
struct ragged_lengths<0> {};

/// Returns the lengths of the ragged fields for the sample at `position` in the batch in `slab`.
template <record_type Record>
[[nodiscard]] constexpr ragged_lengths<Record::ragged_fields> lengths_in(
    [[maybe_unused]] const std::byte* slab, [[maybe_unused]] const batch_layout<Record>& layout,
    [[maybe_unused]] std::size_t position) noexcept {
  ragged_lengths<Record::ragged_fields> values;
  if constexpr (Record::ragged_fields > 0) {
    for_each_ragged<Record>([&]<std::size_t Index>() {
      values.of[Record::template ragged_index<Index>()] =
          static_cast<std::uint64_t>(layout.template value_begin<Index>(slab, position + 1) -
                                     layout.template value_begin<Index>(slab, position));
    });
  }
  return values;
}

/// Maps a list of extents to view types: `sample_view` for one sample, and `batch_view` for a
/// batch, whose outermost dimension counts the samples.
template <class T, class List>
struct views_of;

template <class T, std::size_t... Extents>
struct views_of<T, extents<Extents...>> {
  using sample_view = tensor_view<T, Extents...>;
  using batch_view = tensor_view<T, dyn, Extents...>;

  static constexpr batch_view make_batch(T* data, std::size_t count,
                                         const extents<Extents...>& lengths,
                                         lease_tag lease) noexcept {
    return [&]<std::size_t... Ds>(std::index_sequence<Ds...>) {
      const std::size_t all[] = {count, lengths[Ds]...};
      return batch_view{data, extents_in<extents<dyn, Extents...>>(all), lease};
    }(std::make_index_sequence<sizeof...(Extents)>{});
  }
};

}  // namespace detail

/// A non-owning view of a ragged batch field. A ragged field stores the values of all samples back
/// to back, and an offset to the first value of each sample. In variable-length attention, these
/// offsets are called `cu_seqlens`. Arrow calls such a field a list array.
///
///     const auto tokens = get<"tokens">(batch);
///     for (std::size_t i = 0; i < tokens.size(); ++i) use(tokens[i].flat());
///
/// The view is cheap to copy and usable in kernels. A view of `const T` is read-only. `size`,
/// `data` and `offsets` do not read memory. All other members read the offsets, so call them on the
/// host for a host batch, and in a kernel for a batch on a GPU.
template <class T>
class ragged_view : detail::lease_tag {
 public:
  /// The value type, which is `const` in a read-only view.
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  /// Creates a view of `size` samples. `offsets` has `size + 1` elements, which are relative to
  /// `data` and counted in values. `lease` identifies the lease that the view belongs to, if any
  /// (see `core/checked.hpp`).
  PENSTOCK_HOST_DEVICE constexpr ragged_view(T* data, const std::int32_t* offsets, std::size_t size,
                                             detail::lease_tag lease = {}) noexcept
      : lease_tag(lease), data_(data), offsets_(offsets), size_(size) {}

  /// Converts a `T` view to a `const T` view.
  template <class U>
    requires(std::same_as<const U, T> && !std::same_as<U, T>)
  PENSTOCK_HOST_DEVICE constexpr ragged_view(  // NOLINT: implicit, as with std::span
      const ragged_view<U>& other) noexcept
      : lease_tag(other.tag()), data_(other.data_), offsets_(other.offsets_), size_(other.size_) {}

  /// Returns the number of samples.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t size() const noexcept { return size_; }
  /// Returns a pointer to the first value of the batch. The offsets are relative to this pointer.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr T* data() const noexcept {
    tag().record_address();
    return data_;
  }
  /// Returns the `size() + 1` non-decreasing offsets into `data()`. Sample i starts at offset i,
  /// and the last sample ends at the last offset. The first offset is 0, unless the view covers
  /// only part of a batch.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<const std::int32_t, dyn> offsets()
      const noexcept {
    return {offsets_, extents<dyn>{size_ + 1}, tag()};
  }

  /// Returns the values of sample `index`. An `assert` checks the index.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> operator[](
      std::size_t index) const noexcept {
    assert(index < size_);
    return part(index, index + 1);
  }
  /// Returns the length of sample `index` in values.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t length(
      std::size_t index) const noexcept {
    assert(index < size_);
    return offset(index + 1) - offset(index);
  }
  /// Returns the values of all samples.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> values() const noexcept {
    return part(0, size_);
  }
  /// Returns the length of the longest sample in values, or 0 for an empty view. Reads all offsets.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t max_length() const noexcept {
    std::size_t max = 0;
    for (std::size_t i = 0; i < size_; ++i) max = length(i) > max ? length(i) : max;
    return max;
  }

 private:
  template <class>
  friend class ragged_view;

  PENSTOCK_HOST_DEVICE constexpr std::size_t offset(std::size_t index) const noexcept {
    tag().require_data();
    return static_cast<std::size_t>(offsets_[index]);
  }
  PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> part(std::size_t begin,
                                                          std::size_t end) const noexcept {
    return {data_ + offset(begin), extents<dyn>{offset(end) - offset(begin)}, tag()};
  }

  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr const detail::lease_tag& tag() const noexcept {
    return *this;
  }

  T* data_;
  const std::int32_t* offsets_;
  std::size_t size_;
};

namespace detail {

template <class Record, name Name>
constexpr void require_field() {
  static_assert(Record::template has_field<Name>, "penstock::get: the record has no such field");
}

template <class Byte, class T>
using like = std::conditional_t<std::is_const_v<Byte>, const T, T>;

}  // namespace detail

/// A reference to a single sample in any memory. A dataset writes samples into the slab of a batch.
/// A `map` function reads a `const_sample` from a slab or from arrays of the dataset.
///
/// `get<"name">()` returns a `tensor_view` with the extents of the field, or a reference if the
/// field is a scalar: `get<"label">(out) = 3`. The view of a ragged field has the length of the
/// sample. All `get<"tokens">(out).size()` values must be written. A sample is non-owning, and must
/// not outlive its fields and extents.
template <record_type Record, class Byte>
class basic_sample {
 public:
  using record_type = Record;

  /// Creates a sample whose fields need not be adjacent in memory. `fields` contains the address of
  /// each field, in field order. Each address must be aligned for the field type.
  constexpr basic_sample(const std::array<Byte*, Record::size>& fields,
                         const record_extents<Record>& lengths) noexcept
    requires(Record::ragged_fields == 0)
      : fields_(fields), lengths_(&lengths) {}

  /// Creates a sample whose fields need not be adjacent in memory. `values` contains the lengths of
  /// the ragged fields.
  constexpr basic_sample(const std::array<Byte*, Record::size>& fields,
                         const record_extents<Record>& lengths,
                         const sample_lengths<Record>& values) noexcept
    requires(Record::ragged_fields > 0)
      : fields_(fields), lengths_(&lengths), values_{values} {}

  /// Creates a reference to the sample at `position` of a slab. `lease` identifies the lease that
  /// the sample belongs to, if any (see `core/checked.hpp`). If the record has ragged fields, the
  /// constructor reads the offsets in the slab, which must be accessible to the caller.
  constexpr basic_sample(Byte* slab, const batch_layout<Record>& layout, std::size_t position,
                         detail::lease_tag lease = {}) noexcept
      : fields_(addresses(slab, layout, position, std::make_index_sequence<Record::size>{})),
        lengths_(&layout.extents()),
        values_(detail::lengths_in(slab, layout, position)),
        lease_(lease) {}

  /// Converts a sample to a const sample.
  template <class Other>
    requires(std::is_same_v<const Other, Byte> && !std::is_same_v<Other, Byte>)
  constexpr basic_sample(const basic_sample<Record, Other>& other) noexcept  // NOLINT: implicit
      : lengths_(&other.extents()), values_(other.values_), lease_(other.lease_) {
    for (std::size_t i = 0; i < Record::size; ++i) fields_[i] = other.address(i);
  }

  /// Returns the field named `Name`, as a reference if the field is a scalar, and otherwise as a
  /// `tensor_view`.
  template <name Name>
  [[nodiscard]] decltype(auto) get() const noexcept {
    detail::require_field<Record, Name>();
    if constexpr (Record::template has_field<Name>) return at<Record::template index_of<Name>()>();
  }

  /// Returns the field at index `Index` in the record.
  template <std::size_t Index>
  [[nodiscard]] decltype(auto) at() const noexcept {
    using field = typename Record::template field_at<Index>;
    using element = detail::like<Byte, typename field::value_type>;
    auto* data = reinterpret_cast<element*>(address(Index));
    if constexpr (field::extents_type::rank == 0) {
      lease_.require_data();
      return (*data);
    } else if constexpr (field::is_ragged) {
      const std::uint64_t count = values_.of[Record::template ragged_index<Index>()];
      return tensor_view<element, dyn>{data, {static_cast<std::size_t>(count)}, lease_};
    } else {
      using views = detail::views_of<element, typename field::extents_type>;
      return typename views::sample_view{data, lengths_->template at<Index>(), lease_};
    }
  }

  /// Returns the address of the field at index `index` in the record.
  [[nodiscard]] constexpr Byte* address(std::size_t index) const noexcept {
    lease_.require_alive();
    return fields_[index];
  }
  /// Returns the sample extents.
  [[nodiscard]] constexpr const record_extents<Record>& extents() const noexcept {
    return *lengths_;
  }

 private:
  template <penstock::record_type, class>
  friend class basic_sample;

  template <std::size_t... Is>
  static constexpr std::array<Byte*, Record::size> addresses(Byte* slab,
                                                             const batch_layout<Record>& layout,
                                                             std::size_t position,
                                                             std::index_sequence<Is...>) noexcept {
    return {
        (slab + layout.template offset<Is>() + detail::place_in<Is>(slab, layout, position))...};
  }

  std::array<Byte*, Record::size> fields_{};
  const record_extents<Record>* lengths_;
  [[no_unique_address]] detail::ragged_lengths<Record::ragged_fields> values_;
  [[no_unique_address]] detail::lease_tag lease_;
};

/// A writable sample.
template <record_type Record>
using sample = basic_sample<Record, std::byte>;
/// A read-only sample.
template <record_type Record>
using const_sample = basic_sample<Record, const std::byte>;

/// A view of a batch or of consecutive samples in a batch. Covers `size()` samples starting at
/// position `first()`.
///
/// `get<"name">()` returns a `tensor_view` whose outermost dimension counts the samples, or a
/// `ragged_view` if the field is ragged. `b[i]` returns the i-th sample. The view is non-owning.
/// The memory may be on the host or on the device.
template <record_type Record, class Byte>
class basic_batch_view {
 public:
  using record_type = Record;

  /// Creates a view of `size` samples of the batch in `slab`, starting at position `first`. `slab`
  /// and `layout` must outlive the view. `lease` identifies the lease that the view belongs to, if
  /// any (see `core/checked.hpp`).
  constexpr basic_batch_view(Byte* slab, const batch_layout<Record>& layout, std::size_t first,
                             std::size_t size, detail::lease_tag lease = {}) noexcept
      : slab_(slab), layout_(&layout), first_(first), size_(size), lease_(lease) {}

  /// Converts a writable view to a read-only view.
  template <class Other>
    requires(std::is_same_v<const Other, Byte> && !std::is_same_v<Other, Byte>)
  constexpr basic_batch_view(  // NOLINT: implicit, as with sample
      const basic_batch_view<Record, Other>& other) noexcept
      : slab_(other.slab()),
        layout_(&other.layout()),
        first_(other.first()),
        size_(other.size()),
        lease_(other.lease_) {}

  /// Returns the field named `Name`, as a `ragged_view` if the field is ragged, and otherwise as a
  /// `tensor_view` whose outermost dimension counts the samples.
  template <name Name>
  [[nodiscard]] auto get() const noexcept {
    detail::require_field<Record, Name>();
    if constexpr (Record::template has_field<Name>) return at<Record::template index_of<Name>()>();
  }

  /// Returns the field at index `Index` in the record.
  template <std::size_t Index>
  [[nodiscard]] auto at() const noexcept {
    using field = typename Record::template field_at<Index>;
    using element = detail::like<Byte, typename field::value_type>;
    if constexpr (field::is_ragged) {
      auto* data = reinterpret_cast<element*>(slab() + layout_->template offset<Index>());
      const auto* offsets =
          reinterpret_cast<const std::int32_t*>(slab() + layout_->template offsets_at<Index>());
      return ragged_view<element>{data, offsets + first_, size_, lease_};
    } else {
      using views = detail::views_of<element, typename field::extents_type>;
      auto* data = reinterpret_cast<element*>(slab() + layout_->template offset<Index>() +
                                              first_ * layout_->template sample_bytes<Index>());
      return views::make_batch(data, size_, layout_->extents().template at<Index>(), lease_);
    }
  }

  /// Returns the i-th sample of the view.
  [[nodiscard]] constexpr basic_sample<Record, Byte> operator[](std::size_t i) const noexcept {
    return {slab(), *layout_, first_ + i, lease_};
  }

  /// Returns a view of `count` samples, starting at sample `begin` of this view.
  [[nodiscard]] constexpr basic_batch_view subchunk(std::size_t begin,
                                                    std::size_t count) const noexcept {
    return {slab_, *layout_, first_ + begin, count, lease_};
  }

  /// Returns the number of samples.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  /// Returns the batch position of the first sample in the view.
  [[nodiscard]] constexpr std::size_t first() const noexcept { return first_; }
  /// Returns the address of the whole batch, even if the view starts at a later sample.
  [[nodiscard]] constexpr Byte* slab() const noexcept {
    lease_.require_alive();
    return slab_;
  }
  /// Returns the layout of the batch.
  [[nodiscard]] constexpr const batch_layout<Record>& layout() const noexcept { return *layout_; }

 private:
  template <penstock::record_type, class>
  friend class basic_batch_view;

  Byte* slab_;
  const batch_layout<Record>* layout_;
  std::size_t first_;
  std::size_t size_;
  [[no_unique_address]] detail::lease_tag lease_;
};

/// A writable batch view.
template <record_type Record>
using batch_view = basic_batch_view<Record, std::byte>;
/// A read-only batch view.
template <record_type Record>
using const_batch_view = basic_batch_view<Record, const std::byte>;

/// Reserves `lengths` values in the ragged fields for the sample at `position`, directly after the
/// previous sample. Intended for code that fills batches, such as a loader or a custom
/// `batch_source`. All samples must be placed in order, starting at position 0, before any sample
/// is written. Afterwards, samples may be written in any order from any thread. Returns
/// `Record::size` on success. If the values do not fit, the function places nothing and returns the
/// index of the ragged field that is too small.
template <record_type Record>
  requires(Record::ragged_fields > 0)
[[nodiscard]] constexpr std::size_t place_sample(const batch_view<Record>& whole,
                                                 std::size_t position,
                                                 const sample_lengths<Record>& lengths) noexcept {
  std::size_t rejected = Record::size;
  detail::for_each_ragged<Record>([&]<std::size_t Index>() {
    const std::size_t used =
        position == 0 ? 0
                      : static_cast<std::size_t>(
                            whole.layout().template value_begin<Index>(whole.slab(), position));
    const std::size_t left = whole.layout().template capacity<Index>() - used;
    if (rejected == Record::size && lengths[Record::template ragged_index<Index>()] > left) {
      rejected = Index;
    }
  });
  if (rejected != Record::size) return rejected;
  detail::for_each_ragged<Record>([&]<std::size_t Index>() {
    auto* const offsets =
        reinterpret_cast<std::int32_t*>(whole.slab() + whole.layout().template offsets_at<Index>());
    if (position == 0) offsets[0] = 0;
    offsets[position + 1] =
        offsets[position] +
        static_cast<std::int32_t>(lengths[Record::template ragged_index<Index>()]);
  });
  return rejected;
}

/// Returns the field named `Name` of a sample, a batch view or a lease, as in
/// `get<"image">(batch)`. Equivalent to `batch.get<"image">()`, which requires the keyword
/// `template` in generic code. A const lease returns read-only views.
template <name Name, class Batch>
  requires requires { typename std::remove_cvref_t<Batch>::record_type; }
[[nodiscard]] decltype(auto) get(Batch&& batch) noexcept {
  return batch.template get<Name>();
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
