// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

// C++20: a constrained, abbreviated template.
template <typename T>
concept number = requires(T a) { a + a; };

constexpr auto sum_of(number auto... all) { return (all + ...); }

int sum_on_host();
