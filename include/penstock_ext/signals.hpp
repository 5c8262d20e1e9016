// SPDX-License-Identifier: BSL-1.0
#pragma once

/// A stop token for signals such as Ctrl-C.

#include <penstock_ext/signals/stop_on_signal.hpp>
