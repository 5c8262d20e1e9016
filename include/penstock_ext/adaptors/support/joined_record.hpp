// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

template <class First, class Second>
struct joined_record;

template <class... First, class... Second>
struct joined_record<record<First...>, record<Second...>> {
  using type = record<First..., Second...>;
  static constexpr bool names_differ = detail::names_differ<First..., Second...>();
};

/// The record with the fields of `First`, followed by the fields of `Second`.
template <record_type First, record_type Second>
using joined_record_t = typename joined_record<First, Second>::type;

/// True if the records have no field name in common.
template <record_type First, record_type Second>
inline constexpr bool can_be_joined = joined_record<First, Second>::names_differ;

/// Returns the extents of a joined record.
template <record_type First, record_type Second>
[[nodiscard]] record_extents<joined_record_t<First, Second>> joined_extents(
    const record_extents<First>& first, const record_extents<Second>& second) {
  return [&]<std::size_t... Is, std::size_t... Js>(std::index_sequence<Is...>,
                                                   std::index_sequence<Js...>) {
    return record_extents<joined_record_t<First, Second>>{first.template at<Is>()...,
                                                          second.template at<Js>()...};
  }(std::make_index_sequence<First::size>{}, std::make_index_sequence<Second::size>{});
}

/// A view of consecutive batch fields, starting at field `Begin`, as a batch of the record `Part`.
/// No copy is needed, because consecutive fields of a slab have the same layout as in a separate
/// slab.
template <record_type Part, std::size_t Begin>
class fields_in_place {
 public:
  /// Creates a view of fields in `whole`. `lengths` are the extents of the part.
  template <record_type Whole>
  fields_in_place(const batch_view<Whole>& whole, const record_extents<Part>& lengths)
      : layout_(lengths, whole.layout().batch_size()),
        slab_(whole.slab() + whole.layout().template offset<Begin>()),
        first_(whole.first()),
        size_(whole.size()) {}

  /// Returns the view, which references this object.
  [[nodiscard]] batch_view<Part> view() const noexcept { return {slab_, layout_, first_, size_}; }

 private:
  batch_layout<Part> layout_;
  std::byte* slab_;
  std::size_t first_;
  std::size_t size_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
