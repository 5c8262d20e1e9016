// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/adaptor_base.hpp>
#include <penstock_ext/adaptors/support/joined_record.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A dataset whose samples have their index as the last field (see `with_index`).
template <dataset Base, name Name>
class indexed_dataset : public adaptor_base<Base> {
  using below = adaptor_base<Base>;
  using below::base_;
  using base_record = typename Base::record_type;
  using index_record = record<field<Name, std::uint64_t>>;
  static constexpr std::size_t place = base_record::size;

 public:
  using record_type = joined_record_t<base_record, index_record>;
  static constexpr bool borrows = detail::borrows<Base>;
  static_assert(
      record_type::ragged_fields == 0,
      "penstock::with_index: it does not support ragged fields, whose values are stored after all "
      "other fields: use loader_options::instrumentation.indices for the indices of a batch's "
      "samples");

  /// Adds the index to the samples of `base`.
  explicit indexed_dataset(Base base) : below(std::move(base)), lengths_(extents_of(base_)) {}

  [[nodiscard]] record_extents<record_type> extents() const {
    return joined_extents(lengths_, record_extents<index_record>{});
  }

  /// Reads the chunk from `base` in place, and fills in the index field.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    const fields_in_place<base_record, 0> others{out, lengths_};
    penstock::read_chunk(base_, indices, others.view(), context);
    const auto column = out.template at<place>();
    for (std::size_t i = 0; i < indices.size(); ++i) column(i) = indices[i];
  }

 private:
  record_extents<base_record> lengths_;
};

/// The adaptor returned by `with_index`.
template <name Name>
class index_adaptor : public adaptor<index_adaptor<Name>> {
 public:
  /// Returns the dataset `data` with indices.
  template <class Data>
  [[nodiscard]] auto operator()(Data&& data) && {
    using base = stored_dataset_t<Data>;
    constexpr bool is_free = !base::record_type::template has_field<Name>;
    static_assert(is_free,
                  "penstock::with_index: the record already has a field of that name: choose "
                  "another name, with_index<\"number\">()");
    if constexpr (is_free) return indexed_dataset<base, Name>{base(std::forward<Data>(data))};
  }
};

}  // namespace detail

/// Adds the index of each sample in `data` as the last field. `data | with_index()` adds a field
/// "index" of type `std::uint64_t`, and `data | with_index<"row">()` adds a field "row". The field
/// is transferred to the device with the batch. If only the host needs the indices, use
/// `loader_options::instrumentation.indices` instead. Does not copy data.
template <name Name>
[[nodiscard]] detail::index_adaptor<Name> with_index() {
  return {};
}
/// Adds a field "index". An overload, because nvcc emits a default argument in a form that clang++
/// rejects.
[[nodiscard]] inline detail::index_adaptor<"index"> with_index() { return {}; }

}  // namespace PENSTOCK_ABI
}  // namespace penstock
