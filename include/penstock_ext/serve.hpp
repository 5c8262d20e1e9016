// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Batches of requests that many threads submit.

#include <penstock_ext/serve/batcher.hpp>
