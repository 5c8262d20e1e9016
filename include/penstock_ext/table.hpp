// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Arrow tables (C data interface) as datasets and blob sources. Parquet support is in
/// `table/parquet` (`penstock::parquet`).

#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/arrow_blobs.hpp>
#include <penstock_ext/table/arrow_dataset.hpp>
#include <penstock_ext/table/arrow_table.hpp>
