// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Batches of requests submitted by many threads.

#include <penstock_ext/serve/batcher.hpp>
