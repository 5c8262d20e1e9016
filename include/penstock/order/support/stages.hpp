// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The stages of the random bits that the library draws itself, see `random_key`; not for
/// pipelines, whose own count from 0.

/// Makes the order of an epoch (`permutation`).
inline constexpr std::uint32_t shuffle_stage = (std::numeric_limits<std::uint32_t>::max)();
/// Makes the order of `block_shuffled`.
inline constexpr std::uint32_t block_shuffle_stage = shuffle_stage - 1;
/// Makes the draws of `weighted`.
inline constexpr std::uint32_t weighted_stage = shuffle_stage - 2;
/// Chooses the substitutes of samples that can't be read.
inline constexpr std::uint32_t substitute_stage = shuffle_stage - 3;
/// The random bits of a whole batch (`map_batch`), which stands for the sample's index there.
inline constexpr std::uint32_t batch_stage = shuffle_stage - 4;
/// Deals out the batches of `bucketed`.
inline constexpr std::uint32_t bucketed_stage = shuffle_stage - 5;
/// Deals samples out to the parts of `random_split`.
inline constexpr std::uint32_t split_stage = shuffle_stage - 6;
/// Makes the order of a stratified part of `random_split`.
inline constexpr std::uint32_t part_order_stage = shuffle_stage - 7;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
