// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Statistics and traces of a feed. The bottleneck diagnosis, text, JSON and file output are in
/// `penstock_ext/report.hpp`.

#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_recorder.hpp>
