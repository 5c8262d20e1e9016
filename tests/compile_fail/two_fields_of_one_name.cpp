// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/record.hpp>

namespace ps = penstock;

ps::record<ps::field<"x", int>, ps::field<"y", float>> good;
ps::record<ps::field<"x", int>, ps::field<"x", float>> bad;  // expected-error: two fields
