// SPDX-License-Identifier: BSL-1.0
#pragma once

/// What a flow does and waits for: figures, traces, and the verdict on what limits the loop. As
/// text, JSON and files: `penstock_ext/report.hpp`.

#include <penstock/observe/diagnose.hpp>
#include <penstock/observe/duration_stats.hpp>
#include <penstock/observe/loader_stats.hpp>
#include <penstock/observe/stage_stats.hpp>
#include <penstock/observe/stats_clock.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/observe/transfer_stats.hpp>
#include <penstock/observe/verdict.hpp>
