// SPDX-License-Identifier: BSL-1.0
#pragma once

// Catch2, 2.13 or 3, by one include. What is spelled the same in both: TEST_CASE, SECTION, CHECK,
// REQUIRE, *_THROWS_AS, *_THROWS_MATCHES, GENERATE, CAPTURE, INFO, and of the matchers
// Catch::Matchers::Message(text), Catch::Matchers::Predicate<T>(function, description),
// Catch::Matchers::StartsWith(text) and EndsWith(text).
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
