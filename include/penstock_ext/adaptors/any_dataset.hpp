// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
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
#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>
#include <penstock/data/support/adaptor_base.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Interface of the dataset in an `any_dataset`.
template <record_type Record>
class erased_dataset {
 public:
  using record_type = Record;

  erased_dataset() = default;
  erased_dataset(erased_dataset&&) = delete;
  virtual ~erased_dataset() = default;

  [[nodiscard]] virtual std::uint64_t size() const = 0;
  [[nodiscard]] virtual record_extents<Record> extents() const = 0;
  [[nodiscard]] virtual sample_lengths<Record> lengths(std::uint64_t index) const = 0;
  [[nodiscard]] virtual std::size_t scratch_bytes() const = 0;
  [[nodiscard]] virtual std::uint32_t stages() const = 0;
  [[nodiscard]] virtual std::uint64_t fingerprint() const = 0;
  virtual void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                          const chunk_context& context) const = 0;
  virtual void prefetch_hint(std::span<const std::uint64_t> indices) const = 0;
  [[nodiscard]] virtual std::uint64_t storage_size(std::uint64_t index) const = 0;
  [[nodiscard]] virtual std::uint64_t prefetch_capacity() const = 0;
  virtual void access_plan(std::span<const std::uint64_t> indices) const = 0;
  [[nodiscard]] virtual std::uint64_t plan_capacity() const = 0;
  [[nodiscard]] virtual sample_origin origin(std::uint64_t index) const noexcept = 0;
  [[nodiscard]] virtual std::vector<std::uint64_t> base_sizes() const = 0;
  [[nodiscard]] virtual std::vector<std::string> warnings() const = 0;
};

/// A dataset in an `any_dataset`.
template <dataset D>
class erased_dataset_of final : public erased_dataset<typename D::record_type> {
  using record = typename D::record_type;

 public:
  explicit erased_dataset_of(D data) : data_(std::move(data)) {}

  [[nodiscard]] std::uint64_t size() const override { return data_.size(); }
  [[nodiscard]] record_extents<record> extents() const override { return extents_of(data_); }
  [[nodiscard]] sample_lengths<record> lengths(
      [[maybe_unused]] std::uint64_t index) const override {
    if constexpr (reports_lengths<D>) {
      return lengths_of(data_, index);
    } else {
      return {};
    }
  }
  [[nodiscard]] std::size_t scratch_bytes() const override { return scratch_bytes_of(data_); }
  [[nodiscard]] std::uint32_t stages() const override { return stages_of(data_); }
  [[nodiscard]] std::uint64_t fingerprint() const override { return fingerprint_of(data_); }
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<record> out,
                  const chunk_context& context) const override {
    penstock::read_chunk(data_, indices, out, context);
  }
  void prefetch_hint(std::span<const std::uint64_t> indices) const override {
    penstock::prefetch_hint(data_, indices);
  }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const override {
    return storage_size_of(data_, index);
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const override {
    return prefetch_capacity_of(data_);
  }
  void access_plan(std::span<const std::uint64_t> indices) const override {
    penstock::access_plan(data_, indices);
  }
  [[nodiscard]] std::uint64_t plan_capacity() const override { return plan_capacity_of(data_); }
  [[nodiscard]] sample_origin origin(std::uint64_t index) const noexcept override {
    return origin_of(data_, index);
  }
  [[nodiscard]] std::vector<std::uint64_t> base_sizes() const override {
    return base_sizes_of(data_);
  }
  [[nodiscard]] std::vector<std::string> warnings() const override { return warnings_of(data_); }

 private:
  D data_;
};

/// Wraps `data`. References an lvalue, and owns an rvalue.
template <record_type Record, class Data>
[[nodiscard]] std::shared_ptr<const erased_dataset<Record>> erase(Data&& data) {
  using stored = stored_dataset_t<Data>;
  reject_batch_maps<stored>();
  constexpr bool is_right = std::same_as<typename stored::record_type, Record>;
  static_assert(is_right, "penstock::any_dataset: the dataset has a different record");
  if constexpr (is_right) {
    return std::make_shared<const erased_dataset_of<stored>>(stored(std::forward<Data>(data)));
  }
}

}  // namespace detail

/// A type-erased dataset of `Record`, for pipelines that are chosen at run time or declared in a
/// header.
///
///     ps::any_dataset<digit> train = ps::idx_dataset<digit>{images, labels};
///     if (flags.augment) train = train | ps::map(augment);
///     ps::loader loader{train, ps::shuffled{.seed = 1}, {.batch_size = 64}};
///
/// An rvalue is moved in. An lvalue is stored by reference and must outlive all copies. Copies
/// share the wrapped dataset. A pipeline over an lvalue of this type stores a copy. The batches are
/// the same as those of the wrapped dataset, including random bits. Origins, fingerprint, hints and
/// plans are forwarded. `map_batch` can be applied to this type. Reading is thread-safe, but
/// assignment is not.
///
/// The overhead is one virtual call for each chunk. However, a `map<Out>` over this type reads one
/// sample at a time, so apply such a `map` before wrapping. `any_dataset` does not provide `view`
/// and `prefetch`, but the wrapped dataset still uses its own. `any_dataset::borrows` is true.
template <penstock::record_type Record>
class any_dataset
    : public detail::adaptor_base<detail::erased_dataset<Record>,
                                  std::shared_ptr<const detail::erased_dataset<Record>>> {
  using below = detail::adaptor_base<detail::erased_dataset<Record>,
                                     std::shared_ptr<const detail::erased_dataset<Record>>>;

 public:
  using record_type = Record;
  static constexpr bool borrows = true;

  /// Wraps `data`. Moves an rvalue in, and references an lvalue.
  template <class Data>
    requires(!std::same_as<std::remove_cvref_t<Data>, any_dataset> &&
             dataset<std::remove_cvref_t<Data>>)
  any_dataset(Data&& data)  // NOLINT: implicit, so that a pipeline can be assigned to a variable
      : below(detail::erase<Record>(std::forward<Data>(data))) {}

  /// Reads the samples `indices` into `out`. Propagates exceptions from the wrapped dataset.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    this->base().read_chunk(indices, out, context);
  }
};

/// Deduces the record from the dataset.
template <class Data>
any_dataset(Data&&) -> any_dataset<typename std::remove_cvref_t<Data>::record_type>;

namespace detail {

// Pipelines store this handle by value, so that a pipeline over a variable can be assigned to that
// variable.
template <class Record>
struct stored_dataset<any_dataset<Record>&> {
  using type = any_dataset<Record>;
};
template <class Record>
struct stored_dataset<const any_dataset<Record>&> {
  using type = any_dataset<Record>;
};

}  // namespace detail

static_assert(dataset<any_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
