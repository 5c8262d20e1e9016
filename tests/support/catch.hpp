// SPDX-License-Identifier: BSL-1.0
#pragma once

// Includes Catch2, version 2.13 or 3. The tests use only names that both versions have: TEST_CASE,
// SECTION, CHECK, REQUIRE, *_THROWS_AS, *_THROWS_MATCHES, GENERATE, CAPTURE, INFO, and the matchers
// Catch::Matchers::Message(text), Catch::Matchers::Predicate<T>(function, description),
// Catch::Matchers::StartsWith(text) and EndsWith(text).
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
