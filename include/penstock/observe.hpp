// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Statistics of a feed, and traces. The diagnosis of the bottleneck, text, JSON and files are in
/// `penstock_ext/report.hpp`.

#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_recorder.hpp>
