// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Statistics of a flow, traces, and the verdict on what limits the loop. For text, JSON and files
/// see `penstock_ext/report.hpp`.

#include <penstock/observe/diagnose.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_recorder.hpp>
