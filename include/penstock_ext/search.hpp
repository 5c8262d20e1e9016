// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Searches for fast loop options over several training runs, using Bayesian optimization.

#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_text.hpp>
