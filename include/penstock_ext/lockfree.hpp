// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The batch queue between two threads, implemented by Boost.Lockfree (`penstock::lockfree`).

#include <penstock_ext/lockfree/single_producer_single_consumer.hpp>
