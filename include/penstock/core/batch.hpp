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

/// One number for each ragged field of a record; empty for a record without ragged fields.
template <std::size_t Count>
struct ragged_lengths {
  std::array<std::uint64_t, Count> of{};  ///< the number of values of a sample
};
template <>
struct ragged_lengths<0> {};

/// Returns the lengths of the ragged fields of the sample at `position` of the batch in `slab`.
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

/// Maps a list of extents to view types: `sample_view` for one sample, and `batch_view` with the
/// samples as outermost dimension.
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

/// A non-owning view of a ragged field of a batch. The field stores the values of all samples one
/// sample after the other, without gaps, and the offset of each sample's first value. Varlen
/// attention calls the offsets `cu_seqlens`. Arrow calls such a field a list array.
///
///     const auto tokens = get<"tokens">(batch);
///     for (std::size_t i = 0; i < tokens.size(); ++i) use(tokens[i].flat());
///
/// The view is cheap to copy and usable in kernels. Constness is that of `T`. `size`, `data` and
/// `offsets` read no memory. All other members read the offsets: call them on the host for a host
/// batch, and in a kernel for a batch on a GPU.
template <class T>
class ragged_view : detail::lease_tag {
 public:
  /// The type of a value. In a read-only view it is `const`.
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  /// Views `size` samples. `offsets` has `size + 1` entries, which count values starting at `data`.
  /// `lease` identifies the lease that the view belongs to, if any, see `core/checked.hpp`.
  PENSTOCK_HOST_DEVICE constexpr ragged_view(T* data, const std::int32_t* offsets, std::size_t size,
                                             detail::lease_tag lease = {}) noexcept
      : lease_tag(lease), data_(data), offsets_(offsets), size_(size) {}

  /// Converts a view of T to a view of const T.
  template <class U>
    requires(std::same_as<const U, T> && !std::same_as<U, T>)
  PENSTOCK_HOST_DEVICE constexpr ragged_view(  // NOLINT: implicit, as with std::span
      const ragged_view<U>& other) noexcept
      : lease_tag(other.tag()), data_(other.data_), offsets_(other.offsets_), size_(other.size_) {}

  /// Returns the number of samples.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t size() const noexcept { return size_; }
  /// Returns a pointer to the first value of the batch. The offsets are relative to it.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr T* data() const noexcept {
    tag().record_address();
    return data_;
  }
  /// Returns the `size() + 1` non-decreasing offsets into `data()`. Sample i starts at offset i,
  /// and the final sample ends at the final offset. The first offset is 0, unless the view covers
  /// only part of a batch.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<const std::int32_t, dyn> offsets()
      const noexcept {
    return {offsets_, extents<dyn>{size_ + 1}, tag()};
  }

  /// Returns the values of sample `index`. Indices are checked by `assert`.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> operator[](
      std::size_t index) const noexcept {
    assert(index < size_);
    return part(index, index + 1);
  }
  /// Returns the number of values of sample `index`.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::size_t length(
      std::size_t index) const noexcept {
    assert(index < size_);
    return offset(index + 1) - offset(index);
  }
  /// Returns the values of all samples.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr tensor_view<T, dyn> values() const noexcept {
    return part(0, size_);
  }
  /// Returns the number of values of the longest sample, or 0 for an empty view. Reads all offsets.
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

/// A reference to one sample, wherever it is stored. A dataset writes to a sample in a batch's
/// slab. A `map` function reads a `const_sample`, which is in a slab or in the dataset's own
/// arrays.
///
/// `get<"name">()` returns a `tensor_view` of the field's extents. For a field without extents it
/// returns a plain reference: `get<"label">(out) = 3`. The view of a ragged field has this sample's
/// length: `get<"tokens">(out).size()` values, all of which must be written. A sample owns nothing.
/// It holds a pointer to each field and a pointer to the extents, and must not outlive the fields
/// or the extents.
template <record_type Record, class Byte>
class basic_sample {
 public:
  using record_type = Record;

  /// Makes a sample whose fields need not be adjacent in memory. `fields` holds the address of each
  /// field, in the record's order. Each address must be aligned for the field's type.
  constexpr basic_sample(const std::array<Byte*, Record::size>& fields,
                         const record_extents<Record>& lengths) noexcept
    requires(Record::ragged_fields == 0)
      : fields_(fields), lengths_(&lengths) {}

  /// Makes a sample whose fields need not be adjacent in memory and whose ragged fields have the
  /// lengths `values`.
  constexpr basic_sample(const std::array<Byte*, Record::size>& fields,
                         const record_extents<Record>& lengths,
                         const sample_lengths<Record>& values) noexcept
    requires(Record::ragged_fields > 0)
      : fields_(fields), lengths_(&lengths), values_{values} {}

  /// Makes a reference to the sample at `position` of a slab. `lease` identifies the lease that the
  /// sample belongs to, if any, see `core/checked.hpp`. If the record has ragged fields, the
  /// constructor reads the offsets in the slab, so the caller must be able to read that memory.
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

  /// Returns the field called `Name`: a reference if the field is a scalar, otherwise a
  /// `tensor_view`.
  template <name Name>
  [[nodiscard]] decltype(auto) get() const noexcept {
    detail::require_field<Record, Name>();
    if constexpr (Record::template has_field<Name>) return at<Record::template index_of<Name>()>();
  }

  /// Returns the field at index `Index` of the record.
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

  /// Returns the first byte of the field at index `index` of the record.
  [[nodiscard]] constexpr Byte* address(std::size_t index) const noexcept {
    lease_.require_alive();
    return fields_[index];
  }
  /// Returns the extents of a sample's fields.
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

/// A sample to write into.
template <record_type Record>
using sample = basic_sample<Record, std::byte>;
/// A sample to read.
template <record_type Record>
using const_sample = basic_sample<Record, const std::byte>;

/// A view of a batch, or of consecutive samples of a batch: `size()` samples starting at position
/// `first()`.
///
/// `get<"name">()` returns a `tensor_view` whose outermost dimension counts the samples. For a
/// ragged field it returns a `ragged_view`. `b[i]` returns the i-th sample. The view owns nothing.
/// The memory may be on the host or on the device.
template <record_type Record, class Byte>
class basic_batch_view {
 public:
  using record_type = Record;

  /// Views `size` samples of the batch in `slab`, starting at position `first`. `slab` and `layout`
  /// must outlive the view. `lease` identifies the lease that the view belongs to, if any, see
  /// `core/checked.hpp`.
  constexpr basic_batch_view(Byte* slab, const batch_layout<Record>& layout, std::size_t first,
                             std::size_t size, detail::lease_tag lease = {}) noexcept
      : slab_(slab), layout_(&layout), first_(first), size_(size), lease_(lease) {}

  /// Converts a view for writing to a view for reading.
  template <class Other>
    requires(std::is_same_v<const Other, Byte> && !std::is_same_v<Other, Byte>)
  constexpr basic_batch_view(  // NOLINT: implicit, as with sample
      const basic_batch_view<Record, Other>& other) noexcept
      : slab_(other.slab()),
        layout_(&other.layout()),
        first_(other.first()),
        size_(other.size()),
        lease_(other.lease_) {}

  /// Returns a `tensor_view` of the field called `Name`, with the samples as outermost dimension.
  /// For a ragged field it returns a `ragged_view`.
  template <name Name>
  [[nodiscard]] auto get() const noexcept {
    detail::require_field<Record, Name>();
    if constexpr (Record::template has_field<Name>) return at<Record::template index_of<Name>()>();
  }

  /// Returns the field at index `Index` of the record.
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

  /// Returns sample `i` of this view.
  [[nodiscard]] constexpr basic_sample<Record, Byte> operator[](std::size_t i) const noexcept {
    return {slab(), *layout_, first_ + i, lease_};
  }

  /// Returns a view of `count` samples of this view, starting at its sample `begin`.
  [[nodiscard]] constexpr basic_batch_view subchunk(std::size_t begin,
                                                    std::size_t count) const noexcept {
    return {slab_, *layout_, first_ + begin, count, lease_};
  }

  /// Returns the number of samples.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  /// Returns the position of the view's first sample within the batch.
  [[nodiscard]] constexpr std::size_t first() const noexcept { return first_; }
  /// Returns the first byte of the batch, not of the view.
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

/// A batch view for writing.
template <record_type Record>
using batch_view = basic_batch_view<Record, std::byte>;
/// A batch view for reading.
template <record_type Record>
using const_batch_view = basic_batch_view<Record, const std::byte>;

/// Reserves `lengths` values in each ragged field for the sample at `position`, directly after the
/// previous sample. Intended for code that fills batches, such as a loader or your own
/// `batch_source`. First place all samples in order, starting at position 0. Then write them, in
/// any order and from any threads. Returns `Record::size` on success. If the values do not fit, the
/// function places nothing and returns the index of the ragged field that is too small.
template <record_type Record>
  requires(Record::ragged_fields > 0)
[[nodiscard]] constexpr std::size_t place_sample(const batch_view<Record>& whole,
                                                 std::size_t position,
                                                 const sample_lengths<Record>& lengths) noexcept {
  std::size_t refused = Record::size;
  detail::for_each_ragged<Record>([&]<std::size_t Index>() {
    const std::size_t used =
        position == 0 ? 0
                      : static_cast<std::size_t>(
                            whole.layout().template value_begin<Index>(whole.slab(), position));
    const std::size_t left = whole.layout().template capacity<Index>() - used;
    if (refused == Record::size && lengths[Record::template ragged_index<Index>()] > left) {
      refused = Index;
    }
  });
  if (refused != Record::size) return refused;
  detail::for_each_ragged<Record>([&]<std::size_t Index>() {
    auto* const offsets =
        reinterpret_cast<std::int32_t*>(whole.slab() + whole.layout().template offsets_at<Index>());
    if (position == 0) offsets[0] = 0;
    offsets[position + 1] =
        offsets[position] +
        static_cast<std::int32_t>(lengths[Record::template ragged_index<Index>()]);
  });
  return refused;
}

/// Returns the field called `Name` of a sample, a batch view or a lease: `get<"image">(batch)`.
/// Equivalent to `batch.get<"image">()`, but generic code does not need the keyword `template`. A
/// const lease returns const views.
template <name Name, class Batch>
  requires requires { typename std::remove_cvref_t<Batch>::record_type; }
[[nodiscard]] decltype(auto) get(Batch&& batch) noexcept {
  return batch.template get<Name>();
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
