// SPDX-License-Identifier: BSL-1.0
#pragma once

/// All adaptors of datasets, and the base for your own.

#include <penstock/data/adaptors/adaptor.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/adaptors/interleave.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/adaptors/map_batch.hpp>
#include <penstock/data/adaptors/random_split.hpp>
#include <penstock/data/adaptors/subset.hpp>
#include <penstock/data/adaptors/with_index.hpp>
#include <penstock/data/adaptors/without.hpp>
#include <penstock/data/adaptors/zip.hpp>
#include <penstock/data/any_dataset.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/reader.hpp>
