// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

// Requires C++20: a concept and an abbreviated function template.
template <typename T>
concept number = requires(T a) { a + a; };

constexpr auto sum_of(number auto... all) { return (all + ...); }

int sum_on_host();
