// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace test {

/// Runs the test cases of this program according to its arguments. Catch2 itself is compiled in
/// run_catch.cpp, once for all programs.
int run_catch(int argc, char** argv);

}  // namespace test
