// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Batches of requests from many threads.

#include <penstock_ext/serve/batcher.hpp>
