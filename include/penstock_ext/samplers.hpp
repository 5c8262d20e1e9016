// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Additional samplers: block shuffling, batches of similar lengths or with a token budget,
/// weighted mixtures, and draws with changing weights.

#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/samplers/bucketed.hpp>
#include <penstock_ext/samplers/by_tokens.hpp>
#include <penstock_ext/samplers/mixture.hpp>
#include <penstock_ext/samplers/prioritized.hpp>
