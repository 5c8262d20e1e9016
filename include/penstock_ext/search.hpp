// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Finds good options over several trainings with a Gaussian process.

#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_text.hpp>
