// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A reference to a dataset, which must outlive it: how a pipeline holds an lvalue, like
/// `std::ranges::ref_view`.
template <dataset D>
class dataset_ref {
 public:
  using record_type = typename D::record_type;
  static constexpr bool borrows = true;

  /// Refers to `data`, which must outlive it.
  explicit dataset_ref(const D& data) noexcept : data_(&data) {}

  [[nodiscard]] std::uint64_t size() const { return data_->size(); }
  [[nodiscard]] record_extents<record_type> extents() const { return extents_of(*data_); }
  [[nodiscard]] sample_lengths<record_type> lengths(std::uint64_t index) const
    requires tells_lengths<D>
  {
    return lengths_of(*data_, index);
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of(*data_); }
  [[nodiscard]] std::uint32_t stages() const { return stages_of(*data_); }
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_of(*data_); }
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    penstock::read_chunk(*data_, indices, out, context);
  }
  [[nodiscard]] const_sample<record_type> view(std::uint64_t index) const
    requires views_samples<D>
  {
    return data_->view(index);
  }
  void finish_batch(batch_view<record_type> all, sample_generator& rng) const
    requires finishes_batches<D>
  {
    data_->finish_batch(all, rng);
  }
  void prefetch(std::uint64_t index) const noexcept
    requires prefetches<D>
  {
    data_->prefetch(index);
  }
  void prefetch_hint(std::span<const std::uint64_t> indices) const
    requires accepts_hints<D>
  {
    data_->prefetch_hint(indices);
  }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    return storage_size_of(*data_, index);
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const { return prefetch_capacity_of(*data_); }
  void access_plan(std::span<const std::uint64_t> indices) const
    requires accepts_access_plans<D>
  {
    data_->access_plan(indices);
  }
  [[nodiscard]] std::uint64_t plan_capacity() const { return plan_capacity_of(*data_); }
  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept {
    return origin_of(*data_, index);
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const { return base_sizes_of(*data_); }
  [[nodiscard]] std::vector<std::string> warnings() const { return warnings_of(*data_); }

 private:
  const D* data_;
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
