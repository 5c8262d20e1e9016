// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace test {

/// Runs the test cases of this program that its arguments select. Catch2 is compiled only once, in
/// run_catch.cpp, for all programs.
int run_catch(int argc, char** argv);

}  // namespace test
