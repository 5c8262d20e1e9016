// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Additional dataset adaptors, and type-erased datasets. `filter`, which uses threads and files,
/// is in `adaptors/filter.hpp`.

#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/adaptors/exclude.hpp>
#include <penstock_ext/adaptors/interleave.hpp>
#include <penstock_ext/adaptors/map_batch.hpp>
#include <penstock_ext/adaptors/with_index.hpp>
#include <penstock_ext/adaptors/zip.hpp>
