// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/interop/dlpack_abi.hpp>
#include <penstock_ext/interop/imported_tensor.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

template <class Field, class List>
struct imported_field;
template <class Field, std::size_t... Extents>
struct imported_field<Field, extents<Extents...>> {
  using type = imported_tensor<typename Field::value_type, Extents...>;
};

/// The tensor of a field, with the field's name for messages.
template <class Field>
class tensor_of_field {
 public:
  using type = typename imported_field<Field, typename Field::extents_type>::type;

  tensor_of_field(type tensor) : tensor_(std::move(tensor)) {}  // NOLINT: implicit
  tensor_of_field(dlpack::managed_ptr managed)                  // NOLINT: implicit
      : tensor_(std::move(managed), where()) {}
  tensor_of_field(dlpack::unversioned_ptr managed)  // NOLINT: implicit
      : tensor_(std::move(managed), where()) {}

  [[nodiscard]] const type& get() const noexcept { return tensor_; }
  /// The prefix of this field's messages.
  [[nodiscard]] static std::string where() {
    return "tensor_dataset: field \"" + Field::key.str() + "\"";
  }

 private:
  type tensor_;
};

}  // namespace detail

/// A dataset over tensors of other libraries, see the specialisation.
template <penstock::record_type Record>
class tensor_dataset;

/// A dataset over tensors of other libraries in host memory, one per field, in the record's order:
/// `dlpack::managed_ptr`, `dlpack::unversioned_ptr`, or results of `from_dlpack`. Copies nothing
/// until a sample is read; any stride between samples is allowed.
///
///     using digit = ps::record<ps::field<"image", float, 28, 28>,
///                              ps::field<"label", std::int64_t>>;
///     ps::tensor_dataset<digit> digits{std::move(images), std::move(labels)};
///
/// Shares ownership of the tensors with its copies, see `imported_tensor`; a loader that takes the
/// dataset keeps them alive. Dynamic extents are those of the tensors. Reading is thread-safe. Rows
/// are prefetched into the cache, four ahead.
template <class... Fields>
class tensor_dataset<record<Fields...>> {
 public:
  using record_type = record<Fields...>;
  static_assert(
      record_type::ragged_fields == 0,
      "penstock::tensor_dataset: the rows of a tensor have one length: write a dataset of "
      "your own for a ragged field, see docs/ragged.md");

  /// Takes one tensor for each field. Throws `dlpack_error`, which names the field, if a tensor
  /// does not match its field, see `imported_tensor`, or its number of samples differs from the
  /// first tensor's. Tensors taken by then are freed, the others stay with the caller.
  explicit tensor_dataset(detail::tensor_of_field<Fields>... tensors)
      : tensors_(std::move(tensors)...),
        layout_(std::apply(
                    [](const auto&... each) {
                      return record_extents<record_type>{each.get().extents()...};
                    },
                    tensors_),
                1),
        size_(std::get<0>(tensors_).get().size()),
        places_(
            std::apply([this](const auto&... each) { return std::array{this->place_of(each)...}; },
                       tensors_)) {}

  /// The number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// The extents of a sample, from the tensors.
  [[nodiscard]] const record_extents<record_type>& extents() const noexcept {
    return layout_.extents();
  }

  /// Copies the samples `indices` into `out`. Throws `index_error`.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    detail::copy_rows(*this, layout_, indices, out, context);
  }

  /// Refers to the sample in the tensors. Throws `index_error`.
  [[nodiscard]] const_sample<record_type> view(std::uint64_t index) const {
    if (index >= size_) throw index_error("tensor_dataset", index, size_);
    return {rows(index), layout_.extents()};
  }

  /// Brings the sample nearer; does nothing for an index out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size_) return;
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      const auto row = rows(index);
      (detail::prefetch_row(row[Is], layout_.template sample_bytes<Is>()), ...);
    }(std::index_sequence_for<Fields...>{});
  }

 private:
  struct place {
    const std::byte* first;
    std::int64_t stride_bytes;
  };

  template <class Tensor>
  [[nodiscard]] place place_of(const Tensor& tensor) const {
    const auto& samples = tensor.get();
    if (samples.size() != size_) {
      throw dlpack_error(Tensor::where(), "shape", std::to_string(size_) + " samples",
                         std::to_string(samples.size()),
                         "all fields need as many samples as the first one");
    }
    if (size_ == 0) return {};
    return {reinterpret_cast<const std::byte*>(samples[0].data()), samples.stride_bytes()};
  }

  [[nodiscard]] auto rows(std::uint64_t index) const noexcept {
    const auto at = static_cast<std::int64_t>(index);
    return std::apply(
        [at](const auto&... each) { return std::array{(each.first + at * each.stride_bytes)...}; },
        places_);
  }

  std::tuple<detail::tensor_of_field<Fields>...> tensors_;
  batch_layout<record_type> layout_;
  std::uint64_t size_;
  std::array<place, sizeof...(Fields)> places_;
};

static_assert(dataset<tensor_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
