// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A store that is not owned and outlives this one: what an lvalue becomes below a cache or a
/// source.
template <byte_store Store>
class store_ref {
 public:
  /// Refers to `store`, which must outlive it.
  explicit store_ref(const Store& store) noexcept : store_(&store) {}

  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return store_->size_of(object);
  }
  [[nodiscard]] object_state state_of(std::string_view object) const
    requires versioned_store<Store>
  {
    return store_->state_of(object);
  }
  void read(const byte_range& range) const { store_->read(range); }
  void read_many(std::span<const byte_range> ranges) const
    requires batching_store<Store>
  {
    store_->read_many(ranges);
  }
  void announce_reads(const void* who, std::span<const upcoming_range> ranges) const
    requires planned_store<Store>
  {
    store_->announce_reads(who, ranges);
  }
  void retract(const void* who) const
    requires planned_store<Store>
  {
    store_->retract(who);
  }
  [[nodiscard]] std::uint64_t plan_capacity() const
    requires planned_store<Store>
  {
    return store_->plan_capacity();
  }
  [[nodiscard]] bool warm(const upcoming_range& range) const
    requires warmable_store<Store>
  {
    return store_->warm(range);
  }
  [[nodiscard]] std::optional<borrowed_bytes> try_borrow(const upcoming_range& range) const
    requires borrowable_store<Store>
  {
    return store_->try_borrow(range);
  }

 private:
  const Store* store_;
};

/// How a store is kept that was given as `Store`: an lvalue is referred to, an rvalue is moved in.
template <class Store>
using kept_store =
    std::conditional_t<std::is_lvalue_reference_v<Store>, store_ref<std::remove_cvref_t<Store>>,
                       std::remove_cvref_t<Store>>;

/// Reads all of `ranges`: side by side where `store` can, else one after the other.
template <byte_store Store>
void read_ranges(const Store& store, std::span<const byte_range> ranges) {
  if constexpr (batching_store<Store>) {
    store.read_many(ranges);
  } else {
    for (const byte_range& range : ranges) store.read(range);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
