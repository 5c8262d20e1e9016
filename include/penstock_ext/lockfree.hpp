// SPDX-License-Identifier: BSL-1.0
#pragma once

/// A batch queue between two threads, implemented with Boost.Lockfree (`penstock::lockfree`).

#include <penstock_ext/lockfree/single_producer_single_consumer.hpp>
