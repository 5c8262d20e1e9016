// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Signals such as Ctrl-C as a stop token.

#include <penstock_ext/signals/stop_on_signal.hpp>
