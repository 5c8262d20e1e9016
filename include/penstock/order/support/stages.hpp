// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The stages reserved for the library's own random bits, see `random_key`. The stages of pipelines
/// count from 0.

/// For the order of an epoch (`permutation`).
inline constexpr std::uint32_t shuffle_stage = (std::numeric_limits<std::uint32_t>::max)();
/// For the order of `block_shuffled`.
inline constexpr std::uint32_t block_shuffle_stage = shuffle_stage - 1;
/// For the draws of `weighted`.
inline constexpr std::uint32_t weighted_stage = shuffle_stage - 2;
/// For the choice of substitutes for samples that can't be read.
inline constexpr std::uint32_t substitute_stage = shuffle_stage - 3;
/// For whole batches (`map_batch`), keyed by the batch's number instead of the sample's index.
inline constexpr std::uint32_t batch_stage = shuffle_stage - 4;
/// For the order of the batches of `bucketed`.
inline constexpr std::uint32_t bucketed_stage = shuffle_stage - 5;
/// For the parts of `random_split`.
inline constexpr std::uint32_t split_stage = shuffle_stage - 6;
/// For the order within a stratified part of `random_split`.
inline constexpr std::uint32_t part_order_stage = shuffle_stage - 7;
/// For the orders of the parts of a `mixture`.
inline constexpr std::uint32_t mixture_stage = shuffle_stage - 9;
/// For the draws of `prioritized`.
inline constexpr std::uint32_t prioritized_stage = shuffle_stage - 10;
/// For the batches of `by_tokens`.
inline constexpr std::uint32_t by_tokens_stage = shuffle_stage - 12;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
