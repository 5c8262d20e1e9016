// SPDX-License-Identifier: BSL-1.0
#include "sum.hpp"

int sum_on_host() { return sum_of(1, 2, 3); }
