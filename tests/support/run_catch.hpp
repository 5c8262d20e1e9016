// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace test {

/// Runs the test cases of this program as its arguments say. Catch2's code itself is compiled in
/// run_catch.cpp, once for all programs.
int run_catch(int argc, char** argv);

}  // namespace test
