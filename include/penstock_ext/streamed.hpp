// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Batches of sequential records whose number is unknown in advance.

#include <penstock_ext/streamed/streamed.hpp>
