// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Requests of many threads, put together to batches.

#include <penstock_ext/serve/batcher.hpp>
#include <penstock_ext/serve/options.hpp>
