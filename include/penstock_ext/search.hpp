// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Bayesian optimization of loop options over several training runs.

#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_text.hpp>
