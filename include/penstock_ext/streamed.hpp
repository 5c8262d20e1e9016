// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Batches of records that come one after another, whose number is known only at the end.

#include <penstock_ext/streamed/streamed.hpp>
