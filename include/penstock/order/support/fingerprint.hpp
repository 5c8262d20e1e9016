// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <penstock/order/sampler.hpp>
#include <penstock/order/support/word_hash.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A sampler that hashes all that its order depends on, such as a schedule.
template <class Sampler>
concept hashed_sampler = sampler<Sampler> && requires(const Sampler& sampler) {
  { sampler.fingerprint() } -> std::same_as<std::uint64_t>;
};

/// A hash of a sampler's order: its own if it has one, else made of the first and the middle
/// indices of two epochs. Samplers whose orders differ there collide with a probability of 2^-64.
template <sampler Sampler>
[[nodiscard]] std::uint64_t order_fingerprint(const Sampler& order, std::uint64_t dataset_size) {
  if constexpr (hashed_sampler<Sampler>) return order.fingerprint();
  word_hash hash;
  const std::uint64_t samples = order.size(dataset_size);
  std::array<std::uint64_t, 16> indices{};
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    const auto of_epoch = order.order(dataset_size, epoch);
    for (const std::uint64_t first : {std::uint64_t{0}, samples / 2}) {
      const std::span some{indices.data(), static_cast<std::size_t>((std::min)(
                                               samples - first, std::uint64_t{indices.size()}))};
      of_epoch.fill(first, some);
      hash.add_all(some);
    }
  }
  return hash.value();
}

/// A sampler that distributes the order of `global()` over `world()` ranks.
template <class S>
concept dealing_sampler = sampler<S> && requires(const S& deals) {
  requires sampler<std::remove_cvref_t<decltype(deals.global())>>;
  { deals.world() } -> std::convertible_to<std::uint64_t>;
};

/// The sampler of the global order: the sampler itself if it does not distribute one.
template <sampler Sampler>
[[nodiscard]] const auto& global_sampler(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.global();
  } else {
    return of;
  }
}

/// The number of ranks that a sampler distributes over: 1 for most.
template <sampler Sampler>
[[nodiscard]] std::uint64_t world_size(const Sampler& of) noexcept {
  if constexpr (dealing_sampler<Sampler>) {
    return of.world();
  } else {
    return 1;
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
