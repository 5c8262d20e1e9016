// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Search for good options over several trainings, by a Gaussian process.

#include <penstock_ext/search/option_search.hpp>
#include <penstock_ext/search/tuned_text.hpp>
