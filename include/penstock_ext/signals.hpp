// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Turns signals such as Ctrl-C into a stop token.

#include <penstock_ext/signals/stop_on_signal.hpp>
