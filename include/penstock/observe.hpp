// SPDX-License-Identifier: BSL-1.0
#pragma once

/// What a flow does and waits for: figures, traces, and the verdict on what limits the loop. As
/// text, JSON and files: `penstock_ext/report.hpp`.

#include <penstock/observe/diagnose.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_recorder.hpp>
