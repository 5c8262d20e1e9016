// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/blob/blob_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A blob source that takes hints for all that a worker reads next at once: `prefetch(indices)`.
// clang-format off
template <class Source>
concept prefetches_runs = requires(const Source& source, std::span<const std::uint64_t> indices) {
  { source.prefetch(indices) } noexcept;
};
// clang-format on

/// A blob source that is not owned and outlives this one: what an lvalue becomes in a pipeline.
template <blob_source Source>
class blob_ref {
 public:
  static constexpr bool borrows = true;

  /// Refers to `source`, which must outlive it.
  explicit blob_ref(const Source& source) noexcept : source_(&source) {}

  [[nodiscard]] std::uint64_t size() const { return source_->size(); }
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    return source_->bytes(index, buffer);
  }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const { return source_->label(index); }
  [[nodiscard]] std::string key(std::uint64_t index) const { return source_->key(index); }
  void prefetch(std::uint64_t index) const noexcept requires prefetches<Source> {
    source_->prefetch(index);
  }
  void prefetch(std::span<const std::uint64_t> indices) const noexcept requires
      prefetches_runs<Source> {
    source_->prefetch(indices);
  }
  [[nodiscard]] std::vector<std::string> warnings() const { return warnings_of(*source_); }
  [[nodiscard]] std::uint64_t stored_bytes(std::uint64_t index) const {
    return stored_bytes_of(*source_, index);
  }
  [[nodiscard]] std::uint64_t most_ahead() const requires bounds_plans<Source> {
    return source_->most_ahead();
  }
  void foresee(std::span<const std::uint64_t> indices) const requires foresees<Source> {
    source_->foresee(indices);
  }
  [[nodiscard]] std::uint64_t most_foreseen() const requires foresees<Source> {
    return most_foreseen_of(*source_);
  }

 private:
  const Source* source_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
