// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Statistics and traces of a feed. Bottleneck diagnosis, and output as text, JSON and files, are
/// in `penstock_ext/report.hpp`.

#include <penstock/observe/stats.hpp>
#include <penstock/observe/trace_recorder.hpp>
