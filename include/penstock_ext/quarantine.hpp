// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Lists of failed samples that later runs exclude.

#include <penstock_ext/quarantine/quarantine.hpp>
