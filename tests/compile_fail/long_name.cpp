// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/record.hpp>

namespace ps = penstock;

ps::name good{"a name of thirty-two characters."};
ps::name bad{"a name of thirty-three characters"};  // expected-error: at most 32 characters
