// SPDX-License-Identifier: BSL-1.0
// The main function of all test programs that need no main function of their own.
#include "support/run_catch.hpp"

int main(int argc, char** argv) { return test::run_catch(argc, argv); }
