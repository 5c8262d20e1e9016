// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How many bits of the word that workers claim from count the runs of a batch.
inline constexpr std::uint32_t claim_run_bits = 20;
/// How many bits of it name the host slot.
inline constexpr std::uint32_t claim_slot_bits = 12;

/// The most runs that a batch is cut into. Half the range: a claim that has to wait counts on as
/// well, one for each waiting worker.
inline constexpr std::uint32_t most_runs = 1U << (claim_run_bits - 1);
/// The most host slots of a loader.
inline constexpr std::uint32_t most_slots = 1U << claim_slot_bits;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
