// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/over_dataset.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A reference to a dataset, which must outlive it: how a pipeline holds an lvalue, like
/// `std::ranges::ref_view`.
template <dataset D>
class dataset_ref : public over_dataset<D, const D*> {
 public:
  using record_type = typename D::record_type;
  static constexpr bool borrows = true;

  /// Refers to `data`, which must outlive it.
  explicit dataset_ref(const D& data) noexcept : over_dataset<D, const D*>(&data) {}

  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    penstock::read_chunk(this->base(), indices, out, context);
  }
  [[nodiscard]] const_sample<record_type> view(std::uint64_t index) const
    requires views_samples<D>
  {
    return this->base().view(index);
  }
  void finish_batch(batch_view<record_type> all, sample_generator& rng) const
    requires finishes_batches<D>
  {
    this->base().finish_batch(all, rng);
  }
};

/// A dataset with shared ownership.
template <dataset D>
class shared_dataset : public dataset_ref<D> {
 public:
  static constexpr bool borrows = detail::borrows<D>;

  /// Shares `data`.
  explicit shared_dataset(std::shared_ptr<const D> data) noexcept
      : dataset_ref<D>(*data), owned_(std::move(data)) {}

 private:
  std::shared_ptr<const D> owned_;
};

template <class D>
struct stored_dataset {
  using type = std::remove_cvref_t<D>;
};
template <class D>
struct stored_dataset<D&> {
  using type = dataset_ref<std::remove_const_t<D>>;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
