// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
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
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Base of adaptors whose samples are from an underlying dataset, which is held directly or through
/// a pointer. Forwards all members to that dataset. A derived adaptor hides the members that it
/// changes.
template <class Base, class Held = Base>
class adaptor_base {
 public:
  using record_type = typename Base::record_type;
  static constexpr bool looks_ahead = detail::looks_ahead<Base>;

  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record_type> out,
                  const chunk_context& context) const {
    penstock::read_chunk(base(), indices, out, context);
  }
  [[nodiscard]] std::uint64_t size() const { return base().size(); }
  [[nodiscard]] record_extents<record_type> extents() const { return extents_of(base()); }
  [[nodiscard]] sample_lengths<record_type> lengths(std::uint64_t index) const
    requires reports_lengths<Base>
  {
    return lengths_of(base(), index);
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of(base()); }
  [[nodiscard]] std::uint32_t stages() const { return stages_of(base()); }
  [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_of(base()); }
  void prefetch(std::uint64_t index) const noexcept
    requires prefetches<Base>
  {
    base().prefetch(index);
  }
  /// Calls `f` with the underlying dataset.
  template <class F>
  void each_base(std::span<const std::uint64_t> indices, const F& f) const {
    f(base(), indices);
  }

 protected:
  explicit adaptor_base(Held base) : base_(std::move(base)) {}

  [[nodiscard]] const Base& base() const noexcept {
    if constexpr (std::is_same_v<Held, Base>) {
      return base_;
    } else {
      return *base_;
    }
  }

  Held base_;  ///< underlying dataset
};

/// A reference to a dataset, which must outlive this object. A pipeline stores an lvalue this way,
/// like `std::ranges::ref_view`.
template <dataset D>
class dataset_ref : public adaptor_base<D, const D*> {
 public:
  using record_type = typename D::record_type;
  static constexpr bool borrows = true;

  /// References `data`, which must outlive this object.
  explicit dataset_ref(const D& data) noexcept : adaptor_base<D, const D*>(&data) {}

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

  /// Shares ownership of `data`.
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
