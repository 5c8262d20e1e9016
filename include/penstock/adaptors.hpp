// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The dataset adaptors of the core, and the base class for custom adaptors. More adaptors are in
/// `penstock_ext/adaptors.hpp`.

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/random_split.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/reader.hpp>
