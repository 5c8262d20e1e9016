// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Lists of failed samples, for exclusion from later runs.

#include <penstock_ext/quarantine/quarantine.hpp>
