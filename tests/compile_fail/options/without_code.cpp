// SPDX-License-Identifier: BSL-1.0
// Sets an option whose value requires code, in a program that includes only the options. The test
// defines OPTIONS.
#include <chrono>

#include <penstock/faults/error_policy.hpp>
#include <penstock/load/options.hpp>
#include <penstock/transfer/options.hpp>

namespace ps = penstock;
using namespace std::chrono_literals;

[[maybe_unused]] auto options([[maybe_unused]] ps::trace_recorder* recorder) { return OPTIONS; }
