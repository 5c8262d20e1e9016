// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Samplers that a first program does not need: blocks, batches of similar lengths or by a budget,
/// mixtures, and draws by weights that change.

#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/samplers/bucketed.hpp>
#include <penstock_ext/samplers/by_tokens.hpp>
#include <penstock_ext/samplers/mixture.hpp>
#include <penstock_ext/samplers/prioritized.hpp>
