// SPDX-License-Identifier: BSL-1.0
#include <string>

#include <penstock/core/record.hpp>

namespace ps = penstock;

ps::record<ps::field<"length", int>> good;
ps::record<ps::field<"text", std::string>> bad;  // expected-error: a trivially copyable value
